#include "runtime/steps/decode_graphs.h"

#include <algorithm>
#include <bit>

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

std::vector<std::int64_t> draft_graph_sizes(std::int64_t largest) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 2; size < largest;) {
    sizes.push_back(size);
    size += size < 8
                ? 1
                : static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(size))) / 2;
  }
  sizes.push_back(largest);
  return sizes;
}

std::int64_t padded_draft_rows(std::int64_t rows, std::int64_t largest) {
  const std::vector<std::int64_t> sizes = draft_graph_sizes(largest);
  const auto found = std::ranges::lower_bound(sizes, rows);
  return found == sizes.end() ? 0 : *found;
}

DecodeGraphs::DecodeGraphs(const GraphOptions& options, const MaxRows& max_rows,
                           const Stream& stream, Prepare prepare, Run run)
    : options_(options),
      has_edits_(max_rows.edits),
      stream_(stream),
      prepare_(std::move(prepare)),
      run_(std::move(run)) {
  for (const bool has_drafts : {false, true}) {
    const std::int64_t most = has_drafts ? max_rows.with_drafts : max_rows.plain;
    Set& set = sets_[has_drafts];
    const std::int64_t largest =
        std::min(options.max_batch > 0 ? options.max_batch : kDefaultLargest, most);
    if (!options.sizes.empty())
      set.sizes = options.sizes;
    else if (most > 0)
      set.sizes = has_drafts ? draft_graph_sizes(largest) : graph_sizes(largest);
    for (const std::int64_t size : set.sizes)
      require(size >= 1, "--cuda-graph-bs has {}; batch sizes are at least 1", size);
    std::sort(set.sizes.begin(), set.sizes.end());
    set.sizes.erase(std::unique(set.sizes.begin(), set.sizes.end()), set.sizes.end());
    std::erase_if(set.sizes, [&](std::int64_t size) { return size > most; });
    set.graphs.resize(2 * set.sizes.size());
  }
}

void DecodeGraphs::record_all() {
  if (options_.lazy) return;
  for (const bool has_drafts : {false, true})
    for (std::size_t i = sizes(has_drafts).size(); i-- > 0;)
      for (const bool has_edits : {false, true})
        if (has_edits_ || !has_edits)
          ensure(sizes(has_drafts)[i], {.has_edits = has_edits, .has_drafts = has_drafts});
}

std::int64_t DecodeGraphs::size_for(const Batch& batch) const {
  const bool has_drafts = batch.mode == ForwardMode::kTargetVerify;
  if ((batch.mode != ForwardMode::kDecode && !has_drafts) ||
      batch.items.size() != batch.token_ids.size() || batch.items.size() != batch.logit_rows.size())
    return 0;
  const std::vector<std::int64_t>& all = sizes(has_drafts);
  const auto found =
      std::lower_bound(all.begin(), all.end(), static_cast<std::int64_t>(batch.items.size()));
  return found == all.end() ? 0 : *found;
}

std::size_t DecodeGraphs::index_of(std::int64_t size, GraphKind kind) const {
  const std::vector<std::int64_t>& all = sizes(kind.has_drafts);
  const auto found = std::lower_bound(all.begin(), all.end(), size);
  check(found != all.end() && *found == size, "there is no graph of {} rows", size);
  return 2 * static_cast<std::size_t>(found - all.begin()) + kind.has_edits;
}

void DecodeGraphs::ensure(std::int64_t size, GraphKind kind) {
  Graph& graph = sets_[kind.has_drafts].graphs[index_of(size, kind)];
  if (graph.captured()) return;
  prepare_(size, kind.has_drafts);
  for (int i = 0; i < kRunsBefore; ++i) run_(kind, false);
  stream_.synchronize();
  graph = Graph::capture(stream_, [&] { run_(kind, true); });
}

void DecodeGraphs::launch(std::int64_t size, GraphKind kind) const {
  sets_[kind.has_drafts].graphs[index_of(size, kind)].launch(stream_);
}

std::string DecodeGraphs::describe() const {
  std::string text;
  for (const bool has_drafts : {false, true}) {
    if (sizes(has_drafts).empty()) continue;
    text +=
        fmt::format("{}{} sizes of {} up to {}", text.empty() ? "" : ", ", sizes(has_drafts).size(),
                    has_drafts ? "drafted rows" : "decode batches", sizes(has_drafts).back());
  }
  if (text.empty()) return "none";
  return text + (options_.lazy ? ", each when it is first wanted" : "");
}

}  // namespace sluice
