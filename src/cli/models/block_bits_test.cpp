// What blocks of GGUF files take, against the memory of models that are loaded from these files.
#include "cli/models/block_bits.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "base/log.h"
#include "base/testing/folder.h"
#include "checkpoint/load_config.h"
#include "checkpoint/testing/gguf_writer.h"
#include "cli/models/mix_choice.h"
#include "cli/models/model_files.h"
#include "models/registry.h"

namespace sluice {
namespace {

// Number in a file, values and bytes of a block.
struct Type {
  std::uint32_t number;
  std::int64_t values, bytes;
};
const std::map<std::string, Type> kTypes = {
    {"F32", {0, 1, 4}},       {"F16", {1, 1, 2}},         {"Q4_0", {2, 32, 18}},
    {"Q4_1", {3, 32, 20}},    {"Q5_0", {6, 32, 22}},      {"Q5_1", {7, 32, 24}},
    {"Q8_0", {8, 32, 34}},    {"Q2_K", {10, 256, 84}},    {"Q3_K", {11, 256, 110}},
    {"Q4_K", {12, 256, 144}}, {"Q5_K", {13, 256, 176}},   {"Q6_K", {14, 256, 210}},
    {"IQ4_NL", {20, 32, 18}}, {"IQ4_XS", {23, 256, 136}}, {"MXFP4", {39, 32, 17}}};

// The types of a model's matrices; `fine`: of attn_v, and of ffn_down or ffn_down_exps.
struct Types {
  std::string usual, fine, head, embedding;
  std::string up = {};  // of ffn_up and ffn_up_exps, where it is not `usual`

