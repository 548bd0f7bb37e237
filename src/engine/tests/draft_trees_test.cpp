// Trees of drafts through the whole engine: what they bring equals what comes without them.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "base/testing/folder.h"
#include "base/testing/source_dir.h"
#include "engine/testing/speculation_outcome.h"

namespace sluice {
namespace {

Options with_trees(Options options, const char* method = "NEXTN", const std::string& draft = {}) {
  options.speculative_algorithm = method;
  options.speculative_draft_model_path = draft;
  options.speculative_eagle_topk = 4;
  options.speculative_num_steps = 3;
  options.speculative_num_draft_tokens = 16;
  return with_all_drafts(options);
}

Options tiny() {
  Options options = options_for("qwen3");
  options.model = source_dir() + "/models/sluice-tiny";
  options.chunked_prefill_size = 100;
  return options;
}

// A copy of a model's directory drafts for it: the directory itself is refused.
class Copy {
 public:
  explicit Copy(const std::string& model) : path_(folder_.path() + "/" + model) {
    std::filesystem::copy(source_dir() + "/tests/golden/models/" + model, path_,
                          std::filesystem::copy_options::recursive);
  }
  const std::string& path() const { return path_; }

 private:
  const TestFolder folder_;
  const std::string path_;
};

// As a GPU computes trees: rows padded to the sizes of graphs, and tokens that a device chooses.
Options padded(Options options) {
  options.drafts_as_rows = true;
  return options;
}

void expect_no_change(const Options& options, const Options& trees) {
  for (const int count : {1, 3, 17}) {
    SCOPED_TRACE(count);
    const std::vector<Request> requests = greedy_requests(count);
    const Outcome plain = outcome_of(options, requests);
    for (const Options& each : {trees, padded(trees)}) {
      const Outcome drafted = outcome_of(each, requests);
      expect_equal(drafted, plain);
      EXPECT_GT(drafted.stats.drafted_tokens, 100u);
    }
  }
}

void expect_no_change_pressed(Options options, Options trees) {
  options = with_little_memory(options);
  trees = with_little_memory(trees);
  std::vector<Request> longer = greedy_requests(9);
  for (Request& request : longer) request.max_new_tokens += 60;
  const Outcome plain = outcome_of(options, longer);
  for (const Options& each : {trees, padded(trees)}) {
    const Outcome pressed = outcome_of(each, longer);
    expect_equal(pressed, plain);
    EXPECT_GT(pressed.stats.retracted, 0u);
  }
}

TEST(DraftTrees, LayersOfModelsChangeNothing) {
  for (const char* model : {"deepseek-v3", "deepseek-v32", "glm-moe-dsa", "mimo"}) {
    SCOPED_TRACE(model);
    const Options options = options_for(model);
    expect_no_change(options, with_trees(options));
    expect_no_change_pressed(options, with_trees(options));
  }
}

// Windows, latent attention, experts; and equal weights, of which the best drafts are right.
TEST(DraftTrees, DraftModelsChangeNothing) {
  const std::string models = source_dir() + "/tests/golden/models/";
  for (const auto& [target, draft] :
       {std::pair{"qwen3-moe", "llama-llama3-tied"}, std::pair{"qwen2-yarn-swa", "mistral-swa"},
        std::pair{"glm-moe-dsa-pattern", "qwen3"}}) {
    SCOPED_TRACE(target);
    const Options options = options_for(target);
    const Options trees = with_trees(options, "STANDALONE", models + draft);
    expect_no_change(options, trees);
    expect_no_change_pressed(options, trees);
  }
  for (const char* target : {"mistral-swa", "deepseek-v2-lite"}) {
    SCOPED_TRACE(target);
    const Copy copy(target);
    const Options options = options_for(target);
    const Options trees = with_trees(options, "STANDALONE", copy.path());
    expect_no_change(options, trees);
    expect_no_change_pressed(options, trees);
    const Outcome drafted = outcome_of(trees, greedy_requests(3));
    // Not all best paths are in a tree: the probabilities of random weights are flat.
    EXPECT_GT(drafted.stats.accepted_tokens, 2 * drafted.stats.drafted_rows);
  }
}

// Trees of any size, chains and nothing in turn: what pays on this machine at this moment.
TEST(DraftTrees, AsManyAsPayChangeNothing) {
  const Copy copy("mistral-swa");
  for (const bool own : {false, true}) {
    SCOPED_TRACE(own);
    const Options options = own ? tiny() : options_for("mistral-swa");
    Options trees = own ? with_trees(options) : with_trees(options, "STANDALONE", copy.path());
    trees.speculative_adaptive = true;
    trees.drafts_as_rows = own;
    for (const int count : {1, 17}) {
      std::vector<Request> requests = greedy_requests(count);
      for (Request& request : requests) request.max_new_tokens += 200;
      const Outcome drafted = outcome_of(trees, requests);
      expect_equal(drafted, outcome_of(options, requests));
      EXPECT_GT(drafted.stats.drafted_tokens, 0u);
    }
    expect_no_change_pressed(options, trees);
  }
}

TEST(DraftTrees, CachedPrefixesChangeNothing) {
  const Copy copy("mistral-swa");
  for (const bool own : {false, true}) {
    SCOPED_TRACE(own);
    Options options = own ? tiny() : options_for("mistral-swa");
    options.max_running_requests = 2;
    std::vector<Request> requests;
    for (int turn = 0; turn < 3; ++turn)
      for (int i = 0; i < 2; ++i) requests.push_back(greedy(prompt_of(i, 70 + 30 * turn), 70));
    const Outcome drafted = outcome_of(
        own ? with_trees(options) : with_trees(options, "STANDALONE", copy.path()), requests);
    expect_equal(drafted, outcome_of(options, requests));
    EXPECT_GT(drafted.stats.prefix_hit_tokens, 100u);
    EXPECT_GT(drafted.stats.accepted_tokens, 100u);
  }
}

TEST(DraftTrees, ComposeWithHowTokensAreChosen) {
  std::vector<Request> requests;
  for (int i = 0; i < 24; ++i) {
    Request request = greedy(prompt_of(i, 20 + i), 50);
    SamplingParams& params = request.params;
    params.num_top_logprobs = i % 2;
    params.seed = static_cast<std::uint64_t>(i);
    if (i % 8 == 1) params.temperature = 0.3f;
    if (i % 8 == 2) params.temperature = 0.8f, params.top_k = 5, params.top_p = 0.9f;
    if (i % 8 == 3) params.repetition_penalty = 1.2f;
    if (i % 8 == 4) params.frequency_penalty = 0.3f, params.presence_penalty = 0.2f;
    if (i % 8 == 5) params.logit_bias = {{3, 2.0f}, {8, -50.0f}}, params.min_p = 0.1f;
    if (i % 8 == 6) {
      request.ignore_eos = false;
      params.min_new_tokens = 10;
      params.stop_token_ids = {3, 8, 13, 18, 23};
    }
    if (i % 8 == 7) request.num_choices = 3, params.temperature = 0.4f;
    if (i % 3 == 0) request.stop = {"x"};  // see Doubled
    if (i % 5 == 0) request.logprob_start = 0;
    requests.push_back(std::move(request));
  }
  const Copy copy("qwen3");
  const Options options = options_for("qwen3");
  const Options trees = with_trees(options, "STANDALONE", copy.path());
  for (const auto& [plain, drafting] :
       {std::pair{options, trees}, std::pair{tiny(), with_trees(tiny())}}) {
    const Outcome wanted = outcome_of(plain, requests);
    for (const Options& each : {drafting, padded(drafting)}) {
      const Outcome drafted = outcome_of(each, requests);
      expect_equal(drafted, wanted);
      EXPECT_GT(drafted.stats.accepted_tokens, 200u);
    }
  }
}

TEST(DraftTrees, ComposeWithOtherTypesOfWeightsAndCache) {
  const Copy copy("qwen3");
  for (const auto& [cache, weights] :
       {std::pair{"int8", "auto"}, std::pair{"bfloat16", "int8"}, std::pair{"auto", "int4"}}) {
    SCOPED_TRACE(std::string(cache) + ", " + weights);
    Options options = options_for("qwen3");
    options.dtype = "bfloat16";
    options.kv_cache_dtype = cache;
    options.quantization = weights;
    const Options trees = with_trees(options, "STANDALONE", copy.path());
    const Outcome plain = outcome_of(options, greedy_requests(5));
    for (const Options& each : {trees, padded(trees)}) {
      const Outcome drafted = outcome_of(each, greedy_requests(5));
      expect_equal(drafted, plain);
      EXPECT_GT(drafted.stats.accepted_tokens, 50u);
    }
  }
}

// Every third token is one of two.
class Cycle : public TokenConstraint {
 public:
  explicit Cycle(int& refused) : refused_(refused) {}
  bool fill(std::span<std::uint32_t> bits) override {
    std::ranges::fill(bits, 0u);
    for (const int token : {first(), first() + 1})
      bits[static_cast<std::size_t>(token) / 32] |= 1u << (token % 32);
    return true;
  }
  bool accept(std::int32_t token) override {
    if (token != first() && token != first() + 1) {
      ++refused_;
      return false;
    }
    ++step_;
    return true;
  }
  void rollback(std::size_t count) override {
    step_ -= static_cast<int>(count);
    EXPECT_GE(step_, 0);
  }
  void draft(int max_drafts, std::vector<std::int32_t>& drafts) override {
    for (int i = 0; i < max_drafts; ++i) drafts.push_back(10 + 2 * ((step_ + i) % 3));
  }

