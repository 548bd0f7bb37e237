#include "runtime/decode_graphs.h"

#include <algorithm>

#include "base/error.h"

namespace sluice {
namespace {

constexpr std::int64_t kDefaultLargest = 256;
constexpr int kRunsBefore = 2;

}  // namespace

std::vector<std::int64_t> graph_sizes(std::int64_t largest) {
  std::vector<std::int64_t> sizes;
  for (const std::int64_t size : {1, 2, 4})
    if (size < largest) sizes.push_back(size);
  for (std::int64_t size = 8; size < largest; size += size < 256 ? 8 : 32) sizes.push_back(size);
  sizes.push_back(largest);
  return sizes;
}

DecodeGraphs::DecodeGraphs(const GraphOptions& options, std::int64_t max_running,
                           const Stream& stream, Prepare prepare, Run run)
    : options_(options), stream_(stream), prepare_(std::move(prepare)), run_(std::move(run)) {
  const std::int64_t largest =
      std::min(options.max_batch > 0 ? options.max_batch : kDefaultLargest, max_running);
  sizes_ = options.sizes.empty() ? graph_sizes(largest) : options.sizes;
  for (const std::int64_t size : sizes_)
    require(size >= 1, "--cuda-graph-bs has {}; batch sizes are at least 1", size);
  std::sort(sizes_.begin(), sizes_.end());
  sizes_.erase(std::unique(sizes_.begin(), sizes_.end()), sizes_.end());
  std::erase_if(sizes_, [&](std::int64_t size) { return size > max_running; });
  graphs_.resize(2 * sizes_.size());
}

void DecodeGraphs::record_all() {
  if (options_.lazy) return;
  for (std::size_t i = sizes_.size(); i-- > 0;)
    for (const bool has_edits : {false, true}) ensure(sizes_[i], has_edits);
}

std::int64_t DecodeGraphs::size_for(const Batch& batch) const {
  if (batch.mode != ForwardMode::kDecode || batch.items.size() != batch.token_ids.size() ||
      batch.items.size() != batch.logit_rows.size())
    return 0;
  const auto found =
      std::lower_bound(sizes_.begin(), sizes_.end(), static_cast<std::int64_t>(batch.items.size()));
  return found == sizes_.end() ? 0 : *found;
}

std::size_t DecodeGraphs::index_of(std::int64_t size, bool has_edits) const {
  const auto found = std::lower_bound(sizes_.begin(), sizes_.end(), size);
  check(found != sizes_.end() && *found == size, "there is no graph of {} rows", size);
  return 2 * static_cast<std::size_t>(found - sizes_.begin()) + has_edits;
}

void DecodeGraphs::ensure(std::int64_t size, bool has_edits) {
  Graph& graph = graphs_[index_of(size, has_edits)];
  if (graph.captured()) return;
  prepare_(size);
  for (int i = 0; i < kRunsBefore; ++i) run_(has_edits, false);
  stream_.synchronize();
  graph = Graph::capture(stream_, [&] { run_(has_edits, true); });
}

void DecodeGraphs::launch(std::int64_t size, bool has_edits) const {
  graphs_[index_of(size, has_edits)].launch(stream_);
}

std::string DecodeGraphs::describe() const {
  if (sizes_.empty()) return "none";
  return fmt::format("{} sizes of decode batches up to {}{}", sizes_.size(), sizes_.back(),
                     options_.lazy ? ", each when it is first wanted" : "");
}

}  // namespace sluice
