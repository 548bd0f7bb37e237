// For tests: a model, a device that runs its steps in order, and the same model on plain token
// lists. The model's next token depends on every row that it reads through the page tables. The
// token lists give the expected tokens.
//
// Row p of a sequence is the hash of all tokens up to p. The device computes it from row p - 1,
// read from the pages, and the step's token. A sampled token depends on the sum of all rows that
// its attention reads in every group, on the recurrent state, and on the sampler state of the slot.
// So a wrong page, copy, state or slot yields other tokens than the plain model, which has no
// pages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "batch/draft_paths.h"
#include "scheduler/scheduler.h"

namespace sluice::sim {

inline constexpr std::int32_t kVocab = 61;

inline std::uint64_t next_row(std::uint64_t row, std::int32_t token) {
  return mix64(row + 0x51ull * static_cast<std::uint32_t>(token) + 1);
}

inline bool is_stop(const SamplingParams& params, std::int32_t token) {
  return std::ranges::count(params.stop_token_ids, token) > 0;
}

// The token sampled at `position` after `read`, the digest of all data read.
inline std::int32_t choose(std::uint64_t read, int position, const SamplingParams& params,
                           std::uint64_t history, int num_output) {
  std::uint64_t h = hash_combine(read, static_cast<std::uint64_t>(position));
  h = hash_combine(h, params.seed);
  if (params.needs_history()) h = hash_combine(h, history);
  auto token = static_cast<std::int32_t>(h % kVocab);
  while (num_output < params.min_new_tokens && is_stop(params, token)) token = (token + 1) % kVocab;
  return token;
}

inline float logprob_of(std::uint64_t read, std::int32_t token) {
  return -static_cast<float>(hash_combine(read, static_cast<std::uint64_t>(token)) % 4096);
}

// Ends when the sum of the last two tokens is a multiple of `modulus`.
class PairMatcher : public StopMatcher {
 public:
  explicit PairMatcher(int modulus) : modulus_(modulus) {}
  bool push(std::int32_t token) override {
    const bool hit = last_ >= 0 && (last_ + token) % modulus_ == 0;
    last_ = token;
    return hit;
  }

 private:
  int modulus_;
  std::int32_t last_ = -1;
};

// The model on a plain list of tokens.
class PlainModel {
 public:
  explicit PlainModel(const std::vector<PageGroup>& groups) : groups_(groups) {}

  void push(std::int32_t token) {
    rows_.push_back(next_row(rows_.empty() ? 0 : rows_.back(), token));
    sums_.push_back((sums_.empty() ? 0 : sums_.back()) + rows_.back());
    history_ += mix64(static_cast<std::uint64_t>(token));
  }
  // The digest of the rows that row q reads.
  std::uint64_t read(std::int64_t q) const {
    std::uint64_t h = 0;
    for (const PageGroup& group : groups_) {
      const std::int64_t from = group.keep_from(q);
      const bool state = group.retention == Retention::kState;
      h = hash_combine(h, state ? rows_[q] : sums_[q] - (from > 0 ? sums_[from - 1] : 0));
    }
    return h;
  }
  std::uint64_t history() const { return history_; }

 private:
  const std::vector<PageGroup>& groups_;
  std::vector<std::uint64_t> rows_, sums_;
  std::uint64_t history_ = 0;
};

// Runs the steps of a scheduler.
class Device {
 public:
  explicit Device(const SchedulerOptions& options) : groups_(options.groups) {
    ranks_.resize(options.dp_size);
    for (Rank& rank : ranks_) {
      for (const PageGroup& group : groups_)
        rank.rows.emplace_back(
            group.num_pages * (group.retention == Retention::kState ? 2 : kPageSize), 0xDEAD);
      rank.slots.resize(options.max_running_requests);
    }
  }

  // A sequence whose token at this position comes from logits that are not finite.
  struct Broken {
    std::uint64_t sequence;
    int position;
    friend bool operator==(const Broken&, const Broken&) = default;
  };
  std::vector<Broken> broken;

  void run(const Step& step, StepResult& result) {
    result.step_id = step.id;
    result.dp.resize(step.dp.size());
    for (std::size_t dp = 0; dp < step.dp.size(); ++dp) run(ranks_[dp], step.dp[dp], result.dp[dp]);
  }

 private:
  struct Slot {
    SamplingParams params;
    std::uint64_t history = 0;
    int num_output = 0;
    std::int32_t last = -7;
  };
  struct Rank {
    // [group][slot of a token]; a state is {tokens, last row}
    std::vector<std::vector<std::uint64_t>> rows;
    std::vector<Slot> slots;
  };

