#include "runtime/memory_plan.h"

#include <algorithm>

#include "base/error.h"

namespace sluice {
namespace {

constexpr std::int64_t kAutomaticLimit = std::int64_t{4} << 30;
constexpr std::int64_t kMinTokens = 1024;
// its own, and kept ones that later requests may begin with
constexpr std::int64_t kStatesPerRequest = 4;

std::int64_t ceil_pages(std::int64_t tokens) {
  return (tokens + kPageSize - 1) / kPageSize;
}

// Pages that the tokens of a window or chunk can touch while the next one begins.
std::int64_t held_pages(const PageGroupSpec& group) {
  return ceil_pages(group.span - 1) + 2;
}

}  // namespace

std::vector<std::int64_t> pages_by_group(const MemoryRequest& request,
                                         const std::vector<PageGroupSpec>& groups,
                                         std::int64_t pages) {
  const bool keeps_all = std::any_of(groups.begin(), groups.end(), [](const PageGroupSpec& g) {
    return g.retention == Retention::kFull;
  });
  std::vector<std::int64_t> out;
  for (const PageGroupSpec& group : groups) {
    out.push_back(pages);
    if (group.retention == Retention::kFull) continue;
    const std::int64_t held = request.limits.max_running_requests * held_pages(group) +
                              ceil_pages(request.limits.max_step_tokens);
    std::int64_t wanted = std::min(pages, 2 * held);
    if (keeps_all)
      wanted = std::min(
          wanted, static_cast<std::int64_t>(static_cast<double>(pages) * request.kv.window_ratio));
    out.back() = std::max(wanted, std::min(pages, held_pages(group)));
  }
  return out;
}

std::int64_t bytes_of(const std::vector<PageGroupSpec>& groups,
                      const std::vector<std::int64_t>& pages) {
  std::int64_t bytes = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) bytes += pages[g] * groups[g].bytes_per_page();
  return bytes;
}

std::int64_t pages_of_sequence(const PageGroupSpec& group, std::int64_t tokens) {
  const std::int64_t pages = ceil_pages(tokens);
  return group.retention == Retention::kFull ? pages : std::min(pages, held_pages(group));
}

