// Responses in a file of SQLite (ResponseStore is what servers use).
//
// The file is bound in number and in bytes of contents; the oldest responses go first. Writing is a
// thread's of its own, in the order of the calls. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/error.h"
#include "storage/database.h"
#include "storage/database_writer.h"

namespace sluice {

struct StoredResponse {
  std::string id;
  std::string owner;        // whose key made it; empty: the server has no keys
  std::string previous_id;  // empty: the conversation begins with it
  // JSON texts: the response as clients see it, its input items, and the messages that it adds to
  // its conversation, its answer included.
  std::string response, input_items, messages;
  bool is_done = false;  // its answer is complete

  std::size_t bytes() const {
    return sizeof(StoredResponse) + id.size() + owner.size() + previous_id.size() +
           response.size() + input_items.size() + messages.size();
  }
};

class ResponseFile {
 public:
  struct Limits {
    std::int64_t max_bytes = std::int64_t{1} << 30;
    std::int64_t max_responses = 100'000;
    std::size_t max_waiting_bytes = std::size_t{64} << 20;  // that are not written yet
  };
  // Error{kBadInput}: the file cannot be used, and why.
  ResponseFile(const std::string& path, const Limits& limits);

  // False: too much waits to be written. Else `done` hears, on the writer's thread, whether the
  // response is in the file.
  bool put(std::shared_ptr<const StoredResponse> record, std::function<void(bool)> done);
  Result<std::shared_ptr<const StoredResponse>> find(const std::string& id,
                                                     const std::string& owner);
  // `done` hears on the writer's thread whether there was one.
  void erase(const std::string& id, const std::string& owner,
             std::function<void(Result<bool>)> done);

  struct Totals {
    std::int64_t responses = 0, bytes = 0;  // as of the last change
    std::size_t waiting_bytes = 0;
    std::uint64_t failures = 0;
  };
  Totals totals() const;

 private:
  void insert(Database& file, const StoredResponse& record);
  void let_go_of_oldest(Database& file);
  void read_totals(Database& file);

  const Limits limits_;
  std::atomic<std::int64_t> num_responses_{0}, num_bytes_{0};
  std::mutex mutex_;
  // Guarded by mutex_.
  Database reader_;
  std::optional<StorageTrouble> trouble_;  // of reading, that the log knows of

  DatabaseWriter writer_;
};

}  // namespace sluice
