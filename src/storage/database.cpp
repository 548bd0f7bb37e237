#include "storage/database.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace sluice {
namespace {

StorageTrouble trouble_of(int code) {
  switch (code & 0xff) {
    case SQLITE_FULL:
      return StorageTrouble::kFull;
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return StorageTrouble::kReadOnly;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return StorageTrouble::kLocked;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return StorageTrouble::kDamaged;
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_PROTOCOL:
      return StorageTrouble::kBroken;
    default:
      return StorageTrouble::kRefused;
  }
}

void demand(bool done, sqlite3* file) {
  if (!done) throw StorageError(trouble_of(sqlite3_extended_errcode(file)), sqlite3_errmsg(file));
}

std::int64_t pragma(Database& file, const char* sql) {
  Statement statement = file.prepare(sql);
  return statement.step() ? statement.integer(0) : 0;
}

// SQLite makes files that everybody may read, so the file is made here.
void make_private_file(const std::string& path) {
  const int made = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  require(made >= 0, "{} cannot be opened for writing: {}", path, std::strerror(errno));
  struct stat info{};
  const bool is_file = fstat(made, &info) == 0 && S_ISREG(info.st_mode);
  close(made);
  require(is_file, "{} is no file", path);
}

}  // namespace

std::string_view trouble_text(StorageTrouble trouble) {
  switch (trouble) {
    case StorageTrouble::kFull:
      return "the disk is full";
    case StorageTrouble::kReadOnly:
      return "the file may not be written";
    case StorageTrouble::kLocked:
      return "another process has locked the file";
    case StorageTrouble::kDamaged:
      return "the file is damaged";
    case StorageTrouble::kBroken:
      return "the file cannot be read or written";
    case StorageTrouble::kRefused:
      break;
  }
  return "the rows cannot be written";
}

Fault storage_fault(const StorageError& error, std::string_view what) {
  return Fault{503, "store_unavailable", "",
               fmt::format("{} cannot be used now: {}. The log of the server has more.", what,
                           trouble_text(error.trouble()))};
}

Statement::Statement(Statement&& other) noexcept
    : file_(other.file_), statement_(std::exchange(other.statement_, nullptr)) {}

Statement::~Statement() {
  sqlite3_finalize(statement_);
}

Statement& Statement::bind(int index, std::string_view text) {
  // A null pointer would bind NULL.
  const char* const bytes = text.empty() ? "" : text.data();
  demand(sqlite3_bind_text64(statement_, index, bytes, text.size(), SQLITE_STATIC, SQLITE_UTF8) ==
             SQLITE_OK,
         file_);
  return *this;
}

Statement& Statement::bind(int index, std::int64_t value) {
  demand(sqlite3_bind_int64(statement_, index, value) == SQLITE_OK, file_);
  return *this;
}

bool Statement::step() {
  const int code = sqlite3_step(statement_);
  demand(code == SQLITE_ROW || code == SQLITE_DONE, file_);
  return code == SQLITE_ROW;
}

std::string Statement::text(int column) const {
  const void* const bytes = sqlite3_column_text(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  return bytes ? std::string(static_cast<const char*>(bytes), static_cast<std::size_t>(size)) : "";
}

std::int64_t Statement::integer(int column) const {
  return sqlite3_column_int64(statement_, column);
}

Database::Database(const std::string& path, const DatabaseKind& kind, int wait_ms) {
  make_private_file(path);
  const int code =
      sqlite3_open_v2(path.c_str(), &file_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  try {
    require(code == SQLITE_OK, "{} cannot be opened: {}", path, sqlite3_errmsg(file_));
    require(sqlite3_db_readonly(file_, "main") == 0, "{} may only be read, not written", path);
    sqlite3_extended_result_codes(file_, 1);
    sqlite3_busy_timeout(file_, wait_ms);
    // A file may come from elsewhere: its schema runs no function of ours.
    sqlite3_db_config(file_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    sqlite3_db_config(file_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    try {
      settle(path, kind);
    } catch (const StorageError& e) {
      fail(ErrorKind::kBadInput, "{} cannot be used for {}: {} ({})", path, kind.what,
           trouble_text(e.trouble()), e.what());
    }
  } catch (...) {
    sqlite3_close(file_);
    throw;
  }
}

// The tables of a new file; the marks of an old one.
void Database::settle(const std::string& path, const DatabaseKind& kind) {
  run("PRAGMA cell_size_check = ON");
  const std::int64_t application = pragma(*this, "PRAGMA application_id"),
                     version = pragma(*this, "PRAGMA user_version"),
                     num_tables = pragma(*this, "SELECT count(*) FROM sqlite_schema");
  if (application == 0 && num_tables == 0) {
    run("PRAGMA journal_mode = WAL");
    Transaction change(*this);
    // Another process may have been faster.
    if (pragma(*this, "SELECT count(*) FROM sqlite_schema") == 0) {
      run(kind.schema);
      run(fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}", kind.application,
                      kind.version)
              .c_str());
    }
    change.commit();
  } else {
    require(application == kind.application, "{} is a database with something else than {}", path,
            kind.what);
    require(version == kind.version,
            "{} has {} in version {} of its form; this program reads and writes version {}", path,
            kind.what, version, kind.version);
    run("PRAGMA journal_mode = WAL");
    Transaction(*this).commit();  // whether it can be written
  }
  run("PRAGMA synchronous = NORMAL");
  run("PRAGMA secure_delete = ON");
}

Database::~Database() {
  sqlite3_close(file_);
}

Statement Database::prepare(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  demand(sqlite3_prepare_v2(file_, sql.data(), static_cast<int>(sql.size()), &statement, nullptr) ==
             SQLITE_OK,
         file_);
  return Statement(file_, statement);
}

void Database::run(const char* sql) {
  demand(sqlite3_exec(file_, sql, nullptr, nullptr, nullptr) == SQLITE_OK, file_);
}

std::int64_t Database::changes() const {
  return sqlite3_changes64(file_);
}

Transaction::~Transaction() {
  if (!is_open_) return;
  try {
    file_.run("ROLLBACK");
  } catch (const StorageError&) {
    // SQLite has rolled back already, as after a full disk.
  }
}

void Transaction::commit() {
  file_.run("COMMIT");
  is_open_ = false;
}

}  // namespace sluice
