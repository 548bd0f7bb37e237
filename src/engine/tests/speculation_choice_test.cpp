#include "engine/speculation_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/source_dir.h"
#include "checkpoint/load_config.h"
#include "engine/serving_plan.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

Options with(std::initializer_list<std::pair<const char*, const char*>> values) {
  Options options;
  for (const auto& [name, value] : values) set_option(options, name, value);
  return options;
}

std::string error_of(const char* name, const char* value) {
  try {
    (void)with({{name, value}});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    return error.message();
  }
  return "";
}

TEST(SpeculationChoice, OptionsOfBothEngines) {
  EXPECT_FALSE(choose_speculation({}).value().is_on());
  SpeculationOptions chosen =
      choose_speculation(with({{"speculative-algorithm", "ngram"}})).value();
  EXPECT_EQ(chosen.method, DraftMethod::kNgram);
  EXPECT_EQ(chosen.max_drafts, 7);
  EXPECT_EQ(chosen.ngram.min_match, 3);
  EXPECT_EQ(chosen.ngram.max_match, 12);
  for (const char* name : {"speculative-num-draft-tokens", "speculative_num_draft_tokens"})
    EXPECT_EQ(choose_speculation(with({{"speculative-algorithm", "NGRAM"}, {name, "5"}}))
                  .value()
                  .max_drafts,
              4);
  EXPECT_EQ(choose_speculation(with({{"speculative-algorithm", "NGRAM"},
                                     {"speculative-num-steps", "3"},
                                     {"speculative-num-draft-tokens", "4"},
                                     {"speculative-eagle-topk", "1"}}))
                .value()
                .max_drafts,
            3);
  chosen = choose_speculation(with({{"speculative-config",
                                     R"({"method": "ngram", "num_speculative_tokens": 6,
                                         "prompt_lookup_max": 4, "prompt_lookup_min": 2})"}}))
               .value();
  EXPECT_EQ(chosen.max_drafts, 6);
  EXPECT_EQ(chosen.ngram.min_match, 2);
  EXPECT_EQ(chosen.ngram.max_match, 4);
  // one length stands for both, and none for 5
  chosen = read_speculative_config(R"({"model": "ngram", "prompt_lookup_max": 3})");
  EXPECT_EQ(chosen.ngram.min_match, 3);
  EXPECT_EQ(chosen.ngram.max_match, 3);
  EXPECT_EQ(
      read_speculative_config(R"({"method": "ngram", "prompt_lookup_min": null})").ngram.max_match,
      5);
}

TEST(SpeculationChoice, SuffixesByTheNamesOfVllm) {
  SpeculationOptions chosen =
      choose_speculation(with({{"speculative-algorithm", "suffix"}})).value();
  EXPECT_EQ(chosen.method, DraftMethod::kSuffix);
  EXPECT_EQ(chosen.max_drafts, 24);
  EXPECT_EQ(chosen.suffix.max_tree_depth, 24);
  EXPECT_EQ(chosen.suffix.max_cached_requests, 10000);
  EXPECT_EQ(chosen.suffix.max_spec_factor, 1);
  EXPECT_EQ(chosen.suffix.min_token_prob, 0.1);
  chosen = read_speculative_config(
      R"({"method": "suffix", "suffix_decoding_max_tree_depth": 100,
          "suffix_decoding_max_cached_requests": 0, "suffix_decoding_max_spec_factor": 2.5,
          "suffix_decoding_min_token_prob": 0.25})");
  EXPECT_EQ(chosen.max_drafts, 63);
  EXPECT_EQ(chosen.suffix.max_tree_depth, 100);
  EXPECT_EQ(chosen.suffix.max_cached_requests, 0);
  EXPECT_EQ(chosen.suffix.max_spec_factor, 2.5);
  EXPECT_EQ(chosen.suffix.min_token_prob, 0.25);
  EXPECT_EQ(
      read_speculative_config(R"({"method": "suffix", "num_speculative_tokens": 5})").max_drafts,
      5);
}

TEST(SpeculationChoice, Trees) {
  SpeculationOptions chosen = choose_speculation(with({{"speculative-algorithm", "NEXTN"},
                                                       {"speculative-num-steps", "3"},
                                                       {"speculative-eagle-topk", "4"},
                                                       {"speculative-num-draft-tokens", "16"}}))
                                  .value();
  EXPECT_TRUE(chosen.has_trees());
  EXPECT_EQ(chosen.topk, 4);
  EXPECT_EQ(chosen.steps, 3);
  EXPECT_EQ(chosen.max_drafts, 15);
  EXPECT_EQ(chosen.slots_behind(), 2);
  chosen = choose_speculation(
               with({{"speculative-algorithm", "NEXTN"}, {"speculative-eagle-topk", "2"}}))
               .value();
  EXPECT_EQ(chosen.steps, 3);
  EXPECT_EQ(chosen.max_drafts, 10) << "all that three steps of two have";
  for (const auto& [values, message] :
       {std::pair{std::vector<std::pair<const char*, const char*>>{
                      {"speculative-algorithm", "NGRAM"}, {"speculative-eagle-topk", "2"}},
                  "drafts of NGRAM are chains"},
        std::pair{std::vector<std::pair<const char*, const char*>>{
                      {"speculative-algorithm", "DFLASH"},
                      {"speculative-draft-model-path", "org/block"},
                      {"speculative-eagle-topk", "2"}},
                  "drafts of DFLASH are chains; leave it out, or give NEXTN"},
        std::pair{std::vector<std::pair<const char*, const char*>>{{"draft-forced-tokens", "true"},
                                                                   {"speculative-eagle-topk", "2"}},
                  "drafts of grammars are chains"},
        std::pair{std::vector<std::pair<const char*, const char*>>{{"speculative-eagle-topk", "2"}},
                  "nothing drafts"},
        std::pair{
            std::vector<std::pair<const char*, const char*>>{
                {"speculative-config", R"({"method": "ngram"})"}, {"speculative-eagle-topk", "2"}},
            "--speculative-config drafts chains"},
        std::pair{std::vector<std::pair<const char*, const char*>>{
                      {"speculative-algorithm", "NEXTN"},
                      {"speculative-eagle-topk", "4"},
                      {"speculative-num-steps", "2"},
                      {"speculative-num-draft-tokens", "22"}},
                  "at most 21 tokens"}}) {
    Options options;
    for (const auto& [name, value] : values) set_option(options, name, value);
    const auto refused = choose_speculation(options);
    ASSERT_FALSE(refused.ok()) << message;
    EXPECT_THAT(refused.fault().message, HasSubstr(message));
  }
  EXPECT_THAT(error_of("speculative-eagle-topk", "21"), HasSubstr("1 to 20"));
}

TEST(SpeculationChoice, ForcedTokensNeedNoMethodAndHaveItsNumber) {
  SpeculationOptions chosen = choose_speculation(with({{"draft-forced-tokens", "true"}})).value();
  EXPECT_TRUE(chosen.forced_tokens && chosen.is_on() && !chosen.has_method());
  EXPECT_EQ(chosen.max_drafts, 15);
  EXPECT_EQ(choose_speculation(
                with({{"draft-forced-tokens", "true"}, {"speculative-num-draft-tokens", "5"}}))
                .value()
                .max_drafts,
            4);
  EXPECT_EQ(choose_speculation(
                with({{"draft-forced-tokens", "true"}, {"speculative-num-draft-tokens", "1"}}))
                .fault()
                .param,
            "speculative-num-draft-tokens");
  for (const auto& [option, value] :
       {std::pair{"speculative-algorithm", "NEXTN"},
        std::pair{"speculative-config", R"({"method": "mtp", "num_speculative_tokens": 3})"}}) {
    chosen = choose_speculation(with({{option, value}, {"draft-forced-tokens", "true"}})).value();
    EXPECT_EQ(chosen.method, DraftMethod::kNextn);
    EXPECT_TRUE(chosen.forced_tokens);
    EXPECT_EQ(chosen.max_drafts, 3);
  }
}

TEST(SpeculationChoice, WhatIsNotServedIsRefusedByName) {
  struct Row {
    const char *option, *value, *message;
  };
  for (const Row& row : {
           Row{"speculative-algorithm", "MEDUSA", "MEDUSA is refused"},
           Row{"speculative-algorithm", "NGARM", "the method 'NGARM' is unknown; served are NONE"},
           Row{"speculative-accept-threshold-acc", "0.9", "is refused"},
           Row{"speculative-num-draft-tokens", "65", "allowed: 0 (by the algorithm), or 2 to 64"},
           Row{"speculative-config", "{", "speculative-config"},
           Row{"speculative-config", "[1]", "no JSON object"},
           Row{"speculative-config", R"({"num_speculative_tokens": 3})",
               "the key 'method' is missing; add one of NONE, NGRAM"},
           Row{"speculative-config", R"({"model": "org/head", "num_speculative_tokens": 3})",
               "the key 'method' is missing, and the model 'org/head' names none; add one of NONE"},
           Row{"speculative-config", R"({"method": null, "model": 3})",
               "the key 'method' is missing; add one of NONE"},
           Row{"speculative-config", R"({"method": 3})",
               "the method is 3; it must be a string, one of NONE, NGRAM"},
           Row{"speculative-config", R"({"method": "eagle3"})", "EAGLE3 needs the key 'model'"},
           Row{"speculative-config", R"({"method": "ngram", "model": "x"})", "needs no model"},
           Row{"speculative-config", R"({"method": "suffix", "suffix_decoding_max_tree_depth": 1})",
               "must be an integer of 2 to 256"},
           Row{"speculative-config", R"({"method": "suffix", "suffix_decoding_min_token_prob": 2})",
               "must be a number of 0 to 1"},
           Row{"speculative-config",
               R"({"method": "suffix", "suffix_decoding_max_spec_factor": "2"})",
               "suffix_decoding_max_spec_factor is"},
           Row{"speculative-config", R"({"method": "ngram", "suffix_decoding_max_tree_depth": 9})",
               "no effect with the method ngram"},
           Row{"speculative-config", R"({"method": "ngram", "num_speculative_tokens": 64})",
               "num_speculative_tokens is 64; it must be an integer of 1 to 63"},
           Row{"speculative-config", R"({"method": "ngram", "num_speculative_tokens": 2.5})",
               "must be an integer"},
           Row{"speculative-config",
               R"({"method": "ngram", "prompt_lookup_min": 5, "prompt_lookup_max": 2})",
               "prompt_lookup_min is 5 and prompt_lookup_max is 2"},
           Row{"speculative-config", R"({"method": "ngram", "draft_tensor_parallel_size": 2})",
               "the key 'draft_tensor_parallel_size' is refused"},
           Row{"speculative-config", R"({"method": "mtp", "prompt_lookup_max": 3})",
               "the key 'prompt_lookup_max' is refused: it has no effect with the method mtp"},
           Row{"speculative-config", R"({"method": "suffix", "prompt_lookup_min": 3})",
               "the key 'prompt_lookup_min' is refused"},
           Row{"speculative-config", R"({"method": "none", "num_speculative_tokens": -3})",
               "must be an integer of 1 to 63"},
       })
    EXPECT_THAT(error_of(row.option, row.value), HasSubstr(row.message)) << row.value;
}

TEST(SpeculationChoice, OptionsThatContradictEachOther) {
  for (const char* name : {"NGRAM", "NONE"}) {
    const Options both =
        with({{"speculative-algorithm", name}, {"speculative-config", R"({"method": "ngram"})"}});
    EXPECT_EQ(choose_speculation(both).fault().param, "speculative-config");
  }
  const Options lengths = with({{"speculative-algorithm", "NGRAM"},
                                {"speculative-ngram-min-match-window-size", "9"},
                                {"speculative-ngram-max-match-window-size", "4"}});
  EXPECT_THAT(choose_speculation(lengths).fault().message, HasSubstr("must not be larger"));
  for (const char* rows : {"1", "6"}) {
    const Options counts = with({{"speculative-algorithm", "NGRAM"},
                                 {"speculative-num-draft-tokens", rows},
                                 {"speculative-num-steps", "3"}});
    EXPECT_EQ(choose_speculation(counts).fault().param, "speculative-num-draft-tokens");
  }
}

TEST(SpeculationChoice, OptionsWithoutEffectAreRefused) {
  const auto refusal_of = [](const Options& options) {
    const auto chosen = choose_speculation(options);
    return chosen.ok() ? Fault{} : chosen.fault();
  };
  constexpr const char *kMin = "speculative-ngram-min-match-window-size",
                       *kMax = "speculative-ngram-max-match-window-size";
  // Beside the JSON that decides the same.
  for (const auto& [name, value] :
       {std::pair{"speculative-num-steps", "9"}, std::pair{"speculative-num-draft-tokens", "8"},
        std::pair{kMin, "2"}, std::pair{kMax, "5"},
        std::pair{"speculative-draft-model-path", "org/head"},
        // their defaults
        std::pair{"speculative-num-steps", "0"}, std::pair{"speculative-num-draft-tokens", "0"},
        std::pair{kMin, "3"}, std::pair{kMax, "12"}, std::pair{"speculative-draft-model-path", ""}})
    for (const char* config :
         {R"({"method": "ngram", "num_speculative_tokens": 3})", R"({"method": "none"})"}) {
      const Fault fault = refusal_of(with({{"speculative-config", config}, {name, value}}));
      EXPECT_EQ(fault.param, name);
      EXPECT_THAT(fault.message, HasSubstr("are both given")) << name;
    }
  EXPECT_TRUE(choose_speculation(with({{"speculative-config", R"({"method": "mtp"})"},
                                       {"speculative-adaptive", "false"}}))
                  .ok());
  // Where nothing drafts.
  for (const auto& [name, value] :
       {std::pair{"speculative-num-steps", "3"}, std::pair{"speculative-num-draft-tokens", "8"},
        std::pair{"speculative-num-steps", "0"}, std::pair{"speculative-num-draft-tokens", "0"},
        std::pair{"speculative-eagle-topk", "1"}, std::pair{"speculative-adaptive", "true"},
        std::pair{"speculative-adaptive", "false"}}) {
    for (const Options& nothing : {with({{name, value}}), with({{name, value}, {kMin, "2"}})}) {
      EXPECT_EQ(refusal_of(nothing).param, name);
      EXPECT_THAT(refusal_of(nothing).message, HasSubstr("nothing drafts"));
    }
    EXPECT_TRUE(choose_speculation(with({{name, value}, {"draft-forced-tokens", "true"}})).ok());
  }
  EXPECT_EQ(refusal_of(with({{"speculative-config", R"({"method": "none"})"},
                             {"speculative-adaptive", "false"}}))
                .param,
            "speculative-adaptive");
  const char* const number = R"({"method": "none", "num_speculative_tokens": 3})";
  EXPECT_THAT(refusal_of(with({{"speculative-config", number}})).message,
              HasSubstr("the key 'num_speculative_tokens' has no effect"));
  const auto forced =
      choose_speculation(with({{"speculative-config", number}, {"draft-forced-tokens", "true"}}));
  EXPECT_EQ(forced.value().max_drafts, 3);
  EXPECT_TRUE(choose_speculation(with({{"speculative-algorithm", "NONE"}})).ok());
  // Windows of matches that nobody looks up.
  for (const auto& [name, value] :
       {std::pair{kMin, "2"}, std::pair{kMax, "2"}, std::pair{kMin, "3"}, std::pair{kMax, "12"}}) {
    EXPECT_EQ(refusal_of(with({{name, value}})).param, name);
    EXPECT_EQ(refusal_of(with({{name, value}, {"draft-forced-tokens", "true"}})).param, name);
    for (const char* method : {"NEXTN", "SUFFIX"}) {
      const Fault fault = refusal_of(with({{"speculative-algorithm", method}, {name, value}}));
      EXPECT_EQ(fault.param, name);
      EXPECT_THAT(fault.message, HasSubstr(method));
    }
    EXPECT_EQ(refusal_of(with({{"speculative-algorithm", "NEXTN"},
                               {"speculative-eagle-topk", "4"},
                               {name, value}}))
                  .param,
              name);
    EXPECT_TRUE(choose_speculation(with({{"speculative-algorithm", "NGRAM"}, {kMin, "3"}})).ok());
  }
}

TEST(SpeculationChoice, NothingDraftsWhereNothingIsGenerated) {
  for (const auto& [option, value, text] :
       {std::tuple{"speculative-algorithm", "NGRAM", "--speculative-algorithm NGRAM has"},
        std::tuple{"speculative-config", R"({"method": "mtp"})", "--speculative-config has"},
        std::tuple{"draft-forced-tokens", "true", "--draft-forced-tokens has"}}) {
    const Fault fault = choose_speculation(with({{option, value}, {"task", "embed"}})).fault();
    EXPECT_EQ(fault.param, option);
    EXPECT_THAT(fault.message, HasSubstr(text));
    EXPECT_THAT(fault.message, HasSubstr("no effect with --runner pooling"));
    EXPECT_TRUE(choose_speculation(with({{option, value}, {"runner", "generate"}})).ok());
  }
  EXPECT_TRUE(
      choose_speculation(with({{"speculative-algorithm", "NONE"}, {"runner", "pooling"}})).ok());
  EXPECT_THAT(choose_speculation(with({{"speculative-num-steps", "3"}, {"runner", "pooling"}}))
                  .fault()
                  .message,
              HasSubstr("a server with --runner pooling drafts nothing; leave it out"));
}

TEST(SpeculationChoice, DraftModelsAreNamedWhereTheyAreLoaded) {
  Options options = with({{"speculative-algorithm", "EAGLE3"},
                          {"speculative-draft-model", "org/head"},
                          {"speculative-num-steps", "5"}});
  SpeculationOptions chosen = choose_speculation(options).value();
  EXPECT_EQ(chosen.method, DraftMethod::kEagle3);
  EXPECT_EQ(chosen.draft_model, "org/head");
  EXPECT_EQ(chosen.max_drafts, 5);
  EXPECT_EQ(chosen.slots_behind(), 4);
  options = with({{"speculative-config", R"({"method": "draft_model", "model": "org/small"})"}});
  chosen = choose_speculation(options).value();
  EXPECT_EQ(chosen.method, DraftMethod::kStandalone);
  EXPECT_EQ(chosen.draft_model, "org/small");
  EXPECT_EQ(chosen.slots_behind(), 3);
  chosen = choose_speculation(with({{"speculative-algorithm", "DFLASH"},
                                    {"speculative-draft-model", "org/block"},
                                    {"speculative-num-draft-tokens", "5"}}))
               .value();
  EXPECT_EQ(chosen.method, DraftMethod::kDflash);
  EXPECT_FALSE(chosen.is_default_number);
  EXPECT_EQ(chosen.max_drafts, 4);
  EXPECT_EQ(chosen.slots_behind(), 5) << "the known token and four masks";
  chosen = choose_speculation(
               with({{"speculative-config", R"({"method": "dflash", "model": "org/block"})"}}))
               .value();
  EXPECT_EQ(chosen.method, DraftMethod::kDflash);
  EXPECT_TRUE(chosen.is_default_number);
  EXPECT_EQ(chosen.max_drafts, 15);
  options.speculative_draft_model_path = "org/small";
  EXPECT_EQ(choose_speculation(options).fault().param, "speculative-draft-model-path");
  for (const char* method : {"NONE", "NGRAM", "NEXTN"})
    for (const char* path : {"x", ""}) {
      options = with({{"speculative-algorithm", method}, {"speculative-draft-model-path", path}});
      EXPECT_THAT(choose_speculation(options).fault().message, HasSubstr("loads no draft model"));
    }
  for (const char* method : {"EAGLE", "EAGLE3", "DFLASH", "STANDALONE"})
    EXPECT_THAT(choose_speculation(with({{"speculative-algorithm", method}})).fault().message,
                HasSubstr("needs a draft model"));
}

// What a server cannot speculate with says why.
TEST(SpeculationChoice, ModelsAndDevicesThatCannot) {
  const ModelConfig qwen = load_model_config(source_dir() + "/bench/configs/qwen3-8b");
  const auto resolve_on = [](const ModelConfig& config, DeviceKind device, Options options) {
    Machine machine;
    machine.device.kind = device;
    machine.num_threads = 4;
    machine.sm = 90;
    return resolve(options, config, machine);
  };
  const Options ngram = with({{"speculative-algorithm", "NGRAM"}});
  const Result<ServingPlan> plan = resolve_on(qwen, DeviceKind::kCpu, ngram);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->scheduler.max_drafts, 7);
  EXPECT_EQ(plan->scheduler.max_steps_in_flight, 1);
  EXPECT_EQ(plan->runner.limits.max_step_tokens,
            512 + 8 * std::int64_t{plan->scheduler.max_running_requests});
  EXPECT_EQ(plan->scheduler.max_draft_rows, 0);
  const Result<ServingPlan> on_gpu = resolve_on(qwen, DeviceKind::kCuda, ngram);
  ASSERT_TRUE(on_gpu.ok());
  EXPECT_EQ(on_gpu->scheduler.max_steps_in_flight, 2);
  EXPECT_EQ(on_gpu->scheduler.max_draft_rows, 256);
  EXPECT_EQ(on_gpu->runner.limits.max_draft_rows, 256);
  Options few = ngram;
  few.max_running_requests = 3;
  EXPECT_EQ(resolve_on(qwen, DeviceKind::kCuda, few)->scheduler.max_draft_rows, 24);
  few.max_running_requests = 1000;
  EXPECT_EQ(resolve_on(qwen, DeviceKind::kCuda, few)->scheduler.max_draft_rows, 1000);
  const Options dflash =
      with({{"speculative-algorithm", "DFLASH"}, {"speculative-draft-model", "org/block"}});
  for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kCuda})
    EXPECT_EQ(resolve_on(qwen, device, dflash)->scheduler.draft_slots, 16);
  ModelConfig recurrent = qwen;
  recurrent.recurrent.emplace();
  EXPECT_TRUE(resolve_on(recurrent, DeviceKind::kCpu, ngram).ok());
  EXPECT_TRUE(resolve_on(recurrent, DeviceKind::kCuda, ngram).ok());
  Options by_length = ngram;
  by_length.rope_by_length = true;
  EXPECT_THAT(resolve_on(qwen, DeviceKind::kCpu, by_length).fault().message,
              HasSubstr("exclude each other"));
  Options two = ngram;
  two.steps_in_flight = 2;
  EXPECT_TRUE(resolve_on(qwen, DeviceKind::kCpu, two).ok());
  two.tp_size = 2;
  EXPECT_THAT(resolve_on(qwen, DeviceKind::kCpu, two).fault().message,
              HasSubstr("needs every token before the next step of several ranks"));
}

