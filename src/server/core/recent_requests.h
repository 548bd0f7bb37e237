// Which request of a client a request of the engine was, for the last ones: the prefix cache names
// requests by the engine's ids. Any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sluice {

class RecentRequests {
 public:
  struct Entry {
    std::string request_id;  // X-Request-Id
    std::size_t route = 0;   // index in the route table
    std::chrono::steady_clock::time_point arrival{};
  };

  void add(std::uint64_t engine_id, Entry entry);
  // Nothing for an id that was never added, or that later ones have displaced.
  std::optional<Entry> find(std::uint64_t engine_id) const;

 private:
  static constexpr std::size_t kCapacity = 4096;

  mutable std::mutex mutex_;
  // By engine_id % kCapacity, since the engine counts its ids; guarded by mutex_.
  std::vector<std::pair<std::uint64_t, Entry>> entries_;
};

}  // namespace sluice
