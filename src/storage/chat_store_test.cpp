#include "storage/chat_store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <future>

namespace sluice {
namespace {

namespace fs = std::filesystem;

class Chats : public ::testing::Test {
 protected:
  Chats()
      : path_((fs::path(::testing::TempDir()) /
               ("chats_" +
                std::string(::testing::UnitTest::GetInstance()->current_test_info()->name())))
                  .string()) {
    clear();
  }
  ~Chats() override { clear(); }
  void clear() {
    for (const char* end : {"", "-wal", "-shm"}) fs::remove(path_ + end);
  }
  static std::optional<Fault> save(ChatStore& store, const std::string& id, std::int64_t updated,
                                   const std::string& owner, const std::string& body) {
    std::promise<std::optional<Fault>> outcome;
    store.save({id, "title of " + id, updated}, owner, body,
               [&](std::optional<Fault> fault) { outcome.set_value(std::move(fault)); });
    return outcome.get_future().get();
  }
  static Result<bool> erase(ChatStore& store, const std::string& id, const std::string& owner) {
    std::promise<Result<bool>> outcome;
    store.erase(id, owner, [&](Result<bool> was) { outcome.set_value(std::move(was)); });
    return outcome.get_future().get();
  }
  static std::string ids(ChatStore& store, const std::string& owner) {
    std::string out;
    const auto heads = store.list(owner);
    EXPECT_TRUE(heads.ok());
    for (const ChatHead& head : heads.value()) out += head.id;
    return out;
  }

  std::string path_;
};

TEST_F(Chats, BelongToTheirOwnerAndOutliveTheStore) {
  {
    ChatStore store(path_, {});
    EXPECT_FALSE(save(store, "a", 1, "one", "{\"é\": 1}"));
    EXPECT_FALSE(save(store, "b", 3, "one", "{}"));
    EXPECT_FALSE(save(store, "a", 2, "two", "{\"of\": \"two\"}"));
    EXPECT_FALSE(save(store, "a", 4, "one", "{\"é\": 2}"));
  }
  ChatStore store(path_, {});
  EXPECT_EQ(ids(store, "one"), "ab");
  EXPECT_EQ(ids(store, "two"), "a");
  EXPECT_EQ(ids(store, ""), "");
  EXPECT_EQ(store.list("one")->front().title, "title of a");
  EXPECT_EQ(**store.load("a", "one"), "{\"é\": 2}");
  EXPECT_EQ(**store.load("a", "two"), "{\"of\": \"two\"}");
  EXPECT_FALSE(store.load("b", "two")->has_value());
  EXPECT_FALSE(*erase(store, "b", "two"));
  EXPECT_TRUE(*erase(store, "b", "one"));
  EXPECT_FALSE(*erase(store, "b", "one"));
  EXPECT_EQ(ids(store, "one"), "a");
}

TEST_F(Chats, BeyondABoundAreRefused) {
  ChatStore store(path_, {.max_bytes = 1000, .max_chats = 2});
  EXPECT_FALSE(save(store, "a", 1, "", std::string(900, 'x')));
  const std::optional<Fault> large = save(store, "b", 1, "", std::string(100, 'x'));
  ASSERT_TRUE(large);
  EXPECT_EQ(large->status, 413);
  EXPECT_FALSE(save(store, "a", 1, "", "x"));  // what it replaces does not count
  EXPECT_FALSE(save(store, "b", 1, "", "x"));
  EXPECT_TRUE(save(store, "c", 1, "", "x"));
  EXPECT_FALSE(save(store, "c", 1, "another", "x"));
  EXPECT_EQ(ids(store, ""), "ab");
}

TEST_F(Chats, ALockedFileIsAFault) {
  ChatStore store(path_, {});
  EXPECT_FALSE(save(store, "a", 1, "", "x"));
  Database other(path_, {"chats", 0x536c7063, 1, ""}, 0);
  const Transaction lock(other);
  const std::optional<Fault> fault = save(store, "b", 1, "", "x");
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->status, 503);
  EXPECT_EQ(erase(store, "a", "").fault().status, 503);
  EXPECT_EQ(ids(store, ""), "a");
}

}  // namespace
}  // namespace sluice
