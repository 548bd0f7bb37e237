#include "storage/response_store.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <future>

namespace sluice {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<const StoredResponse> record(const std::string& id, const std::string& owner,
                                             std::size_t bytes = 10, bool is_done = true) {
  auto out = std::make_shared<StoredResponse>();
  out->id = id;
  out->owner = owner;
  out->response = std::string(bytes, 'x');
  out->input_items = "[1]";
  out->messages = R"(["é"])";
  out->is_done = is_done;
  return out;
}

std::shared_ptr<const StoredResponse> find(ResponseStore& store, const std::string& id,
                                           const std::string& owner) {
  auto found = store.find(id, owner);
  EXPECT_TRUE(found.ok());
  return found ? *found : nullptr;
}

Result<bool> erase(ResponseStore& store, const std::string& id, const std::string& owner) {
  std::promise<Result<bool>> outcome;
  store.erase(id, owner, [&](Result<bool> was_there) { outcome.set_value(std::move(was_there)); });
  return outcome.get_future().get();
}

TEST(ResponseStore, BelongsToItsOwner) {
  ResponseStore store;
  EXPECT_TRUE(store.put(record("a", "one")));
  EXPECT_NE(find(store, "a", "one"), nullptr);
  EXPECT_EQ(find(store, "a", "two"), nullptr);
  EXPECT_FALSE(*erase(store, "a", "two"));
  EXPECT_TRUE(*erase(store, "a", "one"));
  EXPECT_FALSE(*erase(store, "a", "one"));
  EXPECT_EQ(find(store, "a", "one"), nullptr);
  EXPECT_EQ(store.figures().memory_bytes, 0u);
}

TEST(ResponseStore, IsBoundInNumberByLastUse) {
  ResponseStore store({.max_bytes = 1 << 20, .max_responses = 3});
  for (const char* id : {"a", "b", "c"}) EXPECT_TRUE(store.put(record(id, "")));
  EXPECT_NE(find(store, "a", ""), nullptr);
  EXPECT_TRUE(store.put(record("d", "")));
  EXPECT_EQ(store.figures().memory_responses, 3u);
  EXPECT_EQ(find(store, "b", ""), nullptr);
  EXPECT_NE(find(store, "a", ""), nullptr);
}

TEST(ResponseStore, IsBoundInBytes) {
  ResponseStore store({.max_bytes = 4096, .max_responses = 1000});
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(store.put(record(std::to_string(i), "", 1000)));
    EXPECT_LE(store.figures().memory_bytes, 4096u);
  }
  EXPECT_NE(find(store, "99", ""), nullptr);
  EXPECT_FALSE(store.put(record("big", "", 5000)));
  EXPECT_EQ(find(store, "big", ""), nullptr);
  EXPECT_NE(find(store, "99", ""), nullptr);
}

TEST(ResponseStore, ReplacesOneOfTheSameId) {
  ResponseStore store;
  EXPECT_TRUE(store.put(record("a", "", 100)));
  EXPECT_TRUE(store.put(record("a", "", 50)));
  EXPECT_EQ(store.figures().memory_responses, 1u);
  EXPECT_EQ(find(store, "a", "")->response.size(), 50u);
  EXPECT_EQ(store.figures().memory_bytes, find(store, "a", "")->bytes());
}

class StoredFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              ("responses_" +
               std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    path_ = (folder_ / "store.db").string();
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::unique_ptr<ResponseStore> open(const ResponseFile::Limits& limits = {},
                                      const ResponseStore::Limits& memory = {}) {
    return std::make_unique<ResponseStore>(memory, path_, limits);
  }
  // Until the writer has written all that it was given.
  static void settle(const ResponseStore& store) {
    while (store.figures().waiting_bytes > 0) std::this_thread::yield();
  }

  fs::path folder_;
  std::string path_;
};

TEST_F(StoredFile, OutlivesTheStore) {
  open()->put(record("a", "one", 5000));
  const auto store = open();
  EXPECT_EQ(store->figures().file_responses, 1);
  const auto found = find(*store, "a", "one");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->response, std::string(5000, 'x'));
  EXPECT_EQ(found->input_items, "[1]");
  EXPECT_EQ(found->messages, R"(["é"])");
  EXPECT_TRUE(found->is_done);
  EXPECT_EQ(find(*store, "a", "two"), nullptr);
  EXPECT_FALSE(*erase(*store, "a", "two"));
  EXPECT_TRUE(*erase(*store, "a", "one"));
  EXPECT_EQ(find(*store, "a", "one"), nullptr);
  EXPECT_EQ(store->figures().file_responses, 0);
  EXPECT_EQ(find(*open(), "a", "one"), nullptr);
}

TEST_F(StoredFile, HasNoResponseThatIsBeingMade) {
  {
    const auto store = open();
    store->put(record("a", "", 10, false));
    EXPECT_NE(find(*store, "a", ""), nullptr);
  }
  EXPECT_EQ(find(*open(), "a", ""), nullptr);
}