TEST(SpeculationChoice, TreesHaveALimitOfRowsAndSayWhatTheyCannot) {
  const ModelConfig tiny = load_model_config(source_dir() + "/models/sluice-tiny");
  const auto resolve_on = [&](DeviceKind device, const Options& options) {
    Machine machine;
    machine.device.kind = device;
    machine.num_threads = 4;
    machine.sm = 90;
    return resolve(options, tiny, machine);
  };
  Options trees = with({{"speculative-algorithm", "NEXTN"}, {"speculative-eagle-topk", "4"}});
  const Result<ServingPlan> plan = resolve_on(DeviceKind::kCpu, trees);
  ASSERT_TRUE(plan.ok()) << plan.fault().message;
  EXPECT_EQ(plan->scheduler.max_drafts, 15);
  EXPECT_EQ(plan->scheduler.draft_branches, 4);
  EXPECT_EQ(plan->scheduler.draft_slots, 2);
  EXPECT_EQ(plan->scheduler.max_draft_rows, 256);
  EXPECT_EQ(plan->runner.limits.max_draft_rows, 256);
  EXPECT_EQ(plan->runner.limits.max_step_tokens, 512 + 256);
  const Result<ServingPlan> on_gpu = resolve_on(DeviceKind::kCuda, trees);
  ASSERT_TRUE(on_gpu.ok()) << on_gpu.fault().message;
  EXPECT_EQ(on_gpu->scheduler.draft_branches, 4);
  EXPECT_EQ(on_gpu->runner.limits.max_draft_rows, 256);
  EXPECT_FALSE(on_gpu->runner.pads_draft_rows);
  Options as_rows = trees;
  as_rows.drafts_as_rows = true;
  EXPECT_TRUE(resolve_on(DeviceKind::kCpu, as_rows)->runner.pads_draft_rows);
  ModelConfig recurrent = tiny;
  recurrent.recurrent.emplace();
  Machine machine;
  machine.num_threads = 4;
  const Fault fault = resolve(trees, recurrent, machine).fault();
  EXPECT_EQ(fault.param, "speculative-eagle-topk");
  EXPECT_THAT(fault.message, HasSubstr("the model has recurrent layers"));
  EXPECT_THAT(fault.message, HasSubstr("chain; give 1"));
  // Ranks share the matrices of the draft, too. Stages and groups do not draft with layers.
  Options ranks = trees;
  ranks.tp_size = 2;
  EXPECT_TRUE(resolve_on(DeviceKind::kCpu, ranks).ok());
  Options stages = trees;
  stages.pp_size = 2;
  EXPECT_THAT(resolve_on(DeviceKind::kCpu, stages).fault().message,
              HasSubstr("stages draft with grammars, NGRAM and SUFFIX"));
}