MemoryPlan plan_memory(const MemoryRequest& request, const std::vector<PageGroupSpec>& all_groups) {
  const std::vector<PageGroupSpec> groups(all_groups.begin(),
                                          all_groups.begin() + num_page_groups(all_groups));
  const bool has_states = groups.size() < all_groups.size();
  const std::int64_t state_bytes = has_states ? all_groups.back().bytes_per_page() : 0;
  std::int64_t page_bytes = 0, window_bytes = 0;  // of one page in every group
  for (const PageGroupSpec& group : groups) {
    page_bytes += group.bytes_per_page();
    if (group.retention != Retention::kFull) window_bytes += group.bytes_per_page();
  }
  check(page_bytes + state_bytes > 0, "the model keeps nothing in the KV pool");

  const std::int64_t fixed = request.activation_bytes + request.buffer_bytes;
  std::int64_t left = std::max<std::int64_t>(0, request.available_bytes - fixed);
  std::int64_t kv_bytes = std::min(left / 2, kAutomaticLimit);
  if (request.kv.mem_fraction_static > 0) {
    const double total = static_cast<double>(request.available_bytes + request.weight_bytes);
    kv_bytes = std::min(left, static_cast<std::int64_t>(total * request.kv.mem_fraction_static) -
                                  request.weight_bytes);
  }
  std::int64_t states = 0;
  if (has_states) {
    const double share = page_bytes > 0 ? request.kv.state_ratio / (1 + request.kv.state_ratio) : 1;
    states = kStatesPerRequest * request.limits.max_running_requests;
    // A stage of a pipeline may have no recurrent layer.
    if (state_bytes > 0)
      states = std::min(
          states, static_cast<std::int64_t>(static_cast<double>(kv_bytes) * share) / state_bytes);
    if (request.kv.max_states > 0) states = request.kv.max_states;
    if (states < 1 || states * state_bytes > left)
      fail(ErrorKind::kNoResources,
           "the states of recurrent layers take {} for a sequence, {} are to be kept, and {} of "
           "memory are free beside {} "
           "of weights and {} of activations; try a smaller --max-mamba-cache-size or "
           "--chunked-prefill-size, or a larger "
           "--mem-fraction-static or --mamba-full-memory-ratio",
           format_bytes(state_bytes), std::max<std::int64_t>(states, 1), format_bytes(left),
           format_bytes(request.weight_bytes), format_bytes(fixed));
    kv_bytes -= states * state_bytes;
    left -= states * state_bytes;
  }
  const auto bytes_for = [&](std::int64_t count) {
    return bytes_of(groups, pages_by_group(request, groups, count));
  };
  // A sequence's last page is rarely full: one more for each.
  std::int64_t pages = 0, too_many = request.limits.max_running_requests *
                                         (ceil_pages(request.context_length) + 1) +
                                     1;
  while (pages + 1 < too_many) {
    const std::int64_t middle = pages + (too_many - pages) / 2;
    (bytes_for(middle) <= kv_bytes ? pages : too_many) = middle;
  }
  if (request.kv.max_total_tokens > 0) pages = ceil_pages(request.kv.max_total_tokens);

  const std::int64_t least = ceil_pages(std::min(kMinTokens, request.context_length));
  const std::int64_t wanted = request.kv.max_total_tokens > 0 ? pages : least;
  if (bytes_for(wanted) > left || (request.kv.max_total_tokens == 0 && pages < least))
    fail(ErrorKind::kNoResources,
         "the KV cache needs {} for {} tokens, and {} of memory are free beside {} of weights and "
         "{} of activations; "
         "try a smaller --max-total-tokens, --chunked-prefill-size or --max-running-requests, or a "
         "larger "
         "--mem-fraction-static",
         format_bytes(bytes_for(wanted)), wanted * kPageSize, format_bytes(left),
         format_bytes(request.weight_bytes), format_bytes(fixed));

  MemoryPlan plan;
  plan.weight_bytes = request.weight_bytes;
  plan.activation_bytes = request.activation_bytes;
  plan.buffer_bytes = request.buffer_bytes;
  plan.pages = pages_by_group(request, groups, pages);
  plan.kv_bytes = bytes_of(groups, plan.pages) + states * state_bytes;
  plan.kv_bytes_per_token = page_bytes / kPageSize;
  plan.window_bytes_per_token = window_bytes / kPageSize;
  // A model of states alone holds sequences of any length. (A stage whose layers keep no pages has
  // their groups nevertheless.)
  plan.max_total_tokens = groups.empty() ? states * request.context_length : pages * kPageSize;
  plan.num_states = states;
  plan.state_bytes = state_bytes;
  if (has_states) plan.pages.push_back(states);
  plan.available_bytes = request.available_bytes;
  return plan;
}

std::string MemoryPlan::describe() const {
  const std::string states =
      num_states == 0 ? ""
                      : fmt::format("; {} states of {}", num_states, format_bytes(state_bytes));
  const std::string windows =
      window_bytes_per_token == 0
          ? ""
          : fmt::format(" and {} more within windows", window_bytes_per_token);
  return fmt::format(
      "weights {}, KV cache {} ({} tokens, {} bytes each{}{}), activations {}, buffers {}; {} were "
      "free",
      format_bytes(weight_bytes), format_bytes(kv_bytes), max_total_tokens,
      kv_bytes_per_token - window_bytes_per_token, windows, states, format_bytes(activation_bytes),
      format_bytes(buffer_bytes), format_bytes(available_bytes));
}

std::string format_bytes(std::int64_t bytes) {
  if (bytes >= (std::int64_t{1} << 30))
    return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
  if (bytes >= (1 << 20)) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024);
}

}  // namespace sluice
