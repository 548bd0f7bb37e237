#include "cli/models/mix_choice.h"

#include "base/testing/source_dir.h"
#include "cli/models/serve_command.h"
#include "cli/models/testing/measured_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cli/models/model_size.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kModels[] = {"deepseek-v2-lite", "deepseek-v3.2", "glm-5",
                                   "gpt-oss-20b",      "llama-3.2-1b",  "qwen3-0.6b",
                                   "qwen3-30b-a3b",    "qwen3-8b"};

std::string directory_of(const std::string& model) {
  return source_dir() + "/bench/configs/" + model;
}

// Steps that the model misses by more than the 10 % of docs/cost_model.md, which has the reasons.
struct Miss {
  const char* step;  // part of the name
  int batch;         // 0: any
  bool is_decode;
  double bound;
};
constexpr Miss kMisses[] = {
    {"qwen3-8b --quantization fp8", 16, true, 0.13},
    {"qwen3-8b --quantization int4", 1, true, 0.12},
    {"qwen3-8b --json-model-override-args", 16, true, 0.14},  // AWQ
    {"qwen3-30b-a3b --quantization int4", 8, true, 0.14},
    {"qwen3-30b-a3b", 8, false, 0.11},
    {"llama-3.1-70b --quantization fp8", 64, true, 0.14},
    // Several GPUs; the fit has not seen most of these.
    {"qwen3-8b --tp-size 2", 0, true, 0.13},
    {"llama-3.1-8b --tp-size 2", 1, true, 0.11},
    {"qwen3-8b --tp-size 4", 64, true, 0.11},
    {"qwen3-8b --tp-size 4", 64, false, 0.22},
    {"llama-3.1-70b --quantization fp8 --tp-size 4", 1, true, 0.20},
    {"llama-3.1-70b --quantization fp8 --tp-size 4", 64, false, 0.24},
    {"qwen3-30b-a3b --tp-size 2", 1, true, 0.11},
    {"qwen3-30b-a3b --tp-size 2", 64, false, 0.16},
    {"qwen3-30b-a3b --tp-size 4 --dp-size 4", 0, true, 0.24},
    {"qwen3-30b-a3b --tp-size 4", 0, true, 0.22},
    {"qwen3-30b-a3b --tp-size 4", 0, false, 0.24},
    {"qwen3-30b-a3b --ep-size", 0, false, 0.14},
    {"num_hidden_layers\": 5}", 0, false, 0.25},
    {"num_hidden_layers\": 5}", 1, true, 0.21},
    {"num_hidden_layers\": 5}", 32, true, 0.12},
    {"fp8 --tp-size 4", 128, true, 0.35},
    {"deepseek-v3.2", 32, false, 0.13},
};

double bound_of(const MeasuredStep& step) {
  constexpr double kPromised = 0.10;
  for (const Miss& miss : kMisses)
    if (step.name.find(miss.step) != std::string::npos && step.is_decode == miss.is_decode &&
        (miss.batch == 0 || miss.batch == step.batch))
      return miss.bound;
  return kPromised;
}

TEST(CostModel, PredictsWhatWasMeasured) {
  int count = 0, within = 0, of_one = 0, of_two = 0;
  for (const char* file : {"h200.json", "gpu_steps.json"})
    for (const MeasuredStep& step : measured_steps(source_dir(), file)) {
      const double error = step.predicted(calibrated_constants()) / step.seconds - 1;
      EXPECT_LE(std::abs(error), bound_of(step))
          << step.name << ", " << (step.is_decode ? "decode" : "prefill") << ", batch "
          << step.batch << ", " << step.input << " tokens: measured " << step.seconds * 1e3
          << " ms, predicted " << step.predicted(calibrated_constants()) * 1e3;
      ++count;
      of_one += step.mix.num_gpus() == 1;
      within += step.mix.num_gpus() == 1 && std::abs(error) <= 0.10;
      of_two += step.mix.num_gpus() == 2;
    }
  EXPECT_GE(count, 100);
  EXPECT_GE(within, of_one * 9 / 10);
  EXPECT_GE(of_two, 12);
}

TEST(CostModel, PartsHaveTheMatricesOfTheModel) {
  for (const char* model : kModels) {
    const ModelConfig config =
        read_model_config(options_of(directory_of(model), ""), directory_of(model));
    const ModelSize size = model_size(config);
    const auto matrices = static_cast<double>(size.matrices());
    const double routers =
        config.moe ? double(size.num_moe_layers) * config.moe->num_experts * config.hidden_size : 0;
    EXPECT_NEAR(matrix_elements(config), matrices + routers, 1e-9 * matrices) << model;
  }
}

TEST(CostModel, KeepsAsMuchOfATokenAsTheModelDoes) {
  for (const char* model : kModels) {
    const ModelConfig config =
        read_model_config(options_of(directory_of(model), ""), directory_of(model));
    double bytes = 0;
    for (int layer = 0; layer < config.num_layers; ++layer)
      bytes += kv_bytes_of_token(config, layer, {}, {});
    EXPECT_DOUBLE_EQ(bytes,
                     static_cast<double>(kv_bytes_per_token(kv_page_groups(config, DType::kBF16))))
        << model;
  }
}