  void run(Rank& rank, const Batch& batch, BatchResult& out) {
    out.token_offsets.assign(1, 0);
    out.prompt_offsets.assign(1, 0);
    out.tokens.clear();
    out.token_logprobs.clear();
    out.prompt_logprobs.clear();
    out.failed.assign(batch.items.size(), 0);
    const int num_groups = static_cast<int>(groups_.size());
    for (const PageCopy& copy : batch.copies) {
      const int size = groups_[copy.group].retention == Retention::kState ? 2 : kPageSize;
      auto& rows = rank.rows[copy.group];
      const int count = size == 2 ? 2 : copy.tokens;
      std::copy_n(rows.begin() + copy.from * size, count, rows.begin() + copy.to * size);
    }
    for (const SlotInit& init : batch.slot_inits) {
      Slot& slot = rank.slots[init.slot];
      slot = {init.params, 0, init.num_output, -7};
      for (std::int32_t token : init.prompt)
        slot.history += mix64(static_cast<std::uint64_t>(token));
      for (std::int32_t token : init.output)
        slot.history += mix64(static_cast<std::uint64_t>(token));
    }
    std::size_t next_logit = 0, next_state = batch.items.size();
    std::int32_t row = 0;
    for (std::size_t i = 0; i < batch.items.size(); ++i) {
      const BatchItem& item = batch.items[i];
      Slot& slot = rank.slots[item.slot];
      // Writes all rows first, as a kernel would.
      std::uint64_t last = item.first == 0 ? 0 : previous(rank, batch, i, item.first - 1);
      std::uint64_t* state = nullptr;
      for (int g = 0; g < num_groups; ++g)
        if (groups_[g].retention == Retention::kState)
          state = &rank.rows[g][batch.state_slots[i] * 2];
      if (state != nullptr && item.first > 0 && state[0] != static_cast<std::uint64_t>(item.first))
        last ^= 0xBAD;
      state_rows_.clear();
      branches_ = branches_of(batch, i);
      const bool is_tree = branches_ != nullptr && !branches_->parents.empty();
      paths_ = is_tree ? paths_of(branches_->parents) : DraftPaths{};
      check(!is_tree || std::cmp_equal(paths_.depths.size(), item.count),
            "a tree of {} rows in an item of {}", paths_.depths.size(), item.count);
      for (int k = 0; k < item.count; ++k) {
        std::int32_t token = batch.token_ids[row + k];
        if (token == kTokenFromSlot) token = slot.last;
        last = next_row(is_tree && k > 0 ? state_rows_[branches_->parents[k]] : last, token);
        state_rows_.push_back(last);
        for (std::size_t g = 0; g < batch.groups.size(); ++g)
          for (int branch = 0; branch < std::max(1, paths_.count); ++branch)
            if (!is_tree || (paths_.branches[k] >> branch & 1) != 0)
              *at(rank, batch, g, i, item.first + (is_tree ? paths_.depths[k] : k), branch) = last;
        if (state == nullptr) continue;
        // Behind a draft the state is that of the draft.
        if (item.decode && k > 0) state = &rank.rows.back()[batch.state_slots.at(next_state++) * 2];
        state[0] = static_cast<std::uint64_t>(item.first + k + 1);
        state[1] = last;
      }
      // A sampled row behind another counts where that one chose its token.
      bool has_token = false;
      item_begin_ = out.tokens.size();
      chosen_.assign(static_cast<std::size_t>(item.count), -1);
      for (; next_logit < batch.logit_rows.size() &&
             batch.logit_rows[next_logit].item == static_cast<int>(i);
           ++next_logit) {
        const LogitRow& logits = batch.logit_rows[next_logit];
        if (logits.sample && std::exchange(has_token, true) &&
            (out.failed[i] != 0 || is_broken(item, logits.position) ||
             chosen_[logits.row - row - logits.behind] != batch.token_ids[logits.row]))
          continue;
        take_row(rank, batch, i, logits, row, slot, out);
        if (logits.sample) chosen_[logits.row - row] = slot.last;
      }
      spoil_branches(rank, batch, row, out.tokens);
      row += item.count;
      out.token_offsets.push_back(static_cast<std::int32_t>(out.tokens.size()));
      out.prompt_offsets.push_back(static_cast<std::int32_t>(out.prompt_logprobs.size()));
    }
  }

  bool is_broken(const BatchItem& item, int position) const {
    return std::ranges::count(broken, Broken{item.sequence, position}) > 0;
  }

