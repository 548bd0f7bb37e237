#include "server/core/response_store.h"

namespace sluice {

ResponseStore::ResponseStore(const Limits& limits) : limits_(limits) {}

void ResponseStore::remove(List::iterator at) {
  bytes_ -= (*at)->bytes();
  by_id_.erase((*at)->id);
  records_.erase(at);
}

bool ResponseStore::put(std::shared_ptr<const StoredResponse> record) {
  const std::size_t bytes = record->bytes();
  const std::lock_guard lock(mutex_);
  if (const auto found = by_id_.find(record->id); found != by_id_.end()) remove(found->second);
  if (bytes > limits_.max_bytes) return false;
  records_.push_front(std::move(record));
  by_id_.emplace(records_.front()->id, records_.begin());
  bytes_ += bytes;
  while (bytes_ > limits_.max_bytes || records_.size() > limits_.max_responses)
    remove(std::prev(records_.end()));
  return true;
}

std::shared_ptr<const StoredResponse> ResponseStore::find(const std::string& id,
                                                          std::uint64_t key_id) {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end() || (*found->second)->key_id != key_id) return nullptr;
  records_.splice(records_.begin(), records_, found->second);
  return records_.front();
}

bool ResponseStore::erase(const std::string& id, std::uint64_t key_id) {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end() || (*found->second)->key_id != key_id) return false;
  remove(found->second);
  return true;
}

std::size_t ResponseStore::size() const {
  const std::lock_guard lock(mutex_);
  return records_.size();
}

std::size_t ResponseStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace sluice
