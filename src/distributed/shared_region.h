// The memory that the ranks of one host share: where they post the parts of collectives, whether
// they are alive, and why they end.
//
//   SharedRegion region = SharedRegion::create(2);      // rank 0; region.fd() goes to the others
//   SharedRegion region = SharedRegion::attach(fd);     // another rank
//   SharedMemoryCommunicator communicator(region, rank);
//
// A file of memory without a name: it ends with the last process that has it. Its layout is fixed,
// and attach() checks it. The members may be called by any thread of any process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace sluice {

inline constexpr int kMaxRanks = 64;

// Why the ranks end.
struct RankFailure {
  ErrorKind kind = ErrorKind::kFatal;
  std::string text;
};

class SharedRegion {
 public:
  // Bytes that a rank posts at once; a larger tensor is posted piece by piece.
  static constexpr std::int64_t kSlotBytes = 256 << 10;

  // For 1 to kMaxRanks ranks. Error{kNoResources}: the system has no such memory.
  static SharedRegion create(int size);
  // Takes the descriptor. Error{kFatal}: it is no region of this version.
  static SharedRegion attach(int fd);
  SharedRegion(SharedRegion&& other) noexcept;
  SharedRegion& operator=(SharedRegion&&) = delete;
  ~SharedRegion();

  int size() const;
  int fd() const { return fd_; }

  // The first call is kept, and ends the waits of every rank. A long text is cut.
  void fail(ErrorKind kind, std::string_view text);
  std::optional<RankFailure> failure() const;
  // Throws the failure, if there is one.
  void check() const;

  // By a thread of its own in each rank, several times a second.
  void beat(int rank);
  std::uint32_t beats(int rank) const;

  // What a rank chose: the hash of step `index`, counted from 0. Kept for the last kKeptResults
  // steps.
  static constexpr std::uint32_t kKeptResults = 64;
  void put_result(int rank, std::uint32_t index, std::uint64_t hash);
  // Nothing where the rank is not that far.
  std::optional<std::uint64_t> result(int rank, std::uint32_t index) const;

 private:
  friend class SharedMemoryCommunicator;
  struct Cell;
  struct Header;
  SharedRegion(int fd, Header* header, std::size_t bytes)
      : fd_(fd), header_(header), bytes_(bytes) {}
  // Says that a rank has posted its operations before `count`, and wakes those that wait.
  void post(int rank, std::uint32_t count);
  // Waits until `rank` has: spins for `spin_us`, then sleeps. Throws the failure.
  void await(int rank, std::uint32_t count, int spin_us) const;
  std::byte* slot(int rank, std::uint32_t operation) const;

  int fd_ = -1;
  Header* header_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace sluice
