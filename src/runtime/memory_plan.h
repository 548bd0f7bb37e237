// Where memory goes, decided before any of it is taken.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attention/kv_pool.h"
#include "tensor/host_memory.h"

namespace sluice {

// Share of a GPU's memory for weights and KV cache unless --mem-fraction-static says otherwise: the
// rest is for activations, libraries and the driver.
inline constexpr double kGpuFraction = 0.88;

struct MemoryPlan {
  std::int64_t weight_bytes = 0;        // as they lie in memory
  std::int64_t activation_bytes = 0;    // the arena of a worst-case step
  std::int64_t buffer_bytes = 0;        // logits, page tables and other fixed buffers
  std::int64_t kv_bytes = 0;            // of pages and states
  std::int64_t kv_bytes_per_token = 0;  // in all groups
  // Of these, bytes in groups that keep the tokens of a window or chunk alone.
  std::int64_t window_bytes_per_token = 0;
  // KV capacity, whole pages: of the groups that keep every token
  std::int64_t max_total_tokens = 0;
  std::int64_t available_bytes = 0;  // what the machine had when the plan was made
  std::vector<std::int64_t> pages;   // by page group; states where the last group is of states
  std::int64_t num_states = 0;       // of recurrent layers
  std::int64_t state_bytes = 0;      // of one

  // One line for the log.
  std::string describe() const;
};

// How large steps get.
struct Limits {
  int max_running_requests = 1;  // sequences of a step, and slots
  std::int64_t max_step_tokens = 1;
  int steps_in_flight = 1;  // launched and not collected, 1 or 2
  // Decode rows and drafts of a step in which each is laid out as a decode row; 0: rows of one
  // sequence stay together.
  std::int64_t max_draft_rows = 0;
  // Drafts of one sequence in such a step; negative: not known.
  std::int64_t max_sequence_drafts = -1;
};

// What the KV cache may take.
struct KvPolicy {
  double mem_fraction_static = 0;     // share of memory for weights and KV together; 0: automatic
  std::int64_t max_total_tokens = 0;  // 0: as many as memory allows
  std::int64_t max_states = 0;        // states of recurrent layers; 0: by state_ratio
  double state_ratio = 0.9;           // bytes of states, as a part of those of pages
  // pages of a window's or chunk's group, as a part of those that keep every token
  double window_ratio = 1;
};

struct MemoryRequest {
  std::int64_t weight_bytes = 0;
  std::int64_t activation_bytes = 0;
  std::int64_t buffer_bytes = 0;
  std::int64_t available_bytes = 0;  // with the weights already in place
  std::int64_t context_length = 0;
  Limits limits;
  KvPolicy kv;
};

// Layers with a window or chunk keep its tokens alone, so beside a group that keeps every token
// theirs has fewer pages: `window_ratio` of those, no more than twice what max_running_requests
// sequences hold while a step of max_step_tokens is computed (the rest is the prefix cache's), no
// fewer than one sequence needs. What that saves goes to all groups.
//
// Models with recurrent layers keep one state for each running sequence and more for prefixes that
// may be used again. Their states take state_ratio / (1 + state_ratio) of the pool, all of it where
// nothing else is kept, and are no more than four for each of max_running_requests; the rest goes
// to pages. With fewer states than requests, requests wait.
//
// Gives the KV pool what is left. Automatic means half of what is left, at most 4 GiB, and never
// more than max_running_requests x context_length tokens can fill. Error{kNoResources}, with the
// numbers and what to change, when not even one sequence of 1,024 tokens (or of the context length,
// if that is less) fits.
MemoryPlan plan_memory(const MemoryRequest& request, const std::vector<PageGroupSpec>& groups);

// The plan's parts, for what is asked before a start. `groups` are those of pages.
//
// Pages of each group where those that keep every token have `pages`.
std::vector<std::int64_t> pages_by_group(const MemoryRequest& request,
                                         const std::vector<PageGroupSpec>& groups,
                                         std::int64_t pages);
// Bytes of so many pages of each group.
std::int64_t bytes_of(const std::vector<PageGroupSpec>& groups,
                      const std::vector<std::int64_t>& pages);
// The largest number of pages that a sequence of `tokens` tokens holds in a group.
std::int64_t pages_of_sequence(const PageGroupSpec& group, std::int64_t tokens);

// "1.5 GiB"
std::string format_bytes(std::int64_t bytes);

}  // namespace sluice
