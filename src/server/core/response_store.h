// The answers that clients may ask for again: GET /v1/responses/ID and `previous_response_id`.
//
//   store.put(record);
//   std::shared_ptr<const StoredResponse> found = store.find(id, request.key_id);
//
// In memory, so they end with the server. Bound in number and bytes: those not asked for longest go
// first. A response belongs to the key that made it; to other keys it does not exist. Any thread.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace sluice {

struct StoredResponse {
  std::string id;
  std::uint64_t key_id = 0;
  std::string previous_id;  // empty: the conversation begins with it
  // JSON texts: the response as clients see it, its input items, and the messages that it adds to
  // its conversation, its answer included.
  std::string response, input_items, messages;
  bool is_done = false;  // its answer is complete

  std::size_t bytes() const {
    return sizeof(StoredResponse) + id.size() + previous_id.size() + response.size() +
           input_items.size() + messages.size();
  }
};

class ResponseStore {
 public:
  struct Limits {
    std::size_t max_bytes = std::size_t{64} << 20;
    std::size_t max_responses = 4096;
  };
  explicit ResponseStore(const Limits& limits);
  ResponseStore() : ResponseStore(Limits{}) {}

  // Stores it, or replaces the one with its id. False: it alone is larger than the bound.
  bool put(std::shared_ptr<const StoredResponse> record);
  // Null: there is none of that id and key.
  std::shared_ptr<const StoredResponse> find(const std::string& id, std::uint64_t key_id);
  bool erase(const std::string& id, std::uint64_t key_id);
  std::size_t size() const;
  std::size_t bytes() const;

 private:
  using List = std::list<std::shared_ptr<const StoredResponse>>;
  void remove(List::iterator at);

  const Limits limits_;
  mutable std::mutex mutex_;
  List records_;  // the newest first
  std::unordered_map<std::string, List::iterator> by_id_;
  std::size_t bytes_ = 0;  // all guarded by mutex_
};

}  // namespace sluice