// Recurrent layers: Qwen3-Next's kinds, small.
TEST(CostModel, CountsRecurrentLayers) {
  const ModelConfig config = parse_model_config(R"({"architectures": ["Qwen3NextForCausalLM"],
      "model_type": "qwen3_next", "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 4,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 512,
      "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 32,
      "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4, "num_experts": 8,
      "num_experts_per_tok": 2, "moe_intermediate_size": 128,
      "shared_expert_intermediate_size": 128, "decoder_sparse_step": 1, "mlp_only_layers": [],
      "max_position_embeddings": 4096, "rope_theta": 10000, "rms_norm_eps": 1e-6,
      "hidden_act": "silu", "tie_word_embeddings": false})",
                                                "test");
  const ModelSize size = model_size(config);
  const double routers = double(size.num_moe_layers) * 8 * 256;
  EXPECT_NEAR(matrix_elements(config), static_cast<double>(size.matrices()) + routers, 1);
  double states = 0;
  for (int layer = 0; layer < config.num_layers; ++layer)
    states += state_bytes_of_sequence(config, layer);
  EXPECT_NEAR(states, static_cast<double>(state_bytes(kv_page_groups(config, DType::kBF16))),
              0.02 * states);
}

MixQuestion question_of(const std::string& model, const std::string& flags, const char* gpus,
                        double context, int concurrency) {
  const Options options = options_of(directory_of(model), flags);
  return mix_question(options, read_model_config(options, directory_of(model)), directory_of(model),
                      parse_gpu_set(gpus), context, concurrency);
}

TEST(MixChoice, SmallModelsTakeServersOfTheirOwn) {
  const auto answers = answer_mixes(question_of("llama-3.2-1b", "", "8xH200", 2048, 1024));
  ASSERT_NE(best_latency(answers), nullptr);
  EXPECT_GT(best_throughput(answers, 1024)->mix.replicas, 1);
  for (const MixAnswer& answer : answers)
    if (answer.can_serve()) {
      EXPECT_LE(best_latency(answers)->at(1).seconds, answer.at(1).seconds);
      EXPECT_GE(best_throughput(answers, 1024)->at(1024).tokens_per_s,
                answer.at(1024).tokens_per_s);
    }
}

TEST(MixChoice, SaysWhatIsOutAndWhy) {
  // 15 GiB of weights and 64 x 40,960 tokens: one GPU of 80 GB has no room for these.
  const auto answers = answer_mixes(question_of("qwen3-8b", "", "2xH100", 40960, 64));
  int too_large = 0;
  for (const MixAnswer& answer : answers) {
    too_large += answer.refusal.empty() && !answer.fits;
    if (answer.mix == Mix{.tp = 1, .replicas = 2}) {
      EXPECT_GT(answer.bytes.weights + answer.bytes.kv, answer.available_bytes);
    }
  }
  EXPECT_GE(too_large, 1);
  const auto three = answer_mixes(question_of("qwen3-8b", "", "3xH200", 2048, 8));
  const auto of_three = std::ranges::find(three, Mix{.tp = 3}, &MixAnswer::mix);
  ASSERT_NE(of_three, three.end());
  EXPECT_THAT(of_three->refusal, HasSubstr("cannot be shared equally by 3 ranks"));
  EXPECT_FALSE(of_three->divides);
}

TEST(MixChoice, NothingFits) {
  const auto answers = answer_mixes(question_of("deepseek-v3.2", "", "8xH100", 8192, 64));
  EXPECT_EQ(best_latency(answers), nullptr);
  EXPECT_EQ(best_throughput(answers, 64), nullptr);
}

TEST(MixChoice, TheCommandHasTheMix) {
  const auto answers =
      answer_mixes(question_of("qwen3-30b-a3b", "--context-length 4096", "4xH200", 4096, 2048));
  for (const MixAnswer& answer : answers) {
    if (!answer.can_serve()) continue;
    const std::string command = serve_command("M", answer.options, true);
    EXPECT_THAT(command, HasSubstr("sluice serve M"));
    EXPECT_THAT(command, HasSubstr("--context-length 4096"));
    if (answer.mix.tp > 1) {
      EXPECT_THAT(command, HasSubstr(fmt::format("--tp-size {}", answer.mix.tp)));
    }
    if (answer.mix.ep > 1) {
      EXPECT_THAT(command, HasSubstr(fmt::format("--ep-size {}", answer.mix.ep)));
    }
    // 2,048 sequences over the servers; the engine runs 256 by itself.
    EXPECT_THAT(command, HasSubstr(fmt::format("--max-running-requests {}",
                                               2048 / answer.mix.replicas / answer.mix.dp)));
  }
  EXPECT_EQ(serve_command("a b", Options{}, false), "sluice serve 'a b' --load-format dummy");
}

}  // namespace
}  // namespace sluice
