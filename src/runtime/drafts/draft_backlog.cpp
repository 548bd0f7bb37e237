#include "runtime/drafts/draft_backlog.h"

#include <algorithm>
#include <utility>

namespace sluice {

std::optional<std::int32_t> DraftBacklog::reserve(std::int64_t count) {
  if (count > num_rows_) return std::nullopt;
  const std::int64_t left = num_rows_ - next_row_ % num_rows_;
  if (count > left) next_row_ += left;
  return static_cast<std::int32_t>(std::exchange(next_row_, next_row_ + count) % num_rows_);
}

void DraftBacklog::add(std::uint64_t sequence, std::int32_t first,
                       std::span<const std::int32_t> tokens, std::int32_t row) {
  Entry& entry = entries_[sequence];
  if (entry.has_holes) return;
  std::vector<std::int32_t>& known = entry.slots.tokens;
  if (known.empty()) entry.slots.first = first;
  if (entry.end() < first || first < entry.slots.first || !is_whole(entry)) return lose(sequence);
  // A draft without states had the token of its last slot before.
  known.resize(static_cast<std::size_t>(first - entry.slots.first));
  entry.rows.resize(known.size());
  known.insert(known.end(), tokens.begin(), tokens.end());
  // `row` counts the ring's rows; its place among all is that of the newest reservation.
  const std::int64_t newest = next_row_ - 1;
  const std::int64_t begin = newest - (newest - row) % num_rows_;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    entry.rows.push_back(begin + static_cast<std::int64_t>(i));
}

DraftBacklog::Slots DraftBacklog::take(std::uint64_t sequence, std::int32_t end) {
  const auto found = entries_.find(sequence);
  if (found == entries_.end() || found->second.has_holes) return {};
  Entry& entry = found->second;
  if (entry.slots.tokens.empty()) return {};
  if (entry.end() < end || end < entry.slots.first || !is_whole(entry)) {
    lose(sequence);
    return {};
  }
  Slots out = std::move(entry.slots);
  out.tokens.resize(static_cast<std::size_t>(end - out.first));
  for (std::size_t i = 0; i < out.tokens.size(); ++i)
    out.rows.push_back(static_cast<std::int32_t>(entry.rows[i] % num_rows_));
  entries_.erase(found);
  return out;
}

bool DraftBacklog::has_holes(std::uint64_t sequence) const {
  const auto found = entries_.find(sequence);
  return found != entries_.end() && found->second.has_holes;
}

void DraftBacklog::lose(std::uint64_t sequence, std::int32_t end) {
  entries_[sequence] = {
      .slots = {.first = end, .tokens = {}, .rows = {}}, .rows = {}, .has_holes = true};
}

void DraftBacklog::restart(std::uint64_t sequence, std::int32_t first) {
  const auto found = entries_.find(sequence);
  if (found == entries_.end()) return;
  if (found->second.end() != first) entries_.erase(found);
}

void DraftBacklog::keep_only(std::span<const BatchItem> items) {
  if (entries_.empty()) return;
  std::unordered_map<std::uint64_t, Entry> kept;
  for (const BatchItem& item : items)
    if (auto node = entries_.extract(item.sequence)) kept.insert(std::move(node));
  entries_ = std::move(kept);
}

}  // namespace sluice
