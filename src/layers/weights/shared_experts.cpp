#include "layers/weights/shared_experts.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace sluice {
namespace {

constexpr std::int64_t kAlignment = 2 << 20;  // of stacks in the file: a huge page

bool is_lost(std::uint64_t lost, int rank) {
  return (lost >> rank & 1) != 0;
}

}  // namespace

SharedExperts::SharedExperts(int fd, int rank, int num_ranks)
    : fd_(fd), rank_(rank), num_ranks_(num_ranks) {}

SharedExperts::~SharedExperts() {
  for (const Mapping& one : mappings_) munmap(one.memory, one.bytes);
  if (fd_ >= 0) close(fd_);
}

std::byte* SharedExperts::take(std::int64_t bytes) {
  const std::int64_t all = bytes * num_ranks_;
  // The file grows as far as any rank has come, and never shrinks.
  if (fallocate(fd_, 0, end_ + all - 1, 1) != 0)
    fail(ErrorKind::kNoResources, "no shared memory for {} bytes of experts: {}", all,
         std::strerror(errno));
  void* memory =
      mmap(nullptr, static_cast<std::size_t>(all), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, end_);
  if (memory == MAP_FAILED)
    fail(ErrorKind::kNoResources, "{} bytes of experts cannot be mapped: {}", all,
         std::strerror(errno));
  (void)madvise(memory, static_cast<std::size_t>(all), MADV_HUGEPAGE);  // where the system has them
  end_ += (all + kAlignment - 1) / kAlignment * kAlignment;
  mappings_.push_back({static_cast<std::byte*>(memory), static_cast<std::size_t>(all)});
  return mappings_.back().memory + rank_ * bytes;
}

Tensor SharedExperts::whole(const Tensor& own) const {
  if (!own.defined()) return own;
  std::byte* const first = static_cast<std::byte*>(own.data) - rank_ * own.bytes();
  check(std::ranges::any_of(mappings_, [&](const Mapping& one) { return one.memory == first; }),
        "{} is no part of a stack of all ranks", own.describe());
  Tensor all = own;
  all.data = first;
  all.shape[0] *= num_ranks_;
  return all;
}

void SharedExperts::add(const Tensor& places) {
  places_.push_back(places);
  deal(0);
}

void SharedExperts::seal() {
  for (const Mapping& one : mappings_)
    check(mprotect(one.memory, one.bytes, PROT_READ) == 0, "experts cannot be made read-only: {}",
          std::strerror(errno));
}

void SharedExperts::deal(std::uint64_t lost) {
  for (std::size_t layer = 0; layer < places_.size(); ++layer) {
    const Tensor& places = places_[layer];
    const std::vector<int> owners =
        dealt_experts(static_cast<int>(places.numel()), num_ranks_, lost,
                      static_cast<int>(layer % static_cast<std::size_t>(num_ranks_)));
    for (std::size_t e = 0; e < owners.size(); ++e)
      places.ptr<std::int32_t>()[e] = owners[e] == rank_ ? static_cast<std::int32_t>(e) : -1;
  }
}

std::vector<int> dealt_experts(int experts, int num_ranks, std::uint64_t lost, int first) {
  check(experts % num_ranks == 0, "{} experts for {} ranks", experts, num_ranks);
  std::vector<int> owners, counts(static_cast<std::size_t>(num_ranks));
  for (int e = 0; e < experts; ++e) owners.push_back(e / (experts / num_ranks));
  for (const int owner : owners) ++counts[static_cast<std::size_t>(owner)];
  for (int& owner : owners) {
    if (!is_lost(lost, owner)) continue;
    int least = -1;
    for (int i = 0; i < num_ranks; ++i) {
      const int rank = (first + i) % num_ranks;
      if (is_lost(lost, rank)) continue;
      if (least < 0 ||
          counts[static_cast<std::size_t>(rank)] < counts[static_cast<std::size_t>(least)])
        least = rank;
    }
    check(least >= 0, "all {} ranks are lost", num_ranks);
    owner = least;
    ++counts[static_cast<std::size_t>(least)];
  }
  return owners;
}

}  // namespace sluice
