#include "distributed/shared_region.h"

#include <fcntl.h>
#include <immintrin.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <new>
#include <utility>

namespace sluice {
namespace {

constexpr std::uint64_t kMagic = 0x736c7569'63650004ull;  // the last digits: version of the layout
constexpr std::size_t kMaxText = 1024;
constexpr std::size_t kLine = 64;  // bytes of a cache line
// A sleeper looks for a failure this often, also when nobody wakes it.
constexpr std::int64_t kNapNs = 100'000'000;

using Word = std::atomic<std::uint32_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 4);

void sleep_on(const Word& word, std::uint32_t seen) {
  const timespec nap{.tv_sec = 0, .tv_nsec = kNapNs};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &nap, nullptr, 0);
}
void wake(const Word& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}
bool has_reached(std::uint32_t posted, std::uint32_t count) {
  return static_cast<std::int32_t>(posted - count) >= 0;  // counts go round
}

}  // namespace

// A count that ranks wait for; counts go round.
struct SharedRegion::Counter {
  alignas(kLine) Word count{0};
  alignas(kLine) Word sleepers{0};
};

// What belongs to one rank.
struct SharedRegion::Cell {
  Counter posted[kLanes];
  Counter sent, taken;
  alignas(kLine) std::uint32_t slot_bytes[kLanes][2] = {};
  std::uint32_t piece_bytes[kPieces] = {};
  alignas(kLine) Word beats{0};
  alignas(kLine) std::atomic<std::uint32_t> num_results{0};
  std::atomic<std::uint64_t> results[kKeptResults];
};

struct SharedRegion::Header {
  std::uint64_t magic = 0;
  std::uint32_t size = 0;
  alignas(kLine) Word claimed{0};  // by the first failure
  Word failed{0};                  // the failure stands there
  std::uint32_t failure_kind = 0;
  std::uint32_t failure_length = 0;
  char failure_text[kMaxText] = {};
  alignas(kLine) Word outlives_ranks{0};
  std::atomic<std::uint64_t> lost{0};
  alignas(kLine) Word has_bell{0};
  Counter bell;
  Cell cells[kMaxRanks];
  // [kLanes][2][size] slots and [size][kPieces] pieces follow. Memory that nobody writes is never
  // there.
  static std::size_t slots_bytes(int size) {
    return 2 * kLanes * static_cast<std::size_t>(size) * kSlotBytes;
  }
  static std::size_t total_bytes(int size) {
    return header_bytes() + slots_bytes(size) +
           static_cast<std::size_t>(size) * kPieces * kPieceBytes;
  }
  static std::size_t header_bytes() { return (sizeof(Header) + 4095) / 4096 * 4096; }
};

SharedRegion SharedRegion::create(int size) {
  sluice::check(size >= 1 && size <= kMaxRanks, "a region for {} ranks", size);
  const int fd = memfd_create("sluice-ranks", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const std::size_t bytes = Header::total_bytes(size);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0)
    sluice::fail(ErrorKind::kNoResources, "no shared memory for {} ranks: {}", size,
                 std::strerror(errno));
  fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED)
    sluice::fail(ErrorKind::kNoResources, "the shared memory of {} ranks cannot be mapped: {}",
                 size, std::strerror(errno));
  auto* header = new (memory) Header;
  header->size = static_cast<std::uint32_t>(size);
  header->magic = kMagic;
  return SharedRegion(fd, header, bytes);
}

SharedRegion SharedRegion::attach(int fd) {
  struct stat info{};
  const bool there = fstat(fd, &info) == 0;
  const auto bytes = static_cast<std::size_t>(std::max<off_t>(0, info.st_size));
  if (!there || bytes < Header::total_bytes(1))
    sluice::fail(ErrorKind::kFatal, "descriptor {} is no shared memory of ranks", fd);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED)
    sluice::fail(ErrorKind::kFatal, "the shared memory of the ranks cannot be mapped: {}",
                 std::strerror(errno));
  auto* header = static_cast<Header*>(memory);
  SharedRegion region(fd, header, bytes);
  if (header->magic != kMagic || header->size < 1 || header->size > kMaxRanks ||
      bytes != Header::total_bytes(static_cast<int>(header->size)))
    sluice::fail(ErrorKind::kFatal, "the shared memory of the ranks is of another version");
  return region;
}

