// The plan of one step, as plain values: it can be logged, replayed, and sent to another rank.
//
// The scheduler writes it, the runner reads it. It holds no pointers.
#pragma once

#include <cstdint>
#include <vector>

#include "base/page_size.h"
#include "batch/sampling_params.h"

namespace sluice {

// a token id that only the device knows yet: the slot's last token
inline constexpr std::int32_t kTokenFromSlot = -1;
// The same of drafts: the slot's draft i is kDraftFromSlot - i. Only in rounds (Batch::is_round).
inline constexpr std::int32_t kDraftFromSlot = -2;

// What the forward of a batch does. Names as in SGLang.
enum class ForwardMode : std::uint8_t {
  kExtend,        // prefill, with or without a cached prefix
  kDecode,        // one token a sequence
  kMixed,         // prefill chunks and decode rows together; rows of drafts, too
  kTargetVerify,  // decode rows with drafts behind them: 1 to k + 1 tokens a sequence
  kIdle,          // nothing in this data-parallel group, which still takes part
};
constexpr bool is_decode_or_idle(ForwardMode mode) {
  return mode == ForwardMode::kDecode || mode == ForwardMode::kIdle;
}
constexpr bool is_extend(ForwardMode mode) {
  return mode == ForwardMode::kExtend || mode == ForwardMode::kMixed;
}

// One sequence's part of a step: its tokens [first, first + count), counted from the start of the
// prompt.
struct BatchItem {
  std::uint64_t sequence = 0;
  std::int32_t slot = 0;   // stable while the sequence runs: indexes its state on the device
  std::int32_t first = 0;  // tokens computed before this step: the prefix
  std::int32_t count = 0;
  // a decode row instead of a prefill chunk: its first token is known, the others are drafts
  bool decode = false;
  // of a prefill chunk that is not the last: the token behind it, for draft layers
  std::int32_t next_token = -1;
  // The round before is in flight. `first` counts all its drafts as right; the device takes the
  // wrong ones back (ops/tokens.h).
  bool is_ahead = false;
};

// The pages of every item in one page group. Row i is pages[offsets[i] .. offsets[i+1]). Entry j
// holds tokens [j * kPageSize, (j + 1) * kPageSize), or -1 if the group no longer keeps these
// tokens (its window moved on).
struct PageRows {
  std::vector<std::int32_t> offsets;  // [items + 1]
  std::vector<std::int32_t> pages;
};

// Copies the first `tokens` rows of page `from` to page `to`, before the forward.
struct PageCopy {
  std::int32_t group = 0;
  std::int32_t from = 0;
  std::int32_t to = 0;
  std::int32_t tokens = 0;
};

// Sampler state of a slot, sent when a sequence takes the slot (also after retraction).
struct SlotInit {
  std::int32_t slot = 0;
  SamplingParams params;
  std::vector<std::int32_t> prompt;  // only when params.needs_history()
  // tokens generated before this step, only when params.needs_history()
  std::vector<std::int32_t> output;
  std::int32_t num_output = 0;  // number of tokens generated before this step
};

// Pages of an item beside its own, for drafts that branch (batch/draft_paths.h). Branch 0 has the
// item's own pages. Branch b > 0 has others from entry `first_page` on, `num_pages` in each group:
// pages[((b - 1) * groups + group) * num_pages + i].
struct ItemBranches {
  std::int32_t item = 0;
  // Of a tree, for each row of the item: the row of it that the token follows, -1 for the first.
  // The rows lie at the positions of their depths. Empty: each row follows the one before it.
  std::vector<std::int32_t> parents;
  std::int32_t first_page = 0;
  std::int32_t num_pages = 0;
  std::vector<std::int32_t> pages;
};

// A row whose logits are computed. Rows ascend by `row`. Sampled rows of one item follow each
// other: a later one counts only if an earlier one, `behind` rows before it, counts and chose the
// token that the later one holds.
struct LogitRow {
  std::int32_t item = 0;
  std::int32_t row = 0;  // index into the batch's flat tokens
  // position of the token that the row predicts: key of its random number
  std::int32_t position = 0;
  bool sample = false;  // sample a token; else only the log-probability of `target` is computed
  std::int32_t target = -1;            // the prompt's next token, where sample is false
  std::int32_t num_top_logprobs = -1;  // -1: no log-probabilities; 0..20
  bool want_hash = false;              // fill RowLogprobs::logits_hash
  bool has_mask = false;               // sampled: among the tokens of a mask (SampleInputs::masks)
  std::int32_t behind = 1;             // of a sampled row that is not its item's first
};

// Rows of an item whose states are wanted (batch/pooling.h): [row, row + count) of the batch's flat
// tokens.
struct PooledRows {
  std::int32_t item = 0;
  std::int32_t row = 0;
  std::int32_t count = 0;
};

// The work of one data-parallel group in a step. Without items its mode is kIdle, and it is
// launched nevertheless.
struct Batch {
  ForwardMode mode = ForwardMode::kIdle;
  std::vector<BatchItem> items;         // prefill chunks first, then decode rows
  std::vector<std::int32_t> token_ids;  // [sum of counts], or kTokenFromSlot
  std::vector<PageRows> groups;         // by page group
  std::vector<std::int32_t>
      state_slots;                   // [items, then drafts], of recurrent layers; empty without
  std::vector<PageCopy> copies;      // run before the forward
  std::vector<SlotInit> slot_inits;  // applied before sampling
  std::vector<LogitRow> logit_rows;
  std::vector<PooledRows> pooled_rows;  // in the order of items, at most one of each
  std::vector<ItemBranches> branches;   // in the order of items, at most one of each
  // Decode rows and drafts whose results stay on the device: tokens, which drafts are right, and
  // the next drafts. So the next step may be launched before this one is collected. Chains alone.
  bool is_round = false;
  bool deterministic = false;  // some request needs it: no row's bits may depend on the other rows
  // Drafts of a sequence that come with the result, at most; -1: as many as the draft makes. With 0
  // it does not run, and makes up for the step's slots when it runs again.
  std::int32_t max_drafts = -1;

  std::int32_t num_tokens() const { return static_cast<std::int32_t>(token_ids.size()); }
};

// A part of an expert's weights that goes from one place to another before the forward (places as
// in experts/expert_map.h). From the first part on place `to` serves no token, and from the last
// part on it serves `expert`.
struct ExpertMove {
  std::int32_t layer = 0;  // among those with experts
  std::int32_t expert = 0;
  std::int32_t from = 0;
  std::int32_t to = 0;
  std::int64_t begin = 0;  // bytes [begin, end) of an expert's weights at a rank
  std::int64_t end = 0;
};

struct Step {
  std::uint64_t id = 0;
  std::uint64_t hash = 0;                   // hash of everything below; ranks compare it
  std::vector<Batch> dp;                    // one per data-parallel group
  std::vector<std::int32_t> global_tokens;  // [dp] tokens of each group
  std::vector<ExpertMove> expert_moves;
};

// Fills step.hash.
std::uint64_t hash_step(const Step& step);

}  // namespace sluice
