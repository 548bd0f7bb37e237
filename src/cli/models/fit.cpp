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

// The largest count below `end` that fits; 0 always does.
template <class Fits>
std::int64_t largest(std::int64_t end, Fits&& fits) {
  std::int64_t count = 0;
  while (count + 1 < end) {
    const std::int64_t middle = count + (end - count) / 2;
    (fits(middle) ? count : end) = middle;
  }
  return count;
}

// What the memory plan of a start does with the groups of a question.
class Capacity {
 public:
  explicit Capacity(const FitQuestion& question)
      : groups_(question.kept.begin(), question.kept.begin() + num_page_groups(question.kept)),
        state_bytes_(state_bytes(question.kept)),
        left_(question.memory_bytes - question.weight_bytes - question.working_bytes),
        request_{.weight_bytes = question.weight_bytes,
                 .activation_bytes = question.working_bytes,
                 .buffer_bytes = 0,
                 .available_bytes = question.memory_bytes - question.weight_bytes,
                 .context_length = question.context_length,
                 .limits = question.limits,
                 .kv = question.kv} {
    for (const PageGroupSpec& group : groups_)
      if (group.retention == Retention::kFull) full_page_bytes_ += group.bytes_per_page();
  }

  const MemoryRequest& request() const { return request_; }

  // With so many pages where every token is kept.
  std::int64_t bytes_for(std::int64_t pages) const {
    return bytes_of(groups_, pages_by_group(request_, groups_, pages));
  }

  // Beside one state. Windows alone take no more pages than those of all requests.
  std::int64_t max_pages() const {
    // Where there is nothing but states, a sequence's length takes no memory.
    if (groups_.empty() && state_bytes_ > 0)
      return std::max<std::int64_t>(0, left_) / state_bytes_ * pages(request_.context_length);
    const std::int64_t end =
        full_page_bytes_ > 0
            ? left_ / full_page_bytes_ + 2
            : request_.limits.max_running_requests * (pages(request_.context_length) + 1) + 1;
    return largest(end, [&](std::int64_t n) { return bytes_for(n) + state_bytes_ <= left_; });
  }

  // Requests of a length at once in the pages of each group and so many states.
  std::int64_t requests_in(const MemoryPlan& plan, std::int64_t length) const {
    if (plan.pages.empty()) return 0;
    std::int64_t requests = state_bytes_ > 0 ? plan.num_states : pages(plan.max_total_tokens);
    for (std::size_t g = 0; g < groups_.size(); ++g)
      requests = std::min(requests, plan.pages[g] / pages_of_sequence(groups_[g], length));
    return requests;
  }

  // In all that is left, however groups share it.
  std::int64_t max_requests(std::int64_t length) const {
    std::int64_t each = state_bytes_;
    for (const PageGroupSpec& group : groups_)
      each += pages_of_sequence(group, length) * group.bytes_per_page();
    return each > 0 && left_ > 0 ? left_ / each : 0;
  }

 private:
  std::vector<PageGroupSpec> groups_;  // of pages
  std::int64_t state_bytes_, full_page_bytes_ = 0, left_;
  MemoryRequest request_;
};

}  // namespace

Fit fit(const FitQuestion& q) {
  Fit out;
  out.left_bytes = q.memory_bytes - q.weight_bytes - q.working_bytes;
  const Capacity capacity(q);
  std::int64_t num_pages = capacity.max_pages();
  MemoryPlan plan;
  if (num_pages > 0) {
    try {
      plan = plan_memory(capacity.request(), q.kept);
    } catch (const Error&) {  // half of what is left holds no request
    }
  }
  out.default_tokens = plan.max_total_tokens;
  out.default_states = plan.num_states;
  out.default_kv_bytes = plan.kv_bytes - plan.num_states * plan.state_bytes;
  const std::int64_t least =
      q.kv.max_total_tokens > 0 ? q.kv.max_total_tokens : std::min(kShortRequest, q.context_length);
  out.missing_bytes = std::max<std::int64_t>(
      0, capacity.bytes_for(pages(least)) + state_bytes(q.kept) - out.left_bytes);
  out.fits = out.missing_bytes == 0;
  if (out.fits) num_pages = std::max(num_pages, pages(least));
  out.max_tokens = num_pages * kPageSize;
  out.longest = std::min(out.max_tokens, q.context_length);
  const auto line = [&](std::int64_t length) {
    out.concurrency.push_back(
        {length, capacity.requests_in(plan, length), capacity.max_requests(length)});
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
