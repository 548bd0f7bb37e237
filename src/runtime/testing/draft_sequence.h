// For tests: one sequence on a runner of its own, whose steps a test cuts, and the references of
// speculation.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "base/testing/source_dir.h"
#include "batch/draft_paths.h"
#include "checkpoint/load_config.h"
#include "runtime/model_runner.h"

namespace sluice::draft_test {

using Tokens = std::vector<std::int32_t>;

inline constexpr int kMaxDrafts = 4;

namespace fs = std::filesystem;

inline fs::path own(const std::string& model) {
  return fs::path(source_dir()) / "tests/golden/models" / model;
}
// References that lie beside the repository on machines of developers.
inline fs::path recorded() {
  return fs::path(source_dir()).parent_path() / "shared/golden/speculation";
}

inline std::string text_of(const fs::path& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

inline std::shared_ptr<const DraftSource> draft_in(const fs::path& directory,
                                                   const ModelConfig& target,
                                                   bool is_whole = false) {
  DraftConfig config;
  const std::string text = text_of(directory / "config.json");
  if (is_dflash_config(text))
    config.dflash = parse_dflash_config(text, directory.string(), target);
  else if (is_eagle3_config(text))
    config.eagle3 = parse_eagle3_config(text, directory.string(), target);
  else if (is_eagle_config(text))
    config.eagle = parse_eagle_config(text, directory.string(), target);
  else
    config.model = load_model_config(directory);
  return std::make_shared<const DraftSource>(
      DraftSource{std::move(config), WeightSource::checkpoint(directory), is_whole});
}

// Of trees; with topk 1 drafts are chains.
struct TreeSize {
  int topk = 1, steps = 0, max_drafts = kMaxDrafts;
};

// One of the ranks that share the target, and the draft unless each has it whole.
struct RankOfDraft {
  Communicator* communicator = nullptr;
  bool has_whole_draft = false;
};

// One sequence on a runner of its own.
class Sequence {
 public:
  // The model's own layer drafts, or the model in `draft`. `as_rows`: as a GPU computes drafts.
  explicit Sequence(const fs::path& model, const fs::path& draft = {}, bool as_rows = false,
                    const TreeSize& tree = {}, const RankOfDraft& own = {})
      : config_(load_model_config(model)), tree_(tree) {
    set_log_level(LogLevel::kWarning);
    RunnerOptions options;
    options.placement.num_threads = 1;
    options.model.numerics.compute = DType::kF32;
    options.model.context_length = 256;
    options.model.draft_layer = draft.empty();
    options.limits = {
        .max_running_requests = 2, .max_step_tokens = 200, .max_draft_rows = as_rows ? 12 : 0};
    options.kv.max_total_tokens = 512;
    options.pads_draft_rows = as_rows;
    options.max_drafts = tree.max_drafts;
    options.limits.max_sequence_drafts = tree.max_drafts;
    if (tree.topk > 1) {
      options.limits.max_draft_rows = 64;
      options.limits.max_step_tokens = 300;
      options.kv.max_total_tokens = kNumPages * std::int64_t{kPageSize};
      options.draft_topk = tree.topk;
      options.draft_steps = tree.steps;
    }
    if (!draft.empty()) options.draft = draft_in(draft, config_, own.has_whole_draft);
    const StartupReport quiet = [](const std::string&, double, const std::string&) {};
    auto rank = std::make_unique<Rank>(options.placement, false, own.communicator);
    std::unique_ptr<Model> weights =
        load_rank_model(*rank, options, config_, WeightSource::checkpoint(model), quiet);
    weight_bytes = weights->weight_bytes();
    runner_ =
        std::make_unique<ModelRunner>(options, config_, std::move(rank), std::move(weights), quiet);
  }
  ~Sequence() { set_log_level(LogLevel::kInfo); }

  // Computes tokens in pieces; the last piece brings a token and drafts.
  BatchResult prefill(const Tokens& prompt, int piece) {
    known_ = prompt;
    BatchResult result;
    for (int first = 0; std::cmp_less(first, prompt.size()); first += piece) {
      const int end = std::min(first + piece, static_cast<int>(prompt.size()));
      const bool last = std::cmp_equal(end, prompt.size());
      result = step({.sequence = 1,
                     .slot = 0,
                     .first = first,
                     .count = end - first,
                     .decode = false,
                     .next_token = last ? -1 : prompt[static_cast<std::size_t>(end)]},
                    Tokens(prompt.begin() + first, prompt.begin() + end), last ? 1 : 0, first == 0);
    }
    take(result);
    return result;
  }
  // The last known token, and drafts behind it. At most `max_drafts` drafts come with the result.
  // `is_ahead`: the step was planned before that token was known.
  BatchResult verify(const Tokens& drafts, int max_drafts = -1, bool is_ahead = false) {
    max_drafts_ = max_drafts;
    Tokens rows = {is_ahead ? kTokenFromSlot : known_.back()};
    rows.insert(rows.end(), drafts.begin(), drafts.end());
    const auto count = static_cast<std::int32_t>(rows.size());
    const BatchResult result = step({.sequence = 1,
                                     .slot = 0,
                                     .first = static_cast<std::int32_t>(known_.size()) - 1,
                                     .count = count,
                                     .decode = true},
                                    rows, count, false);
    take(result);
    return result;
  }
  // The last known token, and a tree behind it (BatchResult::draft_parents).
  BatchResult verify_tree(const Tokens& drafts, const Tokens& draft_parents) {
    BatchResult result = run_tree(drafts, draft_parents, nullptr);
    const Tokens rows = rows_of(drafts, known_.back());
    const ItemBranches& tree = last_.branches.front();
    const std::int32_t right = right_rows(tree.parents, rows, result.tokens).back();
    const int branch = paths_of(tree.parents).branch_of(static_cast<std::size_t>(right));
    if (branch > 0)
      std::copy_n(tree.pages.begin() + static_cast<std::ptrdiff_t>(branch - 1) * tree.num_pages *
                                           static_cast<std::ptrdiff_t>(last_.groups.size()),
                  tree.num_pages, pages_.begin() + tree.first_page);
    take(result);
    return result;
  }
  // Log-probabilities of a token behind each node of a tree, and of the two best.
  std::vector<RowLogprobs> logprobs_behind(const Tokens& drafts, const Tokens& draft_parents,
                                           const Tokens& targets) {
    return run_tree(drafts, draft_parents, &targets).prompt_logprobs;
  }
  const Tokens& known() const { return known_; }
  std::int64_t weight_bytes = 0;  // of the target and its draft

 private:
  void take(const BatchResult& result) {
    known_.insert(known_.end(), result.tokens.begin(), result.tokens.end());
  }
  static Tokens rows_of(Tokens drafts, std::int32_t first) {
    drafts.insert(drafts.begin(), first);
    return drafts;
  }
  // Branch pages of equal numbers in all groups, none of them the sequence's own.
  void add_branches(Batch& batch, Tokens parents, std::int32_t first, std::int32_t end) {
    const int paths = parents.empty() ? 1 : paths_of(parents).count;
    ItemBranches& out = batch.branches.emplace_back();
    out.parents = std::move(parents);
    out.first_page = first / std::int32_t{kPageSize};
    out.num_pages = std::min<std::int32_t>(
        4 - out.first_page, (end + tree_.steps + kPageSize - 1) / kPageSize - out.first_page);
    std::int32_t page = 0;
    for (int branch = 1; branch < std::max(paths, tree_.topk); ++branch) {
      Tokens pages;
      for (; std::cmp_less(pages.size(), out.num_pages); ++page)
        if (std::ranges::count(pages_, page) == 0) pages.push_back(page);
      for (std::size_t g = 0; g < batch.groups.size(); ++g) {
        out.pages.insert(out.pages.end(), pages.begin(), pages.end());
        if (branch < paths && first % kPageSize > 0)
          batch.copies.push_back({static_cast<std::int32_t>(g),
                                  pages_[static_cast<std::size_t>(out.first_page)], pages.front(),
                                  static_cast<std::int32_t>(first % kPageSize)});
      }
    }
    EXPECT_LE(page, kNumPages);
  }
  BatchResult run_tree(const Tokens& drafts, const Tokens& draft_parents, const Tokens* targets) {
    const Tokens rows = rows_of(drafts, known_.back()), parents = rows_of(draft_parents, -1);
    const DraftPaths paths = paths_of(parents);
    const auto first = static_cast<std::int32_t>(known_.size()) - 1;
    Batch& batch = begin({.sequence = 1,
                          .slot = 0,
                          .first = first,
                          .count = static_cast<std::int32_t>(rows.size()),
                          .decode = true},
                         rows);
    add_branches(batch, parents, first, first + 1 + paths.depth());
    for (std::size_t i = 0; i < rows.size(); ++i)
      batch.logit_rows.push_back(
          {.item = 0,
           .row = static_cast<std::int32_t>(i),
           .position = first + paths.depths[i] + 1,
           .sample = targets == nullptr,
           .target = targets == nullptr ? -1 : (*targets)[i],
           .num_top_logprobs = targets == nullptr ? -1 : 2,
           .behind = i == 0 ? 1 : static_cast<std::int32_t>(i) - parents[i]});
    return run(batch);
  }
  Batch& begin(const BatchItem& item, const Tokens& tokens) {
    last_ = {};
    Batch& batch = last_;
    batch.mode = item.decode ? ForwardMode::kTargetVerify : ForwardMode::kExtend;
    batch.items = {item};
    batch.max_drafts = max_drafts_;
    batch.token_ids = tokens;
    const std::int64_t num_groups = num_page_groups(runner_->groups());
    // Recurrent layers: the sequence's state, and one behind each draft.
    if (std::cmp_less(num_groups, runner_->groups().size()))
      for (std::size_t i = 0; std::cmp_less(i, item.decode ? item.count : 1); ++i)
        batch.state_slots.push_back(static_cast<std::int32_t>((right_state_ + i) % 8));
    for (std::int64_t g = 0; g < num_groups; ++g) {
      PageRows& pages = batch.groups.emplace_back();
      pages.pages = pages_;
      pages.offsets = {0, 4};
    }
    return batch;
  }
  BatchResult step(const BatchItem& item, const Tokens& tokens, int num_sampled, bool begins) {
    Batch& batch = begin(item, tokens);
    const std::int32_t end = item.first + item.count;
    if (tree_.topk > 1 && num_sampled > 0)
      add_branches(batch, {}, item.decode ? item.first + 1 : end, end);
    for (int i = item.count - num_sampled; i < item.count; ++i)
      batch.logit_rows.push_back(
          {.item = 0, .row = i, .position = item.first + i + 1, .sample = true});
    if (begins) {
      SlotInit& init = batch.slot_inits.emplace_back();
      init.params.temperature = 0;
    }
    return run(batch);
  }
  BatchResult run(const Batch& batch) {
    Pending pending = runner_->launch(batch);
    runner_->sample(pending);
    BatchResult result = runner_->collect(std::move(pending));
    // The next step begins behind the last right row.
    if (!batch.state_slots.empty() && batch.items[0].decode)
      right_state_ += result.tokens.size() - 1;
    return result;
  }

  static constexpr int kNumPages = 96;
  const ModelConfig config_;
  const TreeSize tree_;
  Tokens pages_ = {0, 1, 2, 3};  // of every group
  Batch last_;
  std::unique_ptr<ModelRunner> runner_;
  Tokens known_;
  int max_drafts_ = -1;
  std::size_t right_state_ = 0;
};

inline Tokens prompt_of(int size) {
  Tokens prompt;
  for (int i = 0; i < size; ++i) prompt.push_back(3 + i * i % 211);
  return prompt;
}

inline Tokens drafts_of(const BatchResult& result) {
  const auto drafts = result.drafts_of(0);
  return {drafts.begin(), drafts.end()};
}

// A target; with `has_index` its file beside those of `folder`, which make one checkpoint with it.
struct TestCheckpoint {
  fs::path path;
  const bool is_made;

  TestCheckpoint(const fs::path& target, const fs::path& folder, bool has_index)
      : path(target), is_made(has_index) {
    if (!is_made) return;
    path = fs::path(::testing::TempDir()) /
           fmt::format("checkpoint-{}-{}", folder.filename().string(), ::getpid());
    fs::remove_all(path);
    fs::create_directories(path);
    for (const auto& file : fs::directory_iterator(folder))
      fs::copy(file.path(), path / file.path().filename());
    fs::copy(target / "model.safetensors", path / "model.safetensors");
  }
  ~TestCheckpoint() {
    if (is_made) fs::remove_all(path);
  }
};

}  // namespace sluice::draft_test
