#include "engine/serving_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/source_dir.h"
#include "engine/engine.h"
#include "engine/testing/plan_inputs.h"

namespace sluice {
namespace {

using testing::config_of;
using testing::cpu;
using testing::gpu;
using testing::with;

using ::testing::HasSubstr;

// What cannot be served, and of which option; each text stands here once as users see it.
TEST(ServingPlan, WhatCannotBeServedIsSaidOnce) {
  struct Row {
    const char* model;
    Machine machine;
    Options options;
    const char* option;
    const char* message;
  };
  const Row rows[] = {
      {"deepseek-v2-lite", gpu(), with({{"kv-cache-dtype", "int8"}}), "kv-cache-dtype",
       "--kv-cache-dtype int8 is for a CPU; give fp8_e4m3, auto, bfloat16 or float32, or add "
       "--device cpu"},
      {"qwen3-8b", gpu(),
       with({{"tp-size", "4"}, {"deterministic", ""}, {"disable-custom-all-reduce", ""}}),
       "disable-custom-all-reduce",
       "--tp-size 4 and --deterministic need the kernels that sum over GPUs: NCCL sums more than "
       "two ranks in an order that depends on the batch; leave out --disable-custom-all-reduce, or "
       "give --tp-size 2"},
      {"qwen3-8b", gpu(),
       with({{"tp-size", "2"},
             {"dp-size", "2"},
             {"enable-dp-attention", ""},
             {"lazy-cuda-graphs", ""}}),
       "lazy-cuda-graphs",
       "--lazy-cuda-graphs and --dp-size 2 exclude each other: all groups record a graph together; "
       "leave one out"},
      {"qwen3-8b", gpu(), with({{"kv-cache-dtype", "int8"}}), "kv-cache-dtype",
       "--kv-cache-dtype int8 is for a CPU; give fp8_e4m3, auto, bfloat16 or float32, or add "
       "--device cpu"},
      {"qwen3-8b", gpu(), with({{"quantization", "int4"}, {"dtype", "half"}}), "quantization",
       "--quantization int8 and int4 on a GPU multiply rows of bfloat16, and the computation is "
       "float16; add --dtype bfloat16, or --device cpu"},
      {"qwen3-8b", cpu(), with({{"quantization", "awq_marlin"}}), "quantization",
       "--quantization awq-marlin is for checkpoints that are awq, and this one is not quantised; "
       "leave the option out"},
      {"qwen3-8b", cpu(), with({{"index-cache-dtype", "fp8"}}), "index-cache-dtype",
       "--index-cache-dtype is for models that choose keys with an indexer (DeepSeek-V3.2, GLM-5), "
       "and Qwen3ForCausalLM has none; leave it out"},
      {"qwen3-8b", cpu(), with({{"context-length", "1M"}}), "context-length",
       "--context-length is 1048576, and the model's max_position_embeddings is 40960; ask for at "
       "most that, or add --allow-longer"},
  };
  for (const Row& row : rows) {
    const Result<ServingPlan> plan = resolve(row.options, config_of(row.model), row.machine);
    ASSERT_FALSE(plan.ok()) << row.message;
    EXPECT_EQ(plan.fault().message, row.message);
    EXPECT_EQ(plan.fault().param, row.option);
    try {
      resolve_or_throw(row.options, config_of(row.model), row.machine);
      ADD_FAILURE() << row.message;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
      EXPECT_EQ(error.message(), row.message);
    }
  }
}

TEST(ServingPlan, GroupsHaveASizeWhereIntegersAreRounded) {
  const auto resolved = [](const Options& options, const char* stored) {
    ModelConfig config = config_of("qwen3-8b");
    if (*stored != 0) config.quantization = {.method = stored, .bits = 4};
    return resolve(options, config, cpu());
  };
  for (const char* size : {"32", "128"}) {
    for (const char* how : {"auto", "none", "fp8"}) {
      const Options options = with({{"quantization", how}, {"quantization-group-size", size}});
      const Fault fault = resolved(options, "").fault();
      EXPECT_EQ(fault.param, "quantization-group-size");
      EXPECT_EQ(fault.message,
                fmt::format("--quantization-group-size is {}, and --quantization {} rounds to no "
                            "groups of integers; give --quantization int8 or int4, or leave the "
                            "size out",
                            size, how));
    }
    for (const char* how : {"auto", "awq_marlin"})
      EXPECT_EQ(resolved(with({{"quantization", how}, {"quantization-group-size", size}}), "awq")
                    .fault()
                    .param,
                "quantization-group-size");
    for (const char* how : {"int8", "int4"})
      for (const char* stored : {"", "awq"})
        EXPECT_TRUE(
            resolved(with({{"quantization", how}, {"quantization-group-size", size}}), stored)
                .ok());
  }
}

TEST(ServingPlan, HowLongASequenceMayBe) {
  ModelConfig config;
  config.architecture = "GPT2LMHeadModel";
  config.max_position_embeddings = 64;
  const auto refusal = [&](const Options& options) {
    const Result<ServingPlan> plan = resolve(options, config, cpu());
    return plan ? "" : plan.fault().message;
  };
  const auto context = [&](const Options& options) {
    return resolve_or_throw(options, config, cpu()).context_length();
  };
  Options options;
  EXPECT_EQ(context(options), 64);
  options.context_length = 65;
  EXPECT_THAT(refusal(options), HasSubstr("add --allow-longer"));
  options.allow_longer = true;
  EXPECT_EQ(context(options), 65);
  // A table of positions ends where it ends.
  config.positions = PositionKind::kLearned;
  EXPECT_THAT(refusal(options), HasSubstr("learned embeddings for 64 positions"));
  options.context_length = 64;
  EXPECT_EQ(context(options), 64);
}

TEST(ServingPlan, LimitsFollowTheDevice) {
  const ModelConfig config = config_of("qwen3-8b");
  const ServingPlan on_cpu = resolve_or_throw({}, config, cpu());
  EXPECT_EQ(on_cpu.runner.limits.max_running_requests, 128);
  EXPECT_EQ(on_cpu.runner.limits.max_step_tokens, 512 + 128);
  EXPECT_EQ(on_cpu.runner.limits.steps_in_flight, 1);
  EXPECT_EQ(on_cpu.runner.kv.mem_fraction_static, 0);
  EXPECT_EQ(on_cpu.runner.placement.numa_nodes.size(), 2u);
  EXPECT_EQ(on_cpu.runner.placement.num_threads, 8);
  const ServingPlan on_gpu = resolve_or_throw({}, config, gpu());
  EXPECT_EQ(on_gpu.runner.limits.max_running_requests, 256);
  EXPECT_EQ(on_gpu.runner.limits.max_step_tokens, 8192 + 256);
  EXPECT_EQ(on_gpu.runner.limits.steps_in_flight, 2);
  EXPECT_EQ(on_gpu.runner.kv.mem_fraction_static, kGpuFraction);
  EXPECT_TRUE(on_gpu.runner.placement.numa_nodes.empty());
  EXPECT_EQ(on_gpu.runner.placement.device.index, 1);
  EXPECT_EQ(on_gpu.runner.attention.sm, 90);
  // Scheduler and runner cannot disagree.
  for (const ServingPlan& plan : {on_cpu, on_gpu}) {
    EXPECT_EQ(plan.scheduler.max_running_requests, plan.runner.limits.max_running_requests);
    EXPECT_EQ(plan.scheduler.max_steps_in_flight, plan.runner.limits.steps_in_flight);
    EXPECT_EQ(plan.scheduler.max_context, plan.context_length());
  }
  const ServingPlan whole = resolve_or_throw(
      with({{"chunked-prefill-size", "-1"}, {"max-running-requests", "3"}, {"threads", "2"}}),
      config, cpu());
  EXPECT_EQ(whole.scheduler.max_prefill_tokens, 16384);
  EXPECT_EQ(whole.runner.limits.max_step_tokens, config.max_position_embeddings + 3);
  EXPECT_EQ(whole.runner.placement.num_threads, 2);
}

TEST(ServingPlan, AStageHasItsLayersAndItsPartOfTheMachine) {
  const ModelConfig config = config_of("qwen3-8b");
  const Options options = with({{"pp-size", "3"}, {"tp", "2"}, {"threads", "6"}});
  for (int rank = 0; rank < 6; ++rank) {
    Machine machine = cpu();
    machine.rank = rank;
    const ServingPlan plan = resolve_or_throw(options, config, machine);
    EXPECT_EQ(plan.num_ranks, 6);
    EXPECT_EQ(plan.num_sharers(), 2);
    EXPECT_EQ(plan.stage, 2 - rank / 2);
    EXPECT_EQ(plan.runner.model.layers.begin, 12 * plan.stage);
    EXPECT_EQ(plan.runner.model.layers.end, 12 * (plan.stage + 1));
    EXPECT_EQ(plan.runner.placement.num_threads, 1);
    EXPECT_EQ(plan.runner.placement.num_sharers, 6);
    EXPECT_TRUE(plan.scheduler.pipelined && plan.scheduler.hash_steps);
    EXPECT_EQ(plan.scheduler.max_steps_in_flight, 3);
    EXPECT_EQ(plan.runner.limits.steps_in_flight, 1) << "a CPU computes one after the other";
  }
  const auto in_flight = [&](const Options& of) {
    return resolve_or_throw(of, config, cpu()).scheduler.max_steps_in_flight;
  };
  EXPECT_EQ(in_flight(with({{"pp-size", "2"}, {"disable-overlap-schedule", "true"}})), 1);
  EXPECT_EQ(in_flight(with({{"pp-size", "2"}, {"speculative-algorithm", "NGRAM"}})), 1);
  EXPECT_EQ(resolve_or_throw({}, config, cpu()).runner.model.layers.end, -1);
}

TEST(ServingPlan, RanksDraftGroupsDoOnCpusAndStagesFromTextsAlone) {
  const ModelConfig config = config_of("qwen3-8b");
  const auto refused = [&](const Machine& machine, Options options, const char* method) {
    options.speculative_algorithm = method;
    if (options.speculative_algorithm != "NGRAM") options.speculative_draft_model_path = "draft";
    const Result<ServingPlan> plan = resolve(options, config, machine);
    if (plan.ok()) return std::string();
    EXPECT_EQ(plan.fault().param, "speculative-algorithm");
    return plan.fault().message;
  };
  const Options ranks = with({{"tp", "4"}}), stages = with({{"pp-size", "2"}}),
                groups = with({{"tp", "4"}, {"dp-size", "2"}, {"enable-dp-attention", ""}});
  for (const char* method : {"NGRAM", "EAGLE", "EAGLE3", "DFLASH", "STANDALONE"}) {
    EXPECT_EQ(refused(cpu(), ranks, method), "");
    EXPECT_EQ(refused(cpu(), groups, method), "");
    const bool reads_text = std::string(method) == "NGRAM";
    EXPECT_THAT(refused(cpu(), stages, method),
                reads_text ? HasSubstr("") : HasSubstr("stages draft with grammars, NGRAM and"));
    EXPECT_EQ(refused(cpu(), stages, method).empty(), reads_text);
    EXPECT_EQ(refused(gpu(), ranks, method), "");
    EXPECT_THAT(refused(gpu(), groups, method),
                HasSubstr("--dp-size 2 exclude each other on GPUs: groups of ranks replay graphs"));
    EXPECT_THAT(refused(gpu(), stages, method), HasSubstr("stages draft with grammars, NGRAM and"));
  }
}

// Ranks that decide apart would wait for each other's sums for ever.
TEST(ServingPlan, RanksOfGpusPlanTheSameDraftsAndOneStepInFlight) {
  const ModelConfig config = config_of("qwen3-8b");
  for (const char* method : {"NGRAM", "STANDALONE"}) {
    std::vector<std::pair<std::string, std::string>> given = {{"speculative-algorithm", method}};
    if (given[0].second != "NGRAM") given.emplace_back("speculative-draft-model-path", "draft");
    const auto plan_of = [&](int num_ranks, int rank) {
      Options options;
      for (const auto& [name, text] : given) set_option(options, name, text);
      options.tp_size = num_ranks;
      Machine machine = gpu();
      machine.rank = rank;
      return resolve_or_throw(options, config, machine);
    };
    const ServingPlan first = plan_of(2, 0), second = plan_of(2, 1), alone = plan_of(1, 0);
    EXPECT_EQ(alone.runner.limits.steps_in_flight, 2);
    for (const ServingPlan& plan : {first, second}) {
      EXPECT_EQ(plan.scheduler.max_steps_in_flight, 1);
      EXPECT_EQ(plan.runner.limits.steps_in_flight, 1);
      EXPECT_EQ(plan.runner.max_drafts, alone.runner.max_drafts);
      EXPECT_EQ(plan.runner.limits.max_draft_rows, 256);
      EXPECT_EQ(plan.runner.limits.max_step_tokens, alone.runner.limits.max_step_tokens);
      EXPECT_TRUE(plan.runner.graphs.enabled && plan.scheduler.hash_steps);
    }
  }
}

TEST(ServingPlan, RanksOfANodeShareItsMachineAlone) {
  const ModelConfig config = config_of("qwen3-8b");
  const auto nodes = [](const char* number, const char* rank) {
    return with({{"tp", "4"},
                 {"threads", "6"},
                 {"nnodes", number},
                 {"node-rank", rank},
                 {"dist-init-addr", "10.0.0.1:20000"},
                 {"dist-key-file", "key"}});
  };
  for (int rank = 0; rank < 4; ++rank) {
    Machine machine = cpu();
    machine.rank = rank;
    const ServingPlan plan = resolve_or_throw(nodes("2", "0"), config, machine);
    EXPECT_EQ(plan.num_nodes, 2);
    EXPECT_EQ(plan.num_ranks, 4);
    EXPECT_EQ(plan.num_sharers(), 4);
    EXPECT_EQ(plan.runner.placement.num_threads, 3);
    EXPECT_EQ(plan.runner.placement.num_sharers, 2);
    ASSERT_EQ(plan.runner.placement.numa_nodes.size(), 1u);
    EXPECT_EQ(plan.runner.placement.numa_nodes[0].id, rank % 2);
  }
  const auto said = [&](const Options& of, const Machine& machine) {
    const Result<ServingPlan> result = resolve(of, config, machine);
    return result.ok() ? "" : result.fault().message;
  };
  EXPECT_THAT(said(nodes("3", "0"), cpu()), HasSubstr("--tp-size 3 or --pp-size 3 would do"));
  EXPECT_THAT(said(nodes("2", "2"), cpu()), HasSubstr("there is no node 2"));
  EXPECT_THAT(said(nodes("2", "0"), gpu()), HasSubstr("give --device cpu"));
  EXPECT_THAT(said(with({{"tp", "2"}, {"nnodes", "2"}}), cpu()),
              HasSubstr("give --dist-init-addr HOST:PORT"));
  EXPECT_EQ(said(with({{"tp", "2"}, {"nnodes", "1"}}), cpu()), "");
}

TEST(ServingPlan, GroupsOfAttentionHaveRanksThatShareTheRest) {
  const ModelConfig config = config_of("qwen3-8b");
  const Options options = with({{"tp", "4"}, {"dp", "2"}, {"enable-dp-attention", "true"}});
  Machine machine = cpu();
  machine.rank = 3;
  const ServingPlan plan = resolve_or_throw(options, config, machine);
  EXPECT_EQ(plan.num_ranks, 4);
  EXPECT_EQ(plan.dp_size, 2);
  EXPECT_EQ(plan.num_sharers(), 2);
  EXPECT_EQ(plan.scheduler.dp_size, 2);
  ASSERT_TRUE(plan.runner.model.feed_forward_ranks.has_value());
  EXPECT_EQ(plan.runner.model.feed_forward_ranks->rank, 3);
  EXPECT_EQ(plan.runner.model.feed_forward_ranks->size, 4);
  const auto said = [&](const Options& of) {
    const Result<ServingPlan> result = resolve(of, config, cpu());
    return result.ok() ? "" : result.fault().message;
  };
  EXPECT_NE(said(with({{"tp", "2"}, {"dp", "2"}}))
                .find("with --enable-dp-attention; whole replicas "
                      "are 2 servers behind a router"),
            std::string::npos);
  EXPECT_EQ(said(with({{"tp", "2"}, {"enable-dp-attention", "true"}})),
            "--enable-dp-attention needs groups of ranks; add --dp-size");
  EXPECT_NE(said(with({{"dp", "2"}, {"enable-dp-attention", "true"}})).find("; --tp-size 2, 4"),
            std::string::npos);
  EXPECT_NE(
      said(with({{"tp", "2"}, {"dp", "2"}, {"pp-size", "2"}, {"enable-dp-attention", "true"}}))
          .find("--dp-size 2 and --pp-size 2 exclude each other"),
      std::string::npos);
}

TEST(ServingPlan, PrefillTokensHaveTwoBounds) {
  const ModelConfig config = config_of("qwen3-8b");
  const auto plan = [&](const char* chunk, const char* prefill) {
    return resolve_or_throw(with({{"chunked-prefill-size", chunk},
                                  {"max-prefill-tokens", prefill},
                                  {"max-running-requests", "4"}}),
                            config, cpu());
  };
  // The smaller one counts.
  EXPECT_EQ(plan("0", "0").scheduler.chunked_prefill_tokens, 512);
  EXPECT_EQ(plan("0", "100").scheduler.chunked_prefill_tokens, 100);
  EXPECT_EQ(plan("0", "100").runner.limits.max_step_tokens, 104);
  EXPECT_EQ(plan("64", "100").scheduler.chunked_prefill_tokens, 64);
  EXPECT_EQ(plan("30000", "0").scheduler.chunked_prefill_tokens, 30000);
  // Prompts that are not cut: of steps with several of them.
  EXPECT_EQ(plan("-1", "0").scheduler.max_prefill_tokens, 16384);
  EXPECT_EQ(plan("-1", "100").scheduler.max_prefill_tokens, 100);
  EXPECT_EQ(plan("-1", "100").scheduler.chunked_prefill_tokens, -1);
  EXPECT_EQ(plan("-1", "50000").runner.limits.max_step_tokens, 50004);
}

// Latents in e4m3 leave index keys in the type of the computation, on both devices.
TEST(ServingPlan, LatentsInBytesAreServedOnGpusAndCpus) {
  for (const char* model : {"deepseek-v2-lite", "deepseek-v3.2", "glm-5"})
    for (const Machine& machine : {cpu(), gpu()}) {
      const Numerics numerics =
          resolve_or_throw(with({{"kv-cache-dtype", "fp8"}}), config_of(model), machine).numerics();
      EXPECT_EQ(numerics.kv(), DType::kF8E4M3) << model;
      EXPECT_EQ(numerics.index(), numerics.gemm()) << model;
    }
}

// Everything that the engine and `sluice plan` decide comes from resolve(): for each combination
// the engine says what the plan says, or refuses with the plan's words.
TEST(ServingPlan, TheEngineDoesWhatThePlanSays) {
  set_log_level(LogLevel::kError);
  const std::string models = source_dir() + "/tests/golden/models/";
  int served = 0, refused = 0;
  for (const char* model : {"llama-plain", "glm-moe-dsa"})
    for (const char* dtype : {"auto", "float32", "bfloat16", "float16"})
      for (const char* quantization : {"auto", "int8"})
        for (const char* kv : {"auto", "bfloat16", "int8"})
          for (const char* index : {"auto", "fp8"}) {
            Options options = with({{"model", (models + model).c_str()},
                                    {"dtype", dtype},
                                    {"quantization", quantization},
                                    {"kv-cache-dtype", kv},
                                    {"index-cache-dtype", index},
                                    {"device", "cpu"},
                                    {"load-format", "dummy"},
                                    {"threads", "1"},
                                    {"max-total-tokens", "256"},
                                    {"max-running-requests", "2"},
                                    {"chunked-prefill-size", "16"}});
            const ModelConfig config = load_model_config(options.model);
            const Result<ServingPlan> plan = resolve(options, config, read_machine(Device{}));
            try {
              const auto engine = Engine::create(options);
              ASSERT_TRUE(plan.ok()) << plan.fault().message;
              EXPECT_EQ(engine->dtype_name(), dtype_name(plan->numerics().compute));
              EXPECT_EQ(engine->context_length(), 256);  // what the cache holds
              EXPECT_GE(plan->context_length(), 256);
              EXPECT_EQ(engine->stats().max_running_requests,
                        plan->runner.limits.max_running_requests);
              EXPECT_EQ(engine->memory_plan().max_total_tokens, 256);
              ++served;
            } catch (const Error& error) {
              ASSERT_FALSE(plan.ok()) << error.message();
              EXPECT_EQ(error.message(), plan.fault().message);
              ++refused;
            }
          }
  EXPECT_EQ(served, 4 * 2 * 3 + 4 * 2 * 3 * 2);
  EXPECT_EQ(refused, 4 * 2 * 3);  // index types of a model without an indexer
}

}  // namespace
}  // namespace sluice
