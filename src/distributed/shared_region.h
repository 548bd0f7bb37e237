// The memory that the ranks of one host share: where they post the parts of collectives and the
// rows for the next stage, whether they are alive, and why they end.
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
#include <exception>
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

// A rank is lost that has not posted its part of a collective, which therefore ends at no rank.
struct RanksLost : std::exception {
  const char* what() const noexcept override { return "a rank is lost"; }
};

class SharedRegion {
 public:
  // Bytes that a rank posts at once; a larger tensor is posted piece by piece.
  static constexpr std::int64_t kSlotBytes = 256 << 10;
  // Groups of ranks that a rank can make collectives with: all ranks, and those of its stage. They
  // take no turns with each other.
  enum Lane : std::uint8_t { kAllRanks, kStageRanks, kLanes };
  // A rank receives from the stage before it through a ring of so many pieces of so many bytes.
  static constexpr std::int64_t kPieceBytes = 1 << 20;
  static constexpr std::uint32_t kPieces = 16;

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

  // From now on the end of a rank beside the first is no failure.
  void outlive_ranks();
  bool outlives_ranks() const;
  // The process of a rank has ended. Collectives that it has posted its part of still end, at all
  // ranks; the next one throws RanksLost, at all ranks.
  void lose(int rank);
  std::uint64_t lost() const;  // bit r: rank r

  // By a thread of its own in each rank, several times a second.
  void beat(int rank);
  std::uint32_t beats(int rank) const;

  // Ranks of other hosts (distributed/hosts/): from now on what ranks of this host post rings a
  // bell, and one thread waits for it.
  void start_bell();
  // Waits until the bell has rung more often than `seen`, a tenth of a second at most. Returns how
  // often it has.
  std::uint32_t await_bell(std::uint32_t seen) const;

  // What a rank chose: the hash of step `index`, counted from 0. Kept for the last kKeptResults
  // steps.
  static constexpr std::uint32_t kKeptResults = 64;
  void put_result(int rank, std::uint32_t index, std::uint64_t hash);
  // Nothing where the rank is not that far.
  std::optional<std::uint64_t> result(int rank, std::uint32_t index) const;

 private:
  friend class SharedMemoryCommunicator;
  friend class SharedMemoryLink;
  friend class RegionMirror;
  struct Counter;
  struct Cell;
  struct Header;
  SharedRegion(int fd, Header* header, std::size_t bytes)
      : fd_(fd), header_(header), bytes_(bytes) {}
  // Sets a counter, and wakes those that wait for it.
  static void set(Counter& counter, std::uint32_t count);
  // The same by a rank of this host, so that other hosts learn of it.
  void advance(Counter& counter, std::uint32_t count);
  void ring();
  static std::uint32_t count_of(const Counter& counter);
  // Waits until a counter has reached `count`: spins for `spin_us`, then sleeps. Throws the
  // failure.
  void await(Counter& counter, std::uint32_t count, int spin_us) const;
  // The same in operation `count` - 1 of all ranks but those of `dropped`. Throws RanksLost.
  void await_posted(int rank, std::uint32_t count, std::uint64_t dropped, int spin_us) const;
  bool await_spinning(const Counter& counter, std::uint32_t count, int spin_us) const;
  // Operations that a rank has posted; pieces sent to a rank, and those that it has taken.
  Counter& posted(Lane lane, int rank) const;
  Counter& sent(int rank) const;
  Counter& taken(int rank) const;
  std::byte* slot(Lane lane, int rank, std::uint32_t operation) const;
  std::byte* piece(int rank, std::uint32_t index) const;
  // How many bytes of a slot and of a piece were written.
  std::uint32_t& slot_bytes(Lane lane, int rank, std::uint32_t operation) const;
  std::uint32_t& piece_bytes(int rank, std::uint32_t index) const;

  int fd_ = -1;
  Header* header_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace sluice
