// Slots that a draft has not filled, because it did not run behind a step
// (runtime/drafts/draft_runner.h).
//
//   DraftBacklog backlog(2048);
//   const auto row = backlog.reserve(count);         // memory for the states of a step's slots
//   backlog.add(sequence, first_slot, tokens, *row);
//   ...
//   DraftBacklog::Slots slots = backlog.take(sequence, next_slot);   // to be filled now
//
// States lie in a ring, which a later step may write over. Then the draft knows the sequence no
// further: has_holes(). One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "batch/batch.h"

namespace sluice {

class DraftBacklog {
 public:
  explicit DraftBacklog(std::int64_t num_rows) : num_rows_(num_rows) {}

  // Slots first, first + 1, ...: their tokens, and the rows where their states lie.
  struct Slots {
    std::int32_t first = 0;
    std::vector<std::int32_t> tokens, rows;
  };

  // The first of `count` rows that lie side by side; nothing where there are fewer in all.
  std::optional<std::int32_t> reserve(std::int64_t count);
  // Slots of a sequence whose states lie in reserved rows from `row` on.
  void add(std::uint64_t sequence, std::int32_t first, std::span<const std::int32_t> tokens,
           std::int32_t row);
  // What a sequence lacks before slot `end`; empty: nothing, or it cannot be made up for.
  Slots take(std::uint64_t sequence, std::int32_t end);

  bool has_holes(std::uint64_t sequence) const;
  // The sequence has holes from now on. `end`: where the step ends whose slots are lost.
  void lose(std::uint64_t sequence, std::int32_t end = -1);
  // The sequence is computed from `first` on. Where it does not stand there now, what is known of
  // it ends.
  void restart(std::uint64_t sequence, std::int32_t first);
  // Forgets all sequences but those of the step.
  void keep_only(std::span<const BatchItem> items);

 private:
  struct Entry {
    Slots slots;                     // without rows
    std::vector<std::int64_t> rows;  // counted over all that were ever reserved
    bool has_holes = false;

    std::int32_t end() const {
      return slots.first + static_cast<std::int32_t>(slots.tokens.size());
    }
  };
  bool is_whole(const Entry& entry) const {
    return entry.rows.empty() || entry.rows.front() + num_rows_ >= next_row_;
  }

  const std::int64_t num_rows_;
  std::int64_t next_row_ = 0;
  std::unordered_map<std::uint64_t, Entry> entries_;
};

}  // namespace sluice
