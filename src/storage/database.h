// One connection to a file of SQLite.
//
//   Database file("responses.db", kind);
//   Statement insert = file.prepare("INSERT INTO texts VALUES (?1, ?2)");
//   insert.bind(1, id).bind(2, text).step();
//
// A connection is used by one thread at a time. Several connections, also of several processes, may
// have one file: readers never wait for the writer (write-ahead log). A new file is readable by its
// owner alone, since it holds what clients wrote.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/error.h"

struct sqlite3;
struct sqlite3_stmt;

namespace sluice {

// Why a file cannot be read or written.
enum class StorageTrouble : std::uint8_t {
  kFull,
  kReadOnly,
  kLocked,
  kDamaged,
  kBroken,  // the system failed to read or write
  kRefused  // these rows alone cannot be written
};

// Words for clients and the log, without a path: "the disk is full".
std::string_view trouble_text(StorageTrouble trouble);

// Thrown by every function below once the file is open.
class StorageError : public std::runtime_error {
 public:
  // `detail`: the words of SQLite, for the log.
  StorageError(StorageTrouble trouble, const std::string& detail)
      : std::runtime_error(detail), trouble_(trouble) {}
  StorageTrouble trouble() const { return trouble_; }

 private:
  StorageTrouble trouble_;
};

// 503 for a client whose request needs the file; `what` is "The store of responses".
Fault storage_fault(const StorageError& error, std::string_view what);

// What a file holds. `schema` makes the tables of a new one.
struct DatabaseKind {
  std::string_view what;     // "stored responses", for messages
  std::int32_t application;  // marks the file
  std::int32_t version;      // of the schema
  const char* schema;
};

class Statement {
 public:
  Statement(Statement&& other) noexcept;
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  Statement& operator=(Statement&&) = delete;

  // Parameters count from 1. A text must live until the last step().
  Statement& bind(int index, std::string_view text);
  Statement& bind(int index, std::int64_t value);
  // Whether there is a row, or another one.
  bool step();
  // Columns count from 0.
  std::string text(int column) const;
  std::int64_t integer(int column) const;

 private:
  friend class Database;
  Statement(sqlite3* file, sqlite3_stmt* statement) : file_(file), statement_(statement) {}

  sqlite3* file_;
  sqlite3_stmt* statement_;
};

class Database {
 public:
  // Opens the file, or makes it. Waits up to `wait_ms` for a lock of another process, at each
  // statement. Error{kBadInput} naming the file: it cannot be written, is no database, or holds
  // something else.
  Database(const std::string& path, const DatabaseKind& kind, int wait_ms);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  Statement prepare(std::string_view sql);
  // Statements without results.
  void run(const char* sql);
  // Rows that the last INSERT, UPDATE or DELETE changed.
  std::int64_t changes() const;

 private:
  void settle(const std::string& path, const DatabaseKind& kind);

  sqlite3* file_ = nullptr;
};

// Begins at construction; what is not committed is undone.
class Transaction {
 public:
  explicit Transaction(Database& file) : file_(file) { file_.run("BEGIN IMMEDIATE"); }
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  Database& file_;
  bool is_open_ = true;
};

}  // namespace sluice
