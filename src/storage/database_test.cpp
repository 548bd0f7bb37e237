#include "storage/database.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <future>

#include "storage/database_writer.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr DatabaseKind kKind{"words", 4711, 1,
                             "CREATE TABLE words (word TEXT NOT NULL UNIQUE, n INTEGER)"};

class DatabaseFile : public ::testing::Test {
 protected:
  DatabaseFile()
      : path_(
            (fs::path(::testing::TempDir()) /
             (std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) + ".db"))
                .string()) {
    clear();
  }
  ~DatabaseFile() override { clear(); }
  void clear() {
    for (const char* end : {"", "-wal", "-shm"}) fs::remove(path_ + end);
  }
  static std::int64_t count(Database& file) {
    Statement query = file.prepare("SELECT count(*) FROM words");
    EXPECT_TRUE(query.step());
    return query.integer(0);
  }

  std::string path_;
};

TEST_F(DatabaseFile, KeepsTextsWithEveryByte) {
  Database file(path_, kKind, 0);
  const std::string odd("a\0'\xff", 4);
  file.prepare("INSERT INTO words VALUES (?1, ?2)").bind(1, odd).bind(2, -7).step();
  file.prepare("INSERT INTO words VALUES (?1, ?2)").bind(1, "").bind(2, 1).step();
  Statement query = file.prepare("SELECT word, n FROM words ORDER BY n");
  ASSERT_TRUE(query.step());
  EXPECT_EQ(query.text(0), odd);
  EXPECT_EQ(query.integer(1), -7);
  ASSERT_TRUE(query.step());
  EXPECT_EQ(query.text(0), "");
  EXPECT_FALSE(query.step());
}

TEST_F(DatabaseFile, UndoesWhatIsNotCommitted) {
  Database file(path_, kKind, 0);
  {
    Transaction change(file);
    file.run("INSERT INTO words VALUES ('a', 1)");
  }
  EXPECT_EQ(count(file), 0);
  Transaction change(file);
  file.run("INSERT INTO words VALUES ('a', 1)");
  change.commit();
  EXPECT_EQ(count(file), 1);
}

TEST_F(DatabaseFile, NamesTheTrouble) {
  Database file(path_, kKind, 0);
  const auto trouble = [&](auto&& act) {
    try {
      act();
    } catch (const StorageError& e) {
      return e.trouble();
    }
    ADD_FAILURE();
    return StorageTrouble::kRefused;
  };
  file.run("INSERT INTO words VALUES ('a', 1)");
  EXPECT_EQ(trouble([&] { file.run("INSERT INTO words VALUES ('a', 1)"); }),
            StorageTrouble::kRefused);
  Database other(path_, kKind, 0);
  {
    Transaction change(other);
    EXPECT_EQ(trouble([&] { file.run("INSERT INTO words VALUES ('b', 1)"); }),
              StorageTrouble::kLocked);
    EXPECT_EQ(count(file), 1);  // readers do not wait
  }
  file.run("PRAGMA max_page_count = 1");
  EXPECT_EQ(trouble([&] { file.run("INSERT INTO words SELECT hex(zeroblob(100000)), 1"); }),
            StorageTrouble::kFull);
  file.run("PRAGMA query_only = ON");
  EXPECT_EQ(trouble([&] { file.run("INSERT INTO words VALUES ('c', 1)"); }),
            StorageTrouble::kReadOnly);
}

// One job that cannot be written does not take those beside it along.
TEST_F(DatabaseFile, AJobFailsAlone) {
  std::vector<std::string> outcomes;
  std::promise<void> began, may_go_on;
  {
    DatabaseWriter writer(path_, kKind, 1 << 20);
    const auto submit = [&](const char* sql, bool may_wait) {
      return writer.submit({.run = [sql](Database& file) { file.run(sql); },
                            .done =
                                [&outcomes, sql](const StorageError* error) {
                                  outcomes.push_back(std::string(sql).substr(27, 1) +
                                                     (error ? "-" : "+"));
                                },
                            .bytes = 1000,
                            .may_wait = may_wait});
    };
    writer.submit({.run =
                       [&](Database&) {
                         began.set_value();
                         may_go_on.get_future().wait();
                       },
                   .done = [](const StorageError*) {}});
    began.get_future().wait();  // so that the next ones are together
    EXPECT_TRUE(submit("INSERT INTO words VALUES ('a', 1)", true));
    EXPECT_TRUE(submit("INSERT INTO words VALUES ('a', 2)", true));
    EXPECT_TRUE(submit("INSERT INTO words VALUES ('b', 3)", false));
    EXPECT_EQ(writer.waiting_bytes(), 3000u);
    may_go_on.set_value();
  }
  EXPECT_EQ(outcomes, (std::vector<std::string>{"a+", "a-", "b+"}));
  Database file(path_, kKind, 0);
  EXPECT_EQ(count(file), 2);
}

}  // namespace
}  // namespace sluice