SharedRegion::SharedRegion(SharedRegion&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      header_(std::exchange(other.header_, nullptr)),
      bytes_(other.bytes_) {}

SharedRegion::~SharedRegion() {
  if (header_ != nullptr) munmap(header_, bytes_);
  if (fd_ >= 0) close(fd_);
}

int SharedRegion::size() const {
  return static_cast<int>(header_->size);
}

void SharedRegion::fail(ErrorKind kind, std::string_view text) {
  if (header_->claimed.exchange(1) != 0) return;
  header_->failure_kind = static_cast<std::uint32_t>(kind);
  header_->failure_length = static_cast<std::uint32_t>(std::min(text.size(), kMaxText));
  std::memcpy(header_->failure_text, text.data(), header_->failure_length);
  header_->failed.store(1);
  for (int rank = 0; rank < size(); ++rank) {
    Cell& cell = header_->cells[rank];
    for (const Counter& counter : cell.posted) wake(counter.count);
    wake(cell.sent.count);
    wake(cell.taken.count);
  }
  ring();
}

std::optional<RankFailure> SharedRegion::failure() const {
  if (header_->failed.load(std::memory_order_acquire) == 0) return std::nullopt;
  const auto kind = std::min(header_->failure_kind, static_cast<std::uint32_t>(ErrorKind::kFatal));
  const std::size_t length = std::min<std::size_t>(header_->failure_length, kMaxText);
  return RankFailure{static_cast<ErrorKind>(kind), std::string(header_->failure_text, length)};
}

void SharedRegion::check() const {
  if (const std::optional<RankFailure> why = failure()) throw Error(why->kind, why->text);
}

void SharedRegion::outlive_ranks() {
  header_->outlives_ranks.store(1);
}

bool SharedRegion::outlives_ranks() const {
  return header_->outlives_ranks.load() != 0;
}

void SharedRegion::lose(int rank) {
  header_->lost.fetch_or(std::uint64_t{1} << rank);
  for (int other = 0; other < size(); ++other)
    for (const Counter& counter : header_->cells[other].posted) wake(counter.count);
}

std::uint64_t SharedRegion::lost() const {
  return header_->lost.load(std::memory_order_acquire);
}

void SharedRegion::beat(int rank) {
  header_->cells[rank].beats.fetch_add(1, std::memory_order_relaxed);
}

std::uint32_t SharedRegion::beats(int rank) const {
  return header_->cells[rank].beats.load(std::memory_order_relaxed);
}

void SharedRegion::put_result(int rank, std::uint32_t index, std::uint64_t hash) {
  Cell& cell = header_->cells[rank];
  cell.results[index % kKeptResults].store(hash, std::memory_order_relaxed);
  cell.num_results.store(index + 1, std::memory_order_release);
}

std::optional<std::uint64_t> SharedRegion::result(int rank, std::uint32_t index) const {
  const Cell& cell = header_->cells[rank];
  if (!has_reached(cell.num_results.load(std::memory_order_acquire), index + 1))
    return std::nullopt;
  return cell.results[index % kKeptResults].load(std::memory_order_relaxed);
}

void SharedRegion::start_bell() {
  header_->has_bell.store(1);
}

void SharedRegion::ring() {
  if (header_->has_bell.load(std::memory_order_relaxed) == 0) return;
  Counter& bell = header_->bell;
  bell.count.fetch_add(1);
  if (bell.sleepers.load() != 0) wake(bell.count);
}

std::uint32_t SharedRegion::await_bell(std::uint32_t seen) const {
  Counter& bell = header_->bell;
  bell.sleepers.fetch_add(1);
  if (bell.count.load() == seen) sleep_on(bell.count, seen);
  bell.sleepers.fetch_sub(1);
  return bell.count.load();
}

void SharedRegion::advance(Counter& counter, std::uint32_t count) {
  set(counter, count);
  ring();
}

std::uint32_t SharedRegion::count_of(const Counter& counter) {
  return counter.count.load(std::memory_order_acquire);
}

void SharedRegion::set(Counter& counter, std::uint32_t count) {
  counter.count.store(count);
  // Both are sequentially consistent: a rank that goes to sleep after this load sees `count`.
  if (counter.sleepers.load() != 0) wake(counter.count);
}

bool SharedRegion::await_spinning(const Counter& counter, std::uint32_t count, int spin_us) const {
  const auto is_there = [&] { return has_reached(count_of(counter), count); };
  if (is_there()) return true;
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::microseconds(spin_us);
  do {
    // One pause may take a hundred cycles: check after each, and read the clock now and then.
    for (int i = 0; i < 64; ++i) {
      if (is_there()) return true;
      _mm_pause();
    }
  } while (Clock::now() < deadline);
  return false;
}

void SharedRegion::await(Counter& counter, std::uint32_t count, int spin_us) const {
  if (await_spinning(counter, count, spin_us)) return;
  for (;;) {
    check();
    counter.sleepers.fetch_add(1);
    const std::uint32_t seen = counter.count.load();
    if (!has_reached(seen, count)) sleep_on(counter.count, seen);
    counter.sleepers.fetch_sub(1);
    if (has_reached(count_of(counter), count)) return;
  }
}

void SharedRegion::await_posted(int rank, std::uint32_t count, std::uint64_t dropped,
                                int spin_us) const {
  Counter& counter = posted(kAllRanks, rank);
  if (await_spinning(counter, count, spin_us)) return;
  for (;;) {
    check();
    // What a lost rank has posted does not change any more. If it is less than `count`, no rank
    // ends this operation. Else no living rank is stuck in an earlier one, and all end it.
    const std::uint64_t lost = this->lost() & ~dropped;
    for (int other = 0; lost != 0 && other < size(); ++other)
      if ((lost >> other & 1) != 0 && !has_reached(count_of(posted(kAllRanks, other)), count))
        throw RanksLost();
    counter.sleepers.fetch_add(1);
    const std::uint32_t seen = counter.count.load();
    if (!has_reached(seen, count)) sleep_on(counter.count, seen);
    counter.sleepers.fetch_sub(1);
    if (has_reached(count_of(counter), count)) return;
  }
}

SharedRegion::Counter& SharedRegion::posted(Lane lane, int rank) const {
  return header_->cells[rank].posted[lane];
}

SharedRegion::Counter& SharedRegion::sent(int rank) const {
  return header_->cells[rank].sent;
}

SharedRegion::Counter& SharedRegion::taken(int rank) const {
  return header_->cells[rank].taken;
}

std::byte* SharedRegion::slot(Lane lane, int rank, std::uint32_t operation) const {
  const std::size_t index =
      (2 * std::size_t{lane} + operation % 2) * header_->size + static_cast<std::size_t>(rank);
  return reinterpret_cast<std::byte*>(header_) + Header::header_bytes() + index * kSlotBytes;
}

std::uint32_t& SharedRegion::slot_bytes(Lane lane, int rank, std::uint32_t operation) const {
  return header_->cells[rank].slot_bytes[lane][operation % 2];
}

std::uint32_t& SharedRegion::piece_bytes(int rank, std::uint32_t index) const {
  return header_->cells[rank].piece_bytes[index % kPieces];
}

std::byte* SharedRegion::piece(int rank, std::uint32_t index) const {
  const std::size_t number = static_cast<std::size_t>(rank) * kPieces + index % kPieces;
  return reinterpret_cast<std::byte*>(header_) + Header::header_bytes() +
         Header::slots_bytes(size()) + number * kPieceBytes;
}

}  // namespace sluice
