#include "server/core/recent_requests.h"

namespace sluice {

void RecentRequests::add(std::uint64_t engine_id, Entry entry) {
  std::lock_guard lock(mutex_);
  if (entries_.empty()) entries_.resize(kCapacity);
  entries_[engine_id % kCapacity] = {engine_id, std::move(entry)};
}

std::optional<RecentRequests::Entry> RecentRequests::find(std::uint64_t engine_id) const {
  std::lock_guard lock(mutex_);
  if (entries_.empty() || engine_id == 0) return std::nullopt;
  const auto& [id, entry] = entries_[engine_id % kCapacity];
  return id == engine_id ? std::optional(entry) : std::nullopt;
}

}  // namespace sluice
