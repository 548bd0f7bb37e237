// Drafts of models' own layers and of draft models: the same however a sequence is cut into steps,
// and equal to recorded ones where those are there.
#include "runtime/draft_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>

#include "base/json.h"
#include "base/log.h"
#include "checkpoint/load_config.h"
#include "runtime/model_runner.h"

namespace sluice {
namespace {

using Tokens = std::vector<std::int32_t>;

constexpr int kMaxDrafts = 4;
const char* const kModels[] = {"deepseek-v3", "deepseek-v32", "glm-moe-dsa", "mimo"};

namespace fs = std::filesystem;

fs::path own(const std::string& model) {
  return fs::path(SLUICE_SOURCE_DIR) / "tests/golden/models" / model;
}
// References that lie beside the repository on machines of developers.
fs::path recorded() {
  return fs::path(SLUICE_SOURCE_DIR).parent_path() / "shared/golden/speculation";
}

std::string text_of(const fs::path& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

std::shared_ptr<const DraftSource> draft_in(const fs::path& directory, const ModelConfig& target) {
  DraftConfig config;
  const std::string text = text_of(directory / "config.json");
  if (is_eagle3_config(text))
    config.eagle3 = parse_eagle3_config(text, directory.string(), target);
  else if (is_eagle_config(text))
    config.eagle = parse_eagle_config(text, directory.string(), target);
  else
    config.model = load_model_config(directory);
  return std::make_shared<const DraftSource>(
      DraftSource{std::move(config), WeightSource::checkpoint(directory)});
}

// One sequence on a runner of its own.
class Sequence {
 public:
  // The model's own layer drafts, or the model in `draft`. `as_rows`: as a GPU computes drafts.
  explicit Sequence(const fs::path& model, const fs::path& draft = {}, bool as_rows = false)
      : config_(load_model_config(model)) {
    set_log_level(LogLevel::kWarning);
    RunnerOptions options;
    options.placement.num_threads = 1;
    options.model.numerics.compute = DType::kF32;
    options.model.context_length = 256;
    options.model.draft_layer = draft.empty();
    options.limits = {
        .max_running_requests = 2, .max_step_tokens = 200, .max_draft_rows = as_rows ? 12 : 0};
    options.kv.max_total_tokens = 512;
    options.max_drafts = kMaxDrafts;
    if (!draft.empty()) options.draft = draft_in(draft, config_);
    const StartupReport quiet = [](const std::string&, double, const std::string&) {};
    auto rank = std::make_unique<Rank>(options.placement, false, nullptr);
    std::unique_ptr<Model> weights =
        load_rank_model(*rank, options, config_, WeightSource::checkpoint(model), quiet);
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
  BatchResult verify(const Tokens& drafts, int max_drafts = -1) {
    max_drafts_ = max_drafts;
    Tokens rows = {known_.back()};
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
  const Tokens& known() const { return known_; }

 private:
  void take(const BatchResult& result) {
    known_.insert(known_.end(), result.tokens.begin(), result.tokens.end());
  }
  BatchResult step(const BatchItem& item, const Tokens& tokens, int num_sampled, bool begins) {
    Batch batch;
    batch.mode = item.decode ? ForwardMode::kTargetVerify : ForwardMode::kExtend;
    batch.items = {item};
    batch.max_drafts = max_drafts_;
    batch.token_ids = tokens;
    for (std::size_t g = 0; g < runner_->groups().size(); ++g) {
      PageRows& pages = batch.groups.emplace_back();
      pages.pages.resize(4);
      std::iota(pages.pages.begin(), pages.pages.end(), 0);
      pages.offsets = {0, 4};
    }
    for (int i = item.count - num_sampled; i < item.count; ++i)
      batch.logit_rows.push_back(
          {.item = 0, .row = i, .position = item.first + i + 1, .sample = true});
    if (begins) {
      SlotInit& init = batch.slot_inits.emplace_back();
      init.params.temperature = 0;
    }
    Pending pending = runner_->launch(batch);
    runner_->sample(pending);
    return runner_->collect(std::move(pending));
  }

  const ModelConfig config_;
  std::unique_ptr<ModelRunner> runner_;
  Tokens known_;
  int max_drafts_ = -1;
};

Tokens prompt_of(int size) {
  Tokens prompt;
  for (int i = 0; i < size; ++i) prompt.push_back(3 + i * i % 211);
  return prompt;
}

Tokens drafts_of(const BatchResult& result) {
  const auto drafts = result.drafts_of(0);
  return {drafts.begin(), drafts.end()};
}

// A target, and what drafts for it; without a path its own layer.
struct Pair {
  fs::path model, draft;
};

void expect_no_difference(const Pair& pair, bool as_rows) {
  Sequence plain(pair.model, pair.draft);
  std::vector<Tokens> wanted = {drafts_of(plain.prefill(prompt_of(90), 1000))};
  for (int i = 0; i < 12; ++i) wanted.push_back(drafts_of(plain.verify({})));
  for (const Tokens& drafts : wanted) EXPECT_EQ(drafts.size(), std::size_t{kMaxDrafts});

  Sequence cut(pair.model, pair.draft, as_rows);
  EXPECT_EQ(drafts_of(cut.prefill(prompt_of(90), 17)), wanted[0]);
  // Right drafts, and some behind them that are wrong.
  for (std::size_t done = 0; done < 12;) {
    Tokens drafts;
    for (std::size_t i = 0; i < done % 4 && done + i + 1 < 12; ++i)
      drafts.push_back(plain.known()[90 + done + 1 + i]);
    drafts.push_back((plain.known()[90 + done + 1 + drafts.size()] + 1) % 200);
    const BatchResult result = cut.verify(drafts);
    done += result.tokens.size();
    ASSERT_EQ(result.tokens.size(), drafts.size());
    EXPECT_EQ(drafts_of(result), wanted[done]) << "after " << done;
  }
}

TEST(DraftRunner, DraftsDoNotDependOnHowTheStepsWereCut) {
  std::vector<Pair> pairs;
  for (const char* model : kModels) pairs.push_back({own(model), {}});
  // An ordinary model drafts for another one with as many tokens.
  pairs.push_back({own("qwen3-moe"), own("llama-llama3-tied")});
  pairs.push_back({own("mistral-swa"), own("deepseek-v2-lite")});
  for (const Pair& pair : pairs)
    for (const bool as_rows : {false, true}) {
      SCOPED_TRACE(pair.model.string() + ", " + pair.draft.string());
      expect_no_difference(pair, as_rows);
    }
}

// Heads lie beside the repository on machines of developers.
TEST(DraftRunner, DraftsOfHeadsDoNotDependOnHowTheStepsWereCut) {
  if (!fs::exists(recorded())) GTEST_SKIP() << recorded() << " is not there";
  for (const auto& [model, head] :
       {std::pair{"targets/llama-8l", "families/eagle3-llama"},
        std::pair{"targets/qwen3-7l", "families/eagle3-speculators-qwen3"},
        std::pair{"../models/glm-moe-dsa-shared-index", "families/eagle3-llama-for-mla"},
        std::pair{"../models/llama-plain", "families/eagle3-no-aux"},
        std::pair{"../models/llama-llama3-tied", "families/eagle-llama-nobias"},
        std::pair{"../models/glm4-moe", ""}, std::pair{"targets/mimo", ""}}) {
    SCOPED_TRACE(head);
    const fs::path draft = *head == 0 ? fs::path() : recorded() / head;
    expect_no_difference({recorded() / model, draft}, false);
    expect_no_difference({recorded() / model, draft}, true);
  }
}

// Steps without drafts, and with fewer: what was left out is made up for.
TEST(DraftRunner, DraftsAreTheSameBehindStepsWithoutThem) {
  std::vector<Pair> pairs = {{own("deepseek-v3"), {}},
                             {own("deepseek-v32"), {}},
                             {own("mistral-swa"), own("deepseek-v2-lite")}};
  if (fs::exists(recorded()))
    pairs.push_back({recorded() / "targets/llama-8l", recorded() / "families/eagle3-llama"});
  for (const Pair& pair : pairs) {
    SCOPED_TRACE(pair.model.string() + ", " + pair.draft.string());
    Sequence all(pair.model, pair.draft), some(pair.model, pair.draft, true);
    EXPECT_EQ(drafts_of(all.prefill(prompt_of(50), 1000)),
              drafts_of(some.prefill(prompt_of(50), 1000)));
    // Over the end of the first page, and once two steps behind each other.
    for (int i = 0; i < 40; ++i) {
      const Tokens wanted = drafts_of(all.verify({}));
      const int most = i % 10 == 9 ? 2 : i == 25 || i == 26 ? -1 : 0;
      const Tokens found = drafts_of(some.verify({}, most));
      const std::size_t count = most < 0 ? wanted.size() : static_cast<std::size_t>(most);
      EXPECT_EQ(found, Tokens(wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(count)))
          << "step " << i;
    }
  }
}

// More steps than are kept: no drafts from then on, until the sequence begins anew.
TEST(DraftRunner, ASequenceThatWentOnForLongHasNoDrafts) {
  Sequence sequence(own("deepseek-v3"));
  sequence.prefill(prompt_of(10), 1000);
  for (int i = 0; i < 205; ++i) EXPECT_TRUE(drafts_of(sequence.verify({}, 0)).empty());
  EXPECT_TRUE(drafts_of(sequence.verify({})).empty());
  EXPECT_TRUE(drafts_of(sequence.verify({})).empty());
  EXPECT_EQ(drafts_of(sequence.prefill(prompt_of(10), 1000)).size(), std::size_t{kMaxDrafts});
}

// The sequence has four pages: at their end no slot is left for drafts but the first, which needs
// none.
TEST(DraftRunner, DraftsEndWithThePages) {
  Sequence sequence(own("deepseek-v3"));
  EXPECT_EQ(drafts_of(sequence.prefill(prompt_of(253), 100)).size(), std::size_t{kMaxDrafts});
  EXPECT_EQ(drafts_of(sequence.verify({})).size(), 3u);
  EXPECT_EQ(drafts_of(sequence.verify({})).size(), 2u);
  EXPECT_EQ(drafts_of(sequence.verify({})).size(), 1u);
}

// A target; with `has_index` its file beside those of `folder`, which make one checkpoint with it.
struct Checkpoint {
  fs::path path;
  const bool is_made;

  Checkpoint(const fs::path& target, const fs::path& folder, bool has_index)
      : path(target), is_made(has_index) {
    if (!is_made) return;
    path = fs::path(::testing::TempDir()) / ("checkpoint-" + folder.filename().string());
    fs::remove_all(path);
    fs::create_directories(path);
    for (const auto& file : fs::directory_iterator(folder))
      fs::copy(file.path(), path / file.path().filename());
    // A file of the usual name alone would be the whole model, whatever an index lists.
    fs::copy(target / "model.safetensors", path / "target.safetensors");
    const fs::path index = path / "model.safetensors.index.json";
    std::string text = text_of(index);
    constexpr std::string_view kOld = "\"model.safetensors\"", kNew = "\"target.safetensors\"";
    for (std::size_t at = 0; (at = text.find(kOld, at)) != std::string::npos; at += kNew.size())
      text.replace(at, kOld.size(), kNew);
    fs::remove(index);
    std::ofstream(index) << text;
  }
  ~Checkpoint() {
    if (is_made) fs::remove_all(path);
  }
};

TEST(DraftRunner, EqualsRecordedDrafts) {
  if (!fs::exists(recorded())) GTEST_SKIP() << recorded() << " is not there";
  int compared = 0;
  for (const char* family :
       {"mtp-deepseek-v3", "mtp-deepseek-v32", "mtp-glm-moe-dsa", "eagle3-llama",
        "eagle3-llama-nested-ids", "eagle3-qwen3", "eagle3-speculators-qwen3", "eagle3-gpt-oss",
        "eagle3-no-aux", "eagle3-llama-for-mla", "standalone-llama", "eagle-llama",
        "eagle-llama-nobias", "mtp-glm4-moe", "mtp-ernie", "mtp-mimo"}) {
    SCOPED_TRACE(family);
    const fs::path folder = recorded() / "families" / family;
    const Json reference = parse_json_or_throw(text_of(folder / "golden.json"), family);
    const bool has_index = fs::exists(folder / "model.safetensors.index.json");
    const bool is_own = has_index || reference["draft"] == "inside the target";
    const Checkpoint checkpoint(folder / reference["target"].get<std::string>(), folder, has_index);
    Sequence sequence(checkpoint.path, is_own ? fs::path() : folder);
    for (const Json& prompt : reference["prompts"]) {
      const Tokens greedy = prompt["greedy"];
      BatchResult result = sequence.prefill(prompt["ids"], 1000);
      for (const Json& recorded : prompt["drafts"]) {
        const auto after = recorded["after"].get<std::size_t>();
        ASSERT_EQ(result.tokens, Tokens{greedy[after]});
        Tokens drafts = drafts_of(result), wanted = recorded["tokens"];
        const auto sure = recorded["sure"].get<std::size_t>();
        ASSERT_EQ(drafts.size(), wanted.size());
        drafts.resize(sure);
        wanted.resize(sure);
        EXPECT_EQ(drafts, wanted) << "after " << after;
        compared += static_cast<int>(sure);
        result = sequence.verify({});
      }
    }
  }
  EXPECT_GT(compared, 2000);
}

}  // namespace
}  // namespace sluice