 private:
  int first() const { return 10 + 2 * (step_ % 3); }

  int& refused_;
  int step_ = 0;
};

TEST(DraftTrees, FollowTheGrammar) {
  const Copy copy("qwen3");
  for (const float temperature : {0.0f, 1.0f})
    for (const bool forced : {false, true}) {
      int refused = 0;
      std::vector<Request> requests;
      for (int i = 0; i < 4; ++i) {
        Request request = greedy(prompt_of(i, 30), 60);
        request.params.temperature = temperature;
        request.params.seed = static_cast<std::uint64_t>(i);
        request.params.num_top_logprobs = 1;
        if (i < 3)
          request.make_constraint = [&refused] { return std::make_unique<Cycle>(refused); };
        requests.push_back(std::move(request));
      }
      Options options = options_for("qwen3");
      const Outcome plain = outcome_of(options, requests);
      options.draft_forced_tokens = forced;
      const Options trees = with_trees(options, "STANDALONE", copy.path());
      for (const Options& each : {trees, padded(trees)}) {
        const Outcome drafted = outcome_of(each, requests);
        expect_equal(drafted, plain);
        EXPECT_EQ(refused, 0) << "masks come before";
        if (forced) {
          EXPECT_GT(drafted.stats.accepted_tokens, 60u);
        }
      }
    }
}

TEST(DraftTrees, CountsAddUp) {
  const Outcome found = outcome_of(with_trees(tiny()), {greedy(prompt_of(1, 60), 200)});
  const EngineStats& stats = found.stats;
  EXPECT_EQ(1 + stats.verifications + stats.accepted_tokens, 200u);
  EXPECT_GT(stats.accepted_tokens, 60u);
  EXPECT_LE(stats.drafted_tokens, 15 * stats.drafted_rows);
  EXPECT_GT(stats.drafted_tokens, 12 * stats.drafted_rows);
  ASSERT_EQ(stats.accepted_by_place.size(), 15u);
  EXPECT_GT(stats.accepted_by_place[2], 0);
  EXPECT_EQ(stats.accepted_by_place[3], 0) << "three steps";
}

TEST(DraftTrees, RequestsThatLeaveAtAnyMomentLeaveNothingBehind) {
  const Copy copy("qwen3");
  auto engine = Engine::create(with_trees(options_for("qwen3"), "STANDALONE", copy.path()));
  for (int round = 0; round < 20; ++round) {
    Collector leaves, stays;
    const auto id = engine->submit(greedy(prompt_of(round, 30), 300), leaves.sink());
    ASSERT_TRUE(id.ok());
    ASSERT_TRUE(engine->submit(greedy(prompt_of(3, 40), 30), stays.sink()).ok());
    leaves.wait_tokens(static_cast<std::size_t>(1 + 3 * round));
    engine->abort(*id);
    leaves.wait();
    stays.wait();
    EXPECT_EQ(stays.finish[0], FinishReason::kLength);
  }
  for (int i = 0; i < 1000 && !engine->flush_cache(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(engine->stats().used_tokens, 0);
}

Json file_of(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return parse_json_or_throw(text.str(), path.string());
}

std::filesystem::path recorded() {
  return std::filesystem::path(source_dir()).parent_path() / "shared/golden/speculation";
}

// Heads lie beside the repository on machines of developers.
TEST(DraftTrees, HeadsChangeNothing) {
  if (!std::filesystem::exists(recorded())) GTEST_SKIP() << recorded() << " is not there";
  for (const auto& [method, target, head] :
       {std::tuple{"EAGLE3", "targets/llama-8l", "families/eagle3-llama"},
        std::tuple{"EAGLE3", "targets/qwen3-7l", "families/eagle3-speculators-qwen3"},
        std::tuple{"EAGLE3", "../models/gpt-oss", "families/eagle3-gpt-oss"},
        std::tuple{"EAGLE3", "../models/glm-moe-dsa-shared-index", "families/eagle3-llama-for-mla"},
        std::tuple{"EAGLE3", "../models/glm-moe-dsa-pattern", "families/eagle3-mla"},
        std::tuple{"EAGLE", "../models/llama-plain", "families/eagle-llama"}}) {
    SCOPED_TRACE(head);
    Options options = options_for("qwen3");
    options.model = recorded() / target;
    const Options trees = with_trees(options, method, recorded() / head);
    expect_no_change(options, trees);
    expect_no_change_pressed(options, trees);
  }
}

// A trained head: tokens for each verification, as recorded.
TEST(DraftTrees, TheTrainedHeadIsRightAsOftenAsRecorded) {
  if (!std::filesystem::exists(recorded())) GTEST_SKIP() << recorded() << " is not there";
  const Json reference = file_of(recorded() / "sluice-tiny-eagle3/golden.json"),
             prompts = file_of(recorded() / "mtp-sluice-tiny.json");
  std::vector<Request> requests;
  std::vector<std::vector<std::int32_t>> wanted;
  for (const Json& prompt : prompts["prompts"]) {
    wanted.push_back(prompt["output_ids"]);
    requests.push_back(greedy(prompt["prompt_ids"], static_cast<int>(wanted.back().size())));
  }
  Options options = tiny();
  options.model = source_dir() + "/models/sluice-tiny";
  options.max_total_tokens = 65536;
  options.max_running_requests = 8;
  options.chunked_prefill_size = 512;
  const Outcome found =
      outcome_of(with_trees(options, "EAGLE3", recorded() / "sluice-tiny-eagle3"), requests);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_EQ(found.answers[i].tokens[0], wanted[i]) << i;
  const double length = 1 + double(found.stats.accepted_tokens) / double(found.stats.verifications);
  const double of_reference = reference["acceptance"]["tree_steps3_topk4_16"]["mean_accept_length"];
  EXPECT_NEAR(length, of_reference, 0.02 * of_reference);
}

}  // namespace
}  // namespace sluice