  static Types all(const std::string& type) { return {type, type, type, type}; }
};

constexpr std::int64_t kHidden = 256, kWidth = 512, kVocab = 1040, kHeads = 4, kExperts = 6;
constexpr std::int64_t kLayers = 2;

class GgufModel {
 public:
  // `head` of the types: empty for a head that is tied to the embedding. `arch`: llama, qwen3moe or
  // gpt-oss.
  GgufModel(const Types& types, const std::string& arch) {
    const bool has_experts = arch != "llama", has_biases = arch == "gpt-oss";
    writer_.text("general.architecture", arch);
    for (const auto& [key, value] : std::vector<std::pair<std::string, std::int64_t>>{
             {"block_count", kLayers},
             {"context_length", 512},
             {"embedding_length", kHidden},
             {"feed_forward_length", kWidth},
             {"attention.head_count", kHeads},
             {"attention.head_count_kv", kHeads / 2},
             {"attention.sliding_window", 128},
             {"expert_count", has_experts ? kExperts : 0},
             {"expert_used_count", has_experts ? 2 : 0}})
      writer_.number(arch + '.' + key, static_cast<std::uint32_t>(value));
    writer_.number(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
    const std::string up = types.up.empty() ? types.usual : types.up;
    add("token_embd", {kVocab, kHidden}, types.embedding);
    if (!types.head.empty()) add("output", {kVocab, kHidden}, types.head);
    add("output_norm", {kHidden}, "F32");
    for (std::int64_t i = 0; i < kLayers; ++i) {
      const std::string at = fmt::format("blk.{}.", i);
      add(at + "attn_norm", {kHidden}, "F32");
      add(at + (has_biases ? "post_attention_norm" : "ffn_norm"), {kHidden}, "F32");
      add(at + "attn_q", {kHidden, kHidden}, types.usual, has_biases);
      add(at + "attn_k", {kHidden / 2, kHidden}, types.usual, has_biases);
      add(at + "attn_v", {kHidden / 2, kHidden}, types.fine, has_biases);
      add(at + "attn_output", {kHidden, kHidden}, types.usual, has_biases);
      if (!has_experts) {
        add(at + "ffn_gate", {kWidth, kHidden}, types.usual);
        add(at + "ffn_up", {kWidth, kHidden}, up);
        add(at + "ffn_down", {kHidden, kWidth}, types.fine);
        continue;
      }
      if (has_biases) {
        add(at + "attn_sinks", {kHeads}, "F32");
      } else {
        add(at + "attn_q_norm", {kHidden / kHeads}, "F32");
        add(at + "attn_k_norm", {kHidden / kHeads}, "F32");
      }
      add(at + "ffn_gate_inp", {kExperts, kHidden}, "F32", has_biases);
      add(at + "ffn_gate_exps", {kExperts, kWidth, kHidden}, types.usual, has_biases);
      add(at + "ffn_up_exps", {kExperts, kWidth, kHidden}, up, has_biases);
      add(at + "ffn_down_exps", {kExperts, kHidden, kWidth}, types.fine, has_biases);
    }
    folder_.write("model.gguf", writer_.bytes());
  }

  std::string path() const { return folder_.path() + "/model.gguf"; }
  ModelConfig config() const { return load_model_config(path()); }

  ServingPlan plan(bool on_gpu, const std::string& quantization = "auto",
                   const std::string& dtype = "auto") const {
    Options options;
    options.quantization = quantization;
    options.dtype = dtype;
    return resolve_or_throw(options, config(), on_gpu ? imagined_gpu() : Machine{});
  }
  WeightForm form(bool on_gpu) const { return weight_form(plan(on_gpu), config(), path()); }

  // Of the weights: what is planned, and what the loader takes. The body of a GPU's forms on a CPU
  // has the same fragments.
  std::int64_t planned(const ServingPlan& plan) const {
    return weight_form(plan, config(), path())
        .bytes(size_of_model(plan, config(), path()), config().tie_word_embeddings);
  }
  std::int64_t taken(const ServingPlan& plan) const {
    Context ctx;
    ctx.cpu_isa = detect_cpu_isa();
    const WeightSource source = WeightSource::checkpoint(path());
    return load_model(ctx, config(), source, {.numerics = plan.numerics()})->weight_bytes();
  }
  void expect_planned(bool on_gpu, const std::string& quantization = "auto",
                      const std::string& dtype = "auto") const {
    const ServingPlan plan = this->plan(on_gpu, quantization, dtype);
    EXPECT_NEAR(static_cast<double>(taken(plan)) / static_cast<double>(planned(plan)), 1, 0.01)
        << (on_gpu ? "GPU " : "CPU ") << quantization << " " << dtype;
  }

 private:
  void add(const std::string& name, std::vector<std::uint64_t> shape, const std::string& type,
           bool has_bias = false) {
    if (has_bias) {
      std::uint64_t rows = 1;
      for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
      writer_.tensor(name + ".bias", {shape.begin(), shape.end() - 1}, 0,
                     std::string(4 * rows, '\1'));
    }
    std::uint64_t count = 1;
    for (const std::uint64_t extent : shape) count *= extent;
    const Type& stored = kTypes.at(type);
    const std::uint64_t bytes = count / static_cast<std::uint64_t>(stored.values) *
                                static_cast<std::uint64_t>(stored.bytes);
    writer_.tensor(name + ".weight", std::move(shape), stored.number, std::string(bytes, '\1'));
  }

  GgufWriter writer_;
  TestFolder folder_;
};

class BlockBitsOfType : public ::testing::TestWithParam<std::string> {};

TEST_P(BlockBitsOfType, ArePlannedAsTheyAreLoaded) {
  set_log_level(LogLevel::kError);
  for (const char* arch : {"llama", "qwen3moe", "gpt-oss"}) {
    const bool has_experts = arch != std::string("llama");
    const GgufModel model(Types::all(GetParam()), arch);
    for (const bool on_gpu : {false, true}) model.expect_planned(on_gpu);
    // A CPU keeps all of them. Its tiles have up to 5 % beside the file's bytes.
    const WeightForm form = model.form(false);
    EXPECT_EQ(form.describe(model_size(model.config())), GetParam() + " blocks as in the file");
    const Type& type = kTypes.at(GetParam());
    const double bits = 8.0 * static_cast<double>(type.bytes) / static_cast<double>(type.values);
    for (const double kind : {form.linear_bits, form.head_bits, form.embedding_bits})
      EXPECT_NEAR(kind / bits, 1, 0.05);
    EXPECT_NEAR(form.expert_bits / (has_experts ? bits : 16), 1, 0.05);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, BlockBitsOfType,
                         ::testing::Values("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "Q2_K",
                                           "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "MXFP4"),
                         [](const auto& info) { return info.param; });

// Kinds with types of their own: a mean over all matrices is off for each.
TEST(BlockBits, EachKindHasItsOwn) {
  set_log_level(LogLevel::kError);
  const Types mixed{.usual = "Q2_K", .fine = "Q8_0", .head = "Q6_K", .embedding = "Q5_0"};
  for (const bool has_experts : {false, true}) {
    const GgufModel model(mixed, has_experts ? "qwen3moe" : "llama");
    for (const bool on_gpu : {false, true}) model.expect_planned(on_gpu);
    const WeightForm form = model.form(false);
    EXPECT_NEAR(form.head_bits, 210.0 / 32, 0.05);
    EXPECT_NEAR(form.embedding_bits, 22.0 / 4, 0.05);
    EXPECT_NEAR(form.expert_bits, has_experts ? (2 * 84.0 / 32 + 8.5) / 3 : 16, 0.05);
    EXPECT_TRUE(form.describe(model_size(model.config())).ends_with(" blocks as in the file"));
    // Units of a GPU: 1184 bytes for 2048 of Q4_K, and the like.
    EXPECT_GT(model.form(true).linear_bits, form.linear_bits);
  }
}

TEST(BlockBits, AHeadThatIsTheEmbeddingHasItsBlocks) {
  set_log_level(LogLevel::kError);
  const GgufModel model({.usual = "Q4_0", .fine = "Q4_0", .head = "", .embedding = "Q8_0"},
                        "llama");
  for (const bool on_gpu : {false, true}) model.expect_planned(on_gpu);
  EXPECT_NEAR(model.form(false).head_bits, 8.5, 0.01);
  EXPECT_EQ(model.form(false).describe(model_size(model.config())),
            "Q4_0, Q8_0 blocks as in the file");
}

// gate and up of experts lie in one stack, and numbers stay numbers.
TEST(BlockBits, WhatIsWidenedIsPricedAndNamed) {
  set_log_level(LogLevel::kError);
  const GgufModel model(
      {.usual = "Q4_K", .fine = "F16", .head = "F16", .embedding = "Q4_K", .up = "Q6_K"},
      "qwen3moe");
  for (const bool on_gpu : {false, true}) model.expect_planned(on_gpu);
  EXPECT_EQ(model.form(false).describe(model_size(model.config())),
            "Q4_K blocks as in the file in 6 of 8 matrices of linear layers and the embedding, "
            "bfloat16 in others");
  EXPECT_DOUBLE_EQ(model.form(false).expert_bits, 16);
  EXPECT_DOUBLE_EQ(model.form(false).head_bits, 16);
}

TEST(BlockBits, OptionsThatWidenOrRoundTakeTheirForms) {
  set_log_level(LogLevel::kError);
  for (const char* arch : {"llama", "qwen3moe"}) {
    const GgufModel model(Types::all("Q4_K"), arch);
    model.expect_planned(false, "none");
    model.expect_planned(false, "auto", "float32");
    model.expect_planned(false, "int8", "float32");
    model.expect_planned(true, "none");
    for (const bool on_gpu : {false, true}) {
      EXPECT_FALSE(weight_form(model.plan(on_gpu, "none"), model.config(), model.path()).blocks);
      EXPECT_TRUE(model.form(on_gpu).blocks);
    }
  }
}

// A unit of Q4_K on a GPU takes more than the file.
TEST(BlockBits, OfLinearLayersOnAGpuAreThoseOfUnits) {
  const GgufModel model(Types::all("Q4_K"), "llama");
  EXPECT_DOUBLE_EQ(model.form(true).linear_bits, 1184.0 * 8 / 2048);
}

TEST(BlockBits, AreSaidByKind) {
  BlockBits bits;
  EXPECT_EQ(bits.describe("bfloat16"), "bfloat16");
  bits.types = {"Q4_K", "Q6_K"};
  bits.linear = {.bits = 5, .matrices = 4, .in_blocks = 4};
  EXPECT_EQ(bits.describe("bfloat16"), "Q4_K, Q6_K blocks as in the file");
  bits.head = {.bits = 16, .matrices = 1, .in_blocks = 0};
  EXPECT_EQ(bits.describe("bfloat16"),
            "Q4_K, Q6_K blocks as in the file in linear layers, bfloat16 in others");
  bits.experts = {.bits = 6, .matrices = 9, .in_blocks = 6};
  bits.embedding = {.bits = 5, .matrices = 1, .in_blocks = 1};
  EXPECT_EQ(bits.describe("float16"),
            "Q4_K, Q6_K blocks as in the file in linear layers, 6 of 9 matrices of experts and the "
            "embedding, float16 in others");
}

}  // namespace
}  // namespace sluice
