#include "cli/models/fit.h"

#include <algorithm>

#include "base/error.h"

namespace sluice {
namespace {

constexpr std::int64_t kShortRequest = 1024;  // what the engine asks of a KV cache at least
constexpr std::int64_t kLengths[] = {2048, 8192, 32768};

std::int64_t pages(std::int64_t tokens) {
  return (tokens + kPageSize - 1) / kPageSize;
}

// A token's KV and a sequence's state as one plane of bytes each: the memory plan looks at nothing
// else.
std::vector<PageGroupSpec> one_plane_each(std::int64_t bytes_per_token, std::int64_t state_bytes) {
  std::vector<PageGroupSpec> groups;
  const auto add = [&](const char* name, Retention retention, std::int64_t bytes) {
    const PlaneSpec plane{.name = name, .dtype = DType::kU8, .row_elements = bytes, .layers = {0}};
    if (bytes > 0) groups.push_back({{.name = name, .retention = retention, .span = 0}, {plane}});
  };
  add("full", Retention::kFull, bytes_per_token);
  add("state", Retention::kState, state_bytes);
  return groups;
}

}  // namespace

Fit fit(const FitQuestion& q) {
  Fit out;
  out.left_bytes = q.memory_bytes - q.weight_bytes - q.working_bytes;
  const std::int64_t page_bytes = q.kv_bytes_per_token * kPageSize;
  // One sequence at least has a state; where there is nothing else, its length takes no memory.
  const std::int64_t for_pages = std::max<std::int64_t>(0, out.left_bytes - q.state_bytes);
  const std::int64_t num_pages = page_bytes > 0 ? for_pages / page_bytes
                                 : q.state_bytes > 0 && out.left_bytes >= q.state_bytes
                                     ? out.left_bytes / q.state_bytes * pages(q.context_length)
                                     : 0;
  out.max_tokens = num_pages * kPageSize;
  if (num_pages > 0) {
    const MemoryRequest request{.weight_bytes = q.weight_bytes,
                                .activation_bytes = q.working_bytes,
                                .buffer_bytes = 0,
                                .available_bytes = q.memory_bytes - q.weight_bytes,
                                .context_length = q.context_length,
                                .limits = q.limits,
                                .kv = q.kv};
    try {
      const MemoryPlan plan =
          plan_memory(request, one_plane_each(q.kv_bytes_per_token, q.state_bytes));
      out.default_tokens = plan.max_total_tokens;
      out.default_states = plan.num_states;
    } catch (const Error&) {  // half of what is left holds no request
    }
  }
  out.longest = std::min(out.max_tokens, q.context_length);
  const std::int64_t least =
      q.kv.max_total_tokens > 0 ? q.kv.max_total_tokens : std::min(kShortRequest, q.context_length);
  out.fits = out.max_tokens >= least;
  const auto line = [&](std::int64_t length) {
    std::int64_t by_default = pages(out.default_tokens) / pages(length),
                 at_most = num_pages / pages(length);
    if (q.state_bytes > 0) {
      by_default = std::min(by_default, out.default_states);
      at_most =
          std::max<std::int64_t>(0, out.left_bytes) / (pages(length) * page_bytes + q.state_bytes);
    }
    out.concurrency.push_back({length, by_default, at_most});
  };
  for (const std::int64_t length : kLengths)
    if (length <= q.context_length) line(length);
  if (out.concurrency.empty()) line(q.context_length);
  return out;
}

std::int64_t working_bytes(const ModelConfig& c, int chunk_tokens, int max_running_requests,
                           int context_length) {
  const std::int64_t tokens = std::min(chunk_tokens, context_length) + max_running_requests;
  std::int64_t widest = 3 * std::int64_t{c.intermediate_size};
  if (c.moe)
    widest = std::max<std::int64_t>(widest,
                                    3 * std::int64_t{c.moe->top_k} * c.moe->moe_intermediate_size +
                                        std::int64_t{c.moe->top_k} * c.hidden_size);
  const std::int64_t per_head =
      c.mla ? 2 * c.mla->kv_lora_rank + c.mla->qk_rope_head_dim : 2 * c.head_dim;
  widest = std::max(widest, c.num_heads * per_head + 2 * std::int64_t{c.num_kv_heads} * c.head_dim);
  // Hidden state, its normalised copy and the branch; then what the widest layer needs; then a
  // batch of logits.
  const std::int64_t logits = std::int64_t{std::max(max_running_requests, 1)} * c.vocab_size;
  return 4 * (tokens * (3 * std::int64_t{c.hidden_size} + widest) + logits);
}

}  // namespace sluice
