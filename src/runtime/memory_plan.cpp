#include "runtime/memory_plan.h"

#include <algorithm>

#include "base/error.h"

namespace sluice {
namespace {

constexpr std::int64_t kAutomaticLimit = std::int64_t{4} << 30;
constexpr std::int64_t kLeastTokens = 1024;

std::int64_t ceil_pages(std::int64_t tokens) { return (tokens + kPageSize - 1) / kPageSize; }

// Pages by group where those that keep every token have `pages`.
std::vector<std::int64_t> pages_of(const MemoryRequest& request, const std::vector<PageGroupSpec>& groups,
                                   std::int64_t pages) {
  const bool keeps_all = std::any_of(groups.begin(), groups.end(),
                                     [](const PageGroupSpec& g) { return g.retention == Retention::kFull; });
  std::vector<std::int64_t> out;
  for (const PageGroupSpec& group : groups) {
    out.push_back(pages);
    if (group.retention == Retention::kFull) continue;
    const std::int64_t alone = ceil_pages(group.span - 1) + 1;  // that `span` tokens in a row can touch
    const std::int64_t held = request.max_running_requests * (alone + 1) + ceil_pages(request.max_step_tokens);
    std::int64_t wanted = std::min(pages, 2 * held);
    if (keeps_all) wanted = std::min(wanted, static_cast<std::int64_t>(static_cast<double>(pages) * request.window_ratio));
    out.back() = std::max(wanted, std::min(pages, alone + 1));
  }
  return out;
}

std::int64_t bytes_of(const std::vector<PageGroupSpec>& groups, const std::vector<std::int64_t>& pages) {
  std::int64_t bytes = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) bytes += pages[g] * groups[g].bytes_per_page();
  return bytes;
}

}  // namespace

MemoryPlan plan_memory(const MemoryRequest& request, const std::vector<PageGroupSpec>& groups) {
  std::int64_t page_bytes = 0;   // of one page in every group
  for (const PageGroupSpec& group : groups) page_bytes += group.bytes_per_page();
  check(page_bytes > 0, "the model keeps nothing in the KV pool");

  const std::int64_t fixed = request.activation_bytes + request.buffer_bytes;
  const std::int64_t left = std::max<std::int64_t>(0, request.available_bytes - fixed);
  std::int64_t kv_bytes = std::min(left / 2, kAutomaticLimit);
  if (request.mem_fraction_static > 0) {
    const double total = static_cast<double>(request.available_bytes + request.weight_bytes);
    kv_bytes = std::min(left, static_cast<std::int64_t>(total * request.mem_fraction_static) - request.weight_bytes);
  }
  const auto bytes_for = [&](std::int64_t count) { return bytes_of(groups, pages_of(request, groups, count)); };
  // A sequence's last page is rarely full: one more for each.
  std::int64_t pages = 0, too_many = request.max_running_requests * (ceil_pages(request.context_length) + 1) + 1;
  while (pages + 1 < too_many) {
    const std::int64_t middle = pages + (too_many - pages) / 2;
    (bytes_for(middle) <= kv_bytes ? pages : too_many) = middle;
  }
  if (request.max_total_tokens > 0) pages = ceil_pages(request.max_total_tokens);

  const std::int64_t least = ceil_pages(std::min(kLeastTokens, request.context_length));
  const std::int64_t wanted = request.max_total_tokens > 0 ? pages : least;
  if (bytes_for(wanted) > left || (request.max_total_tokens == 0 && pages < least))
    fail(ErrorKind::kNoResources,
         "the KV cache needs {} for {} tokens, and {} of memory are free beside {} of weights and {} of activations; "
         "try a smaller --max-total-tokens, --chunked-prefill-size or --max-running-requests, or a larger "
         "--mem-fraction-static",
         format_bytes(bytes_for(wanted)), wanted * kPageSize, format_bytes(left), format_bytes(request.weight_bytes),
         format_bytes(fixed));

  MemoryPlan plan;
  plan.weight_bytes = request.weight_bytes;
  plan.activation_bytes = request.activation_bytes;
  plan.buffer_bytes = request.buffer_bytes;
  plan.pages = pages_of(request, groups, pages);
  plan.kv_bytes = bytes_of(groups, plan.pages);
  plan.kv_bytes_per_token = page_bytes / kPageSize;
  plan.max_total_tokens = pages * kPageSize;
  plan.available_bytes = request.available_bytes;
  return plan;
}

std::string MemoryPlan::describe() const {
  return fmt::format("weights {}, KV cache {} ({} tokens, {} bytes each), activations {}, buffers {}; {} were free",
                     format_bytes(weight_bytes), format_bytes(kv_bytes), max_total_tokens, kv_bytes_per_token,
                     format_bytes(activation_bytes), format_bytes(buffer_bytes), format_bytes(available_bytes));
}

std::string format_bytes(std::int64_t bytes) {
  if (bytes >= (std::int64_t{1} << 30)) return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
  if (bytes >= (1 << 20)) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024);
}

}  // namespace sluice
