#include "layers/weights/shared_experts.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <utility>

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

void SharedExperts::add(const Tensor& places, const Tensor& choices) {
  layers_.push_back({places, choices});
}

void SharedExperts::seal() {
  for (const Mapping& one : mappings_)
    check(mprotect(one.memory, one.bytes, PROT_READ) == 0, "experts cannot be made read-only: {}",
          std::strerror(errno));
}

std::vector<std::uint8_t> SharedExperts::deal(std::uint64_t lost) const {
  std::vector<std::uint8_t> owners;
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    const Tensor& choices = layers_[layer].choices;
    check(choices.defined(), "a rank deals experts whose choices it does not count");
    const std::vector<std::uint8_t> of_layer = dealt_experts(
        {choices.ptr<std::int64_t>(), static_cast<std::size_t>(choices.numel())}, num_ranks_, lost,
        static_cast<int>(layer % static_cast<std::size_t>(num_ranks_)));
    owners.insert(owners.end(), of_layer.begin(), of_layer.end());
  }
  return owners;
}

void SharedExperts::set_owners(std::span<const std::uint8_t> owners) {
  for (const Layer& layer : layers_) {
    const auto experts = static_cast<std::size_t>(layer.places.numel());
    check(owners.size() >= experts, "{} experts have owners, and a layer has {}", owners.size(),
          experts);
    for (std::size_t e = 0; e < experts; ++e)
      layer.places.ptr<std::int32_t>()[e] = owners[e] == rank_ ? static_cast<std::int32_t>(e) : -1;
    owners = owners.subspan(experts);
  }
  check(owners.empty(), "{} experts of no layer have owners", owners.size());
}

std::vector<std::uint8_t> dealt_experts(std::span<const std::int64_t> choices, int num_ranks,
                                        std::uint64_t lost, int first) {
  const auto experts = static_cast<int>(choices.size());
  check(experts % num_ranks == 0, "{} experts for {} ranks", experts, num_ranks);
  struct Rank {
    std::int64_t choices = 0;
    int experts = 0;
  };
  std::vector<Rank> ranks(static_cast<std::size_t>(num_ranks));
  std::vector<std::uint8_t> owners(choices.size());
  std::vector<std::size_t> left;  // experts without an owner
  const auto give = [&](std::size_t expert, int rank) {
    owners[expert] = static_cast<std::uint8_t>(rank);
    ranks[static_cast<std::size_t>(rank)].choices += choices[expert];
    ++ranks[static_cast<std::size_t>(rank)].experts;
  };
  for (std::size_t e = 0; e < choices.size(); ++e) {
    const int owner = static_cast<int>(e) / (experts / num_ranks);
    if (is_lost(lost, owner))
      left.push_back(e);
    else
      give(e, owner);
  }
  std::ranges::stable_sort(left, std::greater<>(), [&](std::size_t e) { return choices[e]; });
  for (const std::size_t e : left) {
    int least = -1;
    for (int i = 0; i < num_ranks; ++i) {
      const int rank = (first + i) % num_ranks;
      const auto load = [&](int r) {
        return std::pair(ranks[static_cast<std::size_t>(r)].choices,
                         ranks[static_cast<std::size_t>(r)].experts);
      };
      if (!is_lost(lost, rank) && (least < 0 || load(rank) < load(least))) least = rank;
    }
    check(least >= 0, "all {} ranks are lost", num_ranks);
    give(e, least);
  }
  return owners;
}

}  // namespace sluice