TEST_F(StoredFile, LetsTheOldestGo) {
  const auto one = static_cast<std::int64_t>(record("00", "", 1000)->bytes());
  const auto store =
      open({.max_bytes = 10 * one, .max_responses = 1000}, {.max_bytes = 1, .max_responses = 1});
  for (int i = 10; i < 60; ++i) {
    EXPECT_TRUE(store->put(record(std::to_string(i), "", 1000)));
    settle(*store);
    EXPECT_LE(store->figures().file_bytes, 10 * one);
  }
  EXPECT_EQ(store->figures().file_responses, 10);
  EXPECT_EQ(find(*store, "49", ""), nullptr);
  EXPECT_NE(find(*store, "50", ""), nullptr);
  const auto fewer = open({.max_bytes = 10 * one, .max_responses = 3});
  EXPECT_TRUE(fewer->put(record("new", "")));
  settle(*fewer);
  EXPECT_EQ(fewer->figures().file_responses, 3);
}

TEST_F(StoredFile, IsReadableByItsOwnerAlone) {
  open()->put(record("a", ""));
  const auto others = fs::perms::group_all | fs::perms::others_all;
  for (const auto& file : fs::directory_iterator(folder_))
    EXPECT_EQ(file.status().permissions() & others, fs::perms::none) << file.path();
}

TEST_F(StoredFile, TwoServersShareIt) {
  const auto one = open(), two = open();
  one->put(record("a", ""));
  two->put(record("b", ""));
  settle(*one);
  settle(*two);
  EXPECT_NE(find(*one, "b", ""), nullptr);
  EXPECT_NE(find(*two, "a", ""), nullptr);
  EXPECT_EQ(open()->figures().file_responses, 2);
}

TEST_F(StoredFile, OfAnotherKindIsRefused) {
  std::ofstream(path_) << std::string(8192, 'z');
  EXPECT_THROW(open(), Error);
  fs::remove(path_);
  {
    Database other(path_, {"other things", 77, 1, "CREATE TABLE t (x)"}, 0);
  }
  try {
    open();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kBadInput);
    EXPECT_NE(e.message().find("something else than stored responses"), std::string::npos);
  }
  path_ = (folder_ / "absent" / "x.db").string();
  EXPECT_THROW(open(), Error);
  path_ = folder_.string();
  EXPECT_THROW(open(), Error);
}

TEST_F(StoredFile, OfALaterVersionIsRefused) {
  open();
  {
    Database raw(path_, {"stored responses", 0x536c7273, 1, ""}, 0);
    raw.run("PRAGMA user_version = 2");
  }
  EXPECT_THROW(open(), Error);
}

// What cannot be written stays, and is written once that can be.
TEST_F(StoredFile, WaitsForALock) {
  const auto store = open();
  {
    Database other(path_, {"stored responses", 0x536c7273, 1, ""}, 0);
    Transaction lock(other);
    EXPECT_TRUE(store->put(record("a", "")));
    EXPECT_NE(find(*store, "a", ""), nullptr);
    EXPECT_GT(store->figures().waiting_bytes, 0u);
    const Result<bool> erased = erase(*store, "b", "");
    ASSERT_FALSE(erased.ok());
    EXPECT_EQ(erased.fault().status, 503);
    EXPECT_NE(erased.fault().message.find("another process has locked"), std::string::npos);
    EXPECT_GT(store->figures().write_failures, 0u);
  }
  settle(*store);
  EXPECT_EQ(store->figures().unwritten, 0u);
  EXPECT_NE(find(*open(), "a", ""), nullptr);
}

TEST_F(StoredFile, KeepsNoMoreThanItsBoundWaiting) {
  const std::size_t one = record("10", "", 1000)->bytes();
  const auto store = open({.max_waiting_bytes = 3 * one}, {.max_bytes = 1, .max_responses = 1});
  Database other(path_, {"stored responses", 0x536c7273, 1, ""}, 0);
  {
    Transaction lock(other);
    for (int i = 10; i < 20; ++i) store->put(record(std::to_string(i), "", 1000));
    EXPECT_EQ(store->figures().waiting_bytes, 3 * one);
    EXPECT_EQ(store->figures().unwritten, 7u);
    EXPECT_NE(find(*store, "12", ""), nullptr);
    EXPECT_EQ(find(*store, "13", ""), nullptr);
  }
  settle(*store);
  EXPECT_EQ(store->figures().file_responses, 3);
}

TEST_F(StoredFile, ThatIsDamagedIsSaidToBe) {
  const ResponseStore::Limits no_memory{.max_bytes = 1, .max_responses = 1};
  {
    const auto store = open({}, no_memory);
    for (int i = 100; i < 300; ++i) store->put(record(std::to_string(i), "", 3000));
  }
  {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    // Behind the first pages, which are read when the file is opened.
    const std::size_t from = fs::file_size(path_) / 4 / 4096 * 4096;
    file.seekp(static_cast<std::streamoff>(from));
    const std::string noise(fs::file_size(path_) - from, '\xa5');
    file.write(noise.data(), static_cast<std::streamsize>(noise.size()));
  }
  const auto store = open({}, no_memory);
  const auto found = store->find("250", "");
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.fault().status, 503);
  EXPECT_NE(found.fault().message.find("damaged"), std::string::npos);
  store->put(record("new", "", 3000));
  const Result<bool> erased = erase(*store, "250", "");
  EXPECT_FALSE(erased.ok());
  EXPECT_EQ(store->figures().unwritten, 1u);
}

}  // namespace
}  // namespace sluice
