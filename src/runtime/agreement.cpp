#include "runtime/agreement.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"

namespace sluice {
namespace {

// [size * N]: the numbers of every rank.
template <std::size_t N>
std::vector<std::int64_t> gather(Communicator& communicator, std::array<std::int64_t, N> own) {
  std::vector<std::int64_t> all(N * static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(
      Tensor::dense(own.data(), DType::kI64, {static_cast<std::int64_t>(N)}),
      Tensor::dense(all.data(), DType::kI64, {static_cast<std::int64_t>(all.size())}));
  return all;
}

}  // namespace

void require_agreement(Communicator& communicator, std::string_view what, std::uint64_t hash,
                       int ranks_of_node) {
  const std::vector<std::int64_t> all = gather<1>(communicator, {static_cast<std::int64_t>(hash)});
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    require(all[rank] == all[0],
            "rank {}{} does not have the {} of rank 0; give all ranks the same files and options",
            rank,
            ranks_of_node > 0 && ranks_of_node < communicator.size()
                ? fmt::format(" (node {})", static_cast<int>(rank) / ranks_of_node)
                : "",
            what);
}

MemoryRequest agreed_request(Communicator& communicator, int num_sharers, MemoryRequest request) {
  constexpr std::size_t kNumbers = 4;
  const std::vector<std::int64_t> all =
      gather<kNumbers>(communicator, {request.weight_bytes, request.activation_bytes,
                                      request.buffer_bytes, request.available_bytes});
  for (std::size_t i = 0; i < all.size(); i += kNumbers) {
    request.weight_bytes = std::max(request.weight_bytes, all[i]);
    request.activation_bytes = std::max(request.activation_bytes, all[i + 1]);
    request.buffer_bytes = std::max(request.buffer_bytes, all[i + 2]);
    request.available_bytes = std::min(request.available_bytes, all[i + 3]);
  }
  request.available_bytes /= num_sharers;
  return request;
}

MemoryPlan agreed_plan(Communicator& all_ranks, MemoryRequest request,
                       const std::vector<PageGroupSpec>& groups) {
  const MemoryPlan own = plan_memory(request, groups);
  constexpr std::size_t kNumbers = 2;
  const std::vector<std::int64_t> all =
      gather<kNumbers>(all_ranks, {own.max_total_tokens, own.num_states});
  request.kv.max_total_tokens = own.max_total_tokens;
  request.kv.max_states = own.num_states;
  for (std::size_t i = 0; i < all.size(); i += kNumbers) {
    request.kv.max_total_tokens = std::min(request.kv.max_total_tokens, all[i]);
    request.kv.max_states = std::min(request.kv.max_states, all[i + 1]);
  }
  return plan_memory(request, groups);
}

}  // namespace sluice
