// What the ranks that share a model must agree on before they serve it. Every rank makes the same
// calls.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/memory_plan.h"
#include "tensor/communicator.h"

namespace sluice {

// Error{kBadInput} on every rank where one has another `hash` of `what` ("weights"). With
// `ranks_of_node` below all, the message names the node, too.
void require_agreement(Communicator& communicator, std::string_view what, std::uint64_t hash,
                       int ranks_of_node = 0);

// The request that fits every rank: the largest needs, and the least memory. `num_sharers` ranks
// take theirs from the same device. Ranks that plan from it have the same pages.
MemoryRequest agreed_request(Communicator& communicator, int num_sharers, MemoryRequest request);

// plan_memory() of a stage of a pipeline, with as many pages and states as every stage has room
// for. Each stage has its own request, and the same groups with layers of its own.
MemoryPlan agreed_plan(Communicator& all_ranks, MemoryRequest request,
                       const std::vector<PageGroupSpec>& groups);

}  // namespace sluice
