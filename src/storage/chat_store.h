// The chats of the server's page in a file of SQLite.
//
//   store.save({.id = "c1", .title = "Hello", .updated = 1}, owner, body, done);
//   Result<std::vector<ChatHead>> heads = store.list(owner);
//
// A chat is a JSON text that only the page understands. It belongs to its owner; for others it does
// not exist. Chats are people's own, so nothing is let go by itself: what goes beyond a bound is
// refused. Any thread. Writing is a thread's of its own; `done` is called there, once, and does not
// throw. Reading reads the file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "storage/database.h"
#include "storage/database_writer.h"

namespace sluice {

struct ChatHead {
  std::string id, title;
  std::int64_t updated = 0;  // milliseconds since 1970, as the page says
};

class ChatStore {
 public:
  struct Limits {  // of one owner
    std::int64_t max_bytes = std::int64_t{1} << 30;
    std::int64_t max_chats = 20'000;
  };
  // Error{kBadInput}: the file cannot be used, and why.
  ChatStore(const std::string& path, const Limits& limits);

  // The newest first.
  Result<std::vector<ChatHead>> list(const std::string& owner);
  // Null: there is none of that id and owner.
  Result<std::optional<std::string>> load(const std::string& id, const std::string& owner);
  // Stores it, or replaces the one with its id.
  void save(ChatHead head, const std::string& owner, std::string body,
            std::function<void(std::optional<Fault>)> done);
  // `done` hears whether there was one.
  void erase(const std::string& id, const std::string& owner,
             std::function<void(Result<bool>)> done);

 private:
  template <class T, class Read>
  Result<T> read(Read&& read);

  const Limits limits_;
  std::mutex mutex_;
  Database reader_;  // guarded by mutex_
  DatabaseWriter writer_;
};

}  // namespace sluice