  void take_row(Rank& rank, const Batch& batch, std::size_t i, const LogitRow& logits,
                int first_row, Slot& slot, BatchResult& out) {
    const BatchItem& item = batch.items[i];
    const auto k = static_cast<std::size_t>(logits.row - first_row);
    const bool is_tree = paths_.count > 0;
    const int q = item.first + (is_tree ? paths_.depths[k] : static_cast<int>(k));
    const int branch = is_tree ? paths_.branch_of(k) : 0;
    std::uint64_t read = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const bool state = groups_[g].retention == Retention::kState;
      read = hash_combine(
          read, state ? state_rows_[logits.row - first_row] : sum(rank, batch, g, i, q, branch));
    }
    if (!logits.sample) {
      out.prompt_logprobs.push_back({logprob_of(read, logits.target), read, {}});
      return;
    }
    if (is_broken(item, logits.position)) out.failed[i] = 1;
    slot.last = choose(read, logits.position, slot.params, slot.history, slot.num_output);
    ++slot.num_output;
    slot.history += mix64(static_cast<std::uint64_t>(slot.last));
    out.tokens.push_back(slot.last);
    out.token_logprobs.push_back({logprob_of(read, slot.last), read, {}});
  }

  static const ItemBranches* branches_of(const Batch& batch, std::size_t item) {
    const auto found = std::ranges::find_if(
        batch.branches, [&](const ItemBranches& one) { return std::cmp_equal(one.item, item); });
    if (found == batch.branches.end()) return nullptr;
    for (const PageRows& rows : batch.groups)
      check(found->first_page + found->num_pages <= rows.offsets[item + 1] - rows.offsets[item],
            "branches of item {} reach beyond its pages", item);
    return &*found;
  }
  std::int32_t page_of_branch(const Batch& batch, std::size_t g, int branch, int entry) const {
    const std::size_t place = (static_cast<std::size_t>(branch - 1) * batch.groups.size() + g) *
                                  static_cast<std::size_t>(branches_->num_pages) +
                              static_cast<std::size_t>(entry - branches_->first_page);
    check(entry - branches_->first_page < branches_->num_pages && place < branches_->pages.size(),
          "branch {} has no page {}", branch, entry);
    return branches_->pages[place];
  }
  // Drafts of the result leave something in the pages of all branches but the right one.
  void spoil_branches(Rank& rank, const Batch& batch, int row,
                      const std::vector<std::int32_t>& all_tokens) {
    if (branches_ == nullptr) return;
    int right = 0;
    if (paths_.count > 0) {
      const auto tokens = std::span(batch.token_ids).subspan(row, branches_->parents.size());
      const auto taken = std::span(all_tokens).subspan(item_begin_);
      right = paths_.branch_of(right_rows(branches_->parents, tokens, taken).back());
    }
    const int count =
        1 +
        static_cast<int>(branches_->pages.size() /
                         (batch.groups.size() * static_cast<std::size_t>(branches_->num_pages)));
    for (int branch = 1; branch < count; ++branch)
      for (std::size_t g = 0; g < batch.groups.size() && branch != right; ++g)
        for (int i = 0; i < branches_->num_pages; ++i)
          std::fill_n(rank.rows[g].begin() +
                          page_of_branch(batch, g, branch, branches_->first_page + i) * kPageSize,
                      kPageSize, 0xF00D);
  }

  std::uint64_t* at(Rank& rank, const Batch& batch, std::size_t g, std::size_t i, int position,
                    int branch = 0) {
    if (branch > 0 && position / kPageSize >= branches_->first_page)
      return &rank.rows[g][page_of_branch(batch, g, branch, position / kPageSize) * kPageSize +
                           position % kPageSize];
    const PageRows& rows = batch.groups[g];
    const std::int32_t entry = rows.offsets[i] + position / kPageSize;
    check(entry < rows.offsets[i + 1] && rows.pages[entry] >= 0, "position {} has no page",
          position);
    return &rank.rows[g][rows.pages[entry] * kPageSize + position % kPageSize];
  }
  std::uint64_t previous(Rank& rank, const Batch& batch, std::size_t i, int position) {
    if (!batch.groups.empty() && groups_[0].keep_from(position + 1) <= position)
      return *at(rank, batch, 0, i, position);
    for (std::size_t g = 0; g < batch.groups.size(); ++g)
      if (groups_[g].keep_from(position + 1) <= position) return *at(rank, batch, g, i, position);
    return rank.rows.back()[batch.state_slots[i] * 2 + 1];
  }
  std::uint64_t sum(Rank& rank, const Batch& batch, std::size_t g, std::size_t i, int q,
                    int branch) {
    std::uint64_t total = 0;
    for (int p = static_cast<int>(groups_[g].keep_from(q)); p <= q;) {
      const int count = std::min(q + 1, (p / kPageSize + 1) * kPageSize) - p;
      const std::uint64_t* rows = at(rank, batch, g, i, p, branch);
      total = std::accumulate(rows, rows + count, total);
      p += count;
    }
    return total;
  }

  const std::vector<PageGroup> groups_;
  std::vector<Rank> ranks_;
  // Of the item that is computed:
  std::vector<std::uint64_t> state_rows_;
  std::vector<std::int32_t> chosen_;  // by each row
  const ItemBranches* branches_ = nullptr;
  DraftPaths paths_;
  std::size_t item_begin_ = 0;  // of its tokens
};

}  // namespace sluice::sim