TEST(SpeculationChoice, ForcedTokensHaveALimitOfRowsAndSayWhatTheyCannot) {
  const ModelConfig qwen = load_model_config(source_dir() + "/bench/configs/qwen3-8b");
  const auto resolve_on = [](const ModelConfig& config, DeviceKind device, const Options& options) {
    Machine machine;
    machine.device.kind = device;
    machine.num_threads = 4;
    machine.sm = 90;
    return resolve(options, config, machine);
  };
  const Options forced = with({{"draft-forced-tokens", "true"}});
  const Result<ServingPlan> plan = resolve_on(qwen, DeviceKind::kCpu, forced);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->scheduler.max_drafts, 15);
  EXPECT_EQ(plan->scheduler.max_draft_rows, 256);
  EXPECT_EQ(plan->runner.limits.max_step_tokens, 512 + 256);
  EXPECT_EQ(plan->runner.limits.max_draft_rows, 0) << "a CPU computes rows together";
  EXPECT_EQ(plan->runner.max_drafts, 0) << "no layer drafts";
  const Result<ServingPlan> on_gpu = resolve_on(qwen, DeviceKind::kCuda, forced);
  ASSERT_TRUE(on_gpu.ok());
  EXPECT_EQ(on_gpu->scheduler.max_steps_in_flight, 2);
  EXPECT_EQ(on_gpu->runner.limits.max_draft_rows, 256);
  ModelConfig recurrent = qwen;
  recurrent.recurrent.emplace();
  for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kCuda})
    EXPECT_TRUE(resolve_on(recurrent, device, forced).ok());
  Options ranks = forced;
  ranks.tp_size = 2;
  EXPECT_TRUE(resolve_on(qwen, DeviceKind::kCpu, ranks).ok());
  const Result<ServingPlan> on_gpus = resolve_on(qwen, DeviceKind::kCuda, ranks);
  ASSERT_TRUE(on_gpus.ok()) << on_gpus.fault().message;
  EXPECT_EQ(on_gpus->scheduler.max_steps_in_flight, 1);
  ranks.dp_size = 2;
  ranks.enable_dp_attention = true;
  EXPECT_TRUE(resolve_on(qwen, DeviceKind::kCpu, ranks).ok());
  const Fault fault = resolve_on(qwen, DeviceKind::kCuda, ranks).fault();
  EXPECT_EQ(fault.param, "draft-forced-tokens");
  EXPECT_THAT(fault.message, HasSubstr("--draft-forced-tokens and --dp-size 2 exclude"));
  Options stages = forced;
  stages.pp_size = 2;
  const Result<ServingPlan> staged = resolve_on(qwen, DeviceKind::kCpu, stages);
  ASSERT_TRUE(staged.ok()) << staged.fault().message;
  EXPECT_EQ(staged->scheduler.max_steps_in_flight, 1);
}

}  // namespace
}  // namespace sluice
