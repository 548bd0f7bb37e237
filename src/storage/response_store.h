// The answers that clients may ask for again: GET /v1/responses/ID and `previous_response_id`.
//
//   store.put(record);
//   Result<std::shared_ptr<const StoredResponse>> found = store.find(id, owner);
//
// In memory alone, or with a file that keeps them longer than the server runs. Both are bound in
// number and bytes: memory lets go what was not asked for longest, the file what is oldest. A
// response belongs to its owner; for others it does not exist. Any thread. put() and erase() never
// wait for the disk; find() reads the file where memory has no such response.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "storage/response_file.h"

namespace sluice {

class ResponseStore {
 public:
  struct Limits {
    std::size_t max_bytes = std::size_t{64} << 20;
    std::size_t max_responses = 4096;
  };
  explicit ResponseStore(const Limits& memory);
  ResponseStore() : ResponseStore(Limits{}) {}
  // Error{kBadInput} where the file cannot be used.
  ResponseStore(const Limits& memory, const std::string& path, const ResponseFile::Limits& file);
  ~ResponseStore();

  // Stores it, or replaces the one with its id. Only a response that is done goes to the file.
  // False: it alone is larger than the bound of memory and there is no file for it.
  bool put(std::shared_ptr<const StoredResponse> record);
  // Null: there is none of that id and owner. A fault: the file cannot be read.
  Result<std::shared_ptr<const StoredResponse>> find(const std::string& id,
                                                     const std::string& owner);
  // Whether there was one goes to `done`, or the fault of the file, where it then still is. `done`
  // is called on this thread or another, once, and does not throw.
  void erase(const std::string& id, const std::string& owner,
             std::function<void(Result<bool>)> done);

  struct Figures {
    std::size_t memory_responses = 0, memory_bytes = 0;
    bool has_file = false;
    std::int64_t file_responses = 0, file_bytes = 0;
    std::size_t waiting_bytes = 0;     // for the file
    std::uint64_t write_failures = 0;  // tries that failed
    std::uint64_t unwritten = 0;       // responses that the file never got
  };
  Figures figures() const;

 private:
  using Record = std::shared_ptr<const StoredResponse>;
  using List = std::list<Record>;
  using Key = std::pair<std::string, std::string>;  // id, owner

  void remove(List::iterator at);
  bool keep_in_memory(Record record);
  Record find_in_memory(const std::string& id, const std::string& owner);
  void write(Record record);

  const Limits limits_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  List records_;  // the newest first
  std::unordered_map<std::string, List::iterator> by_id_;
  std::size_t bytes_ = 0;
  std::unordered_map<std::string, Record> waiting_;  // for the file
  std::set<Key> leaving_;                            // being erased from the file
  std::uint64_t erasures_ = 0;
  std::uint64_t unwritten_ = 0;

  std::unique_ptr<ResponseFile> file_;  // null: memory alone. Last: its thread calls back
};

}  // namespace sluice
