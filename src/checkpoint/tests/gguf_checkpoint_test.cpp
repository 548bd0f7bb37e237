#include "checkpoint/gguf/gguf_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/testing/errors.h"
#include "base/testing/folder.h"
#include "checkpoint/testing/gguf_writer.h"
#include "checkpoint/weight_source.h"

namespace sluice {
namespace {

constexpr std::int64_t kHeads = 4, kKvHeads = 2, kHeadDim = 8, kHidden = 64;

template <class Block>
std::string block_bytes_of(const std::vector<Block>& blocks) {
  return std::string(reinterpret_cast<const char*>(blocks.data()), blocks.size() * sizeof(Block));
}

// Blocks whose scale and values tell the row and the column.
std::vector<BlockQ8_0> q8_rows(std::int64_t num_rows, std::int64_t columns) {
  std::vector<BlockQ8_0> blocks;
  for (std::int64_t r = 0; r < num_rows; ++r)
    for (std::int64_t c = 0; c < columns; c += 32) {
      BlockQ8_0 block{F16(static_cast<float>(r + 1) / 64), {}};
      for (int i = 0; i < 32; ++i) block.q[i] = static_cast<std::int8_t>((c + i) % 255 - 127);
      blocks.push_back(block);
    }
  return blocks;
}
float q8_value(std::int64_t row, std::int64_t column) {
  return static_cast<float>(column % 255 - 127) *
         static_cast<float>(F16(static_cast<float>(row + 1) / 64));
}

std::vector<float> counted(std::size_t count, float first = 0) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

std::string as_bf16(const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values) bytes += GgufWriter::raw(BF16(value));
  return bytes;
}
std::string as_f16(const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values) bytes += GgufWriter::raw(F16(value));
  return bytes;
}

class Source {
 public:
  explicit Source(const GgufWriter& writer) {
    folder_.write("x.gguf", writer.bytes());
    source.emplace(WeightSource::checkpoint(folder_.path() + "/x.gguf"));
  }
  std::vector<float> floats(const WeightRequest& request) const {
    std::vector<float> values(static_cast<std::size_t>(request.numel()));
    source->load(request, DType::kF32, std::as_writable_bytes(std::span(values)));
    return values;
  }
  std::optional<WeightSource> source;

 private:
  TestFolder folder_;
};

GgufWriter header(const std::string& arch, std::uint32_t num_experts = 0) {
  GgufWriter writer;
  writer.text("general.architecture", arch);
  writer.number(arch + ".attention.head_count", std::uint32_t{kHeads});
  writer.number(arch + ".attention.head_count_kv", std::uint32_t{kKvHeads});
  if (num_experts > 0) writer.number(arch + ".expert_count", num_experts);
  return writer;
}

TEST(GgufCheckpoint, ValuesOfEachType) {
  GgufWriter writer = header("qwen2");
  const std::vector<float> values = counted(96, -48.5f);
  std::vector<BlockQ4_0> q4_0;
  std::vector<BlockQ4_1> q4_1;
  for (int b = 0; b < 3; ++b) {
    BlockQ4_0 block{F16(0.1f * static_cast<float>(b + 1)), {}};
    BlockQ4_1 other{F16(0.3f), F16(-1.7f * static_cast<float>(b)), {}};
    for (int i = 0; i < 16; ++i)
      block.q[i] = other.q[i] = static_cast<std::uint8_t>(i * 16 + (15 - i));
    q4_0.push_back(block);
    q4_1.push_back(other);
  }
  writer.floats("f32", {3, 32}, values)
      .tensor("f16", {3, 32}, 1, as_f16(values))
      .tensor("bf16", {3, 32}, 30, as_bf16(values));
  writer.tensor("q8_0", {3, 32}, 8, block_bytes_of(q8_rows(3, 32)));
  writer.tensor("q4_0", {3, 32}, 2, block_bytes_of(q4_0))
      .tensor("q4_1", {3, 32}, 3, block_bytes_of(q4_1));
  const Source source(writer);
  std::vector<float> wanted(96);
  const auto expect = [&](const char* name) {
    const WeightRequest request{.name = name, .shape = {3, 32}};
    EXPECT_EQ(source.floats(request), wanted) << name;
    std::vector<BF16> narrow(96);
    source.source->load(request, DType::kBF16, std::as_writable_bytes(std::span(narrow)));
    for (std::size_t i = 0; i < 96; ++i)
      EXPECT_EQ(narrow[i].bits, BF16(wanted[i]).bits) << name << " " << i;
    const WeightRequest box{.name = name, .shape = {3, 32}, .ranges = {{1, 2}, {5, 20}}};
    const std::vector<float> part = source.floats(box);
    for (std::size_t i = 0; i < part.size(); ++i)
      EXPECT_EQ(part[i], wanted[(1 + i / 20) * 32 + 5 + i % 20]) << name << " " << i;
  };
  wanted = values;
  expect("f32");
  expect("f16");
  for (float& value : wanted) value = static_cast<float>(BF16(value));
  expect("bf16");
  for (std::size_t i = 0; i < 96; ++i)
    wanted[i] = q8_value(static_cast<std::int64_t>(i / 32), static_cast<std::int64_t>(i % 32));
  expect("q8_0");
  for (int b = 0; b < 3; ++b) dequantize(q4_0[b], wanted.data() + b * 32);
  expect("q4_0");
  for (int b = 0; b < 3; ++b) dequantize(q4_1[b], wanted.data() + b * 32);
  expect("q4_1");

  EXPECT_EQ(source.source->find("q4_1")->describe(), "Q4_1 [3, 32]");
  EXPECT_EQ(source.source->find("q4_1")->numel(), 96);
  EXPECT_EQ(source.source->find("q4_1")->dtype, DType::kF32);
  EXPECT_FALSE(source.source->find("bf16")->blocks.has_value());
  EXPECT_EQ(source.source->total_bytes(), 96u * 8 + 3 * (34 + 18 + 20));
}

TEST(GgufCheckpoint, RowsOfRotatedHeadsComeInTheOrderOfHalves) {
  // The converter's order: within a head, row i * 2 + half is row half * dim / 2 + i of the
  // checkpoint.
  const auto stored_order = [](std::int64_t num_heads) {
    std::vector<std::int64_t> rows;
    for (std::int64_t head = 0; head < num_heads; ++head)
      for (std::int64_t i = 0; i < kHeadDim / 2; ++i)
        for (const std::int64_t half : {0, 1})
          rows.push_back(head * kHeadDim + half * kHeadDim / 2 + i);
    return rows;
  };
  std::vector<BlockQ8_0> blocks;
  const std::vector<BlockQ8_0> plain = q8_rows(kHeads * kHeadDim, kHidden);
  for (const std::int64_t row : stored_order(kHeads))
    blocks.insert(blocks.end(), plain.begin() + row * 2, plain.begin() + row * 2 + 2);
  std::vector<float> k, k_bias;
  for (const std::int64_t row : stored_order(kKvHeads)) {
    k_bias.push_back(static_cast<float>(row));
    for (int c = 0; c < kHidden; ++c) k.push_back(static_cast<float>(row * 100 + c));
  }
  GgufWriter writer = header("llama");
  writer.tensor("blk.3.attn_q.weight", {kHeads * kHeadDim, kHidden}, 8, block_bytes_of(blocks));
  writer.floats("blk.3.attn_k.weight", {kKvHeads * kHeadDim, kHidden}, k)
      .floats("blk.3.attn_k.bias", {kKvHeads * kHeadDim}, k_bias);
  writer.floats("blk.3.attn_v.weight", {kKvHeads * kHeadDim, kHidden}, k);
  const Source source(writer);

  const std::string prefix = "model.layers.3.self_attn.";
  const std::string q_name = prefix + "q_proj.weight", k_name = prefix + "k_proj.weight",
                    bias_name = prefix + "k_proj.bias";
  for (const AxisRange rows : {AxisRange{0, 32}, AxisRange{3, 1}, AxisRange{5, 14},
                               AxisRange{31, 1}, AxisRange{8, 8}, AxisRange{4, 0}})
    for (const AxisRange columns : {AxisRange{0, 64}, AxisRange{32, 32}, AxisRange{7, 40}}) {
      const WeightRequest request{
          .name = q_name, .shape = {32, kHidden}, .ranges = {rows, columns}};
      const std::vector<float> values = source.floats(request);
      ASSERT_EQ(values.size(), static_cast<std::size_t>(rows.count * columns.count));
      for (std::int64_t r = 0; r < rows.count; ++r)
        for (std::int64_t c = 0; c < columns.count; ++c)
          ASSERT_EQ(values[static_cast<std::size_t>(r * columns.count + c)],
                    q8_value(rows.begin + r, columns.begin + c))
              << rows.begin + r << " " << columns.begin + c;
      if (columns.begin % 32 != 0) continue;
      std::vector<BlockQ8_0> raw(static_cast<std::size_t>(rows.count * columns.count / 32));
      source.source->load_blocks(request, std::as_writable_bytes(std::span(raw)));
      for (std::int64_t r = 0; r < rows.count; ++r)
        for (std::int64_t b = 0; b < columns.count / 32; ++b)
          ASSERT_EQ(
              std::memcmp(
                  &raw[static_cast<std::size_t>(r * columns.count / 32 + b)],
                  &plain[static_cast<std::size_t>((rows.begin + r) * 2 + columns.begin / 32 + b)],
                  sizeof(BlockQ8_0)),
              0);
    }
  const std::vector<float> keys =
      source.floats({.name = k_name, .shape = {16, kHidden}, .ranges = {{6, 4}}});
  for (std::size_t i = 0; i < keys.size(); ++i)
    EXPECT_EQ(keys[i], static_cast<float>((6 + i / 64) * 100 + i % 64));
  EXPECT_EQ(source.floats({.name = bias_name, .shape = {16}}), counted(16));
  EXPECT_EQ(source.floats({.name = bias_name, .shape = {16}, .ranges = {{9, 5}}}), counted(5, 9));
  // Rows of v are as stored.
  EXPECT_EQ(source.floats({.name = prefix + "v_proj.weight", .shape = {16, kHidden}})[kHidden],
            k[kHidden]);
}

TEST(GgufCheckpoint, ExpertsAreTakenFromTheirStack) {
  for (const char* arch : {"qwen3moe", "llama"}) {
    GgufWriter writer = header(arch, 3);
    std::vector<BlockQ8_0> stack;
    for (int e = 0; e < 3; ++e) {
      std::vector<BlockQ8_0> one = q8_rows(4, 32);
      for (BlockQ8_0& block : one)
        block.d = F16(static_cast<float>(block.d) * static_cast<float>(1 << e));
      stack.insert(stack.end(), one.begin(), one.end());
    }
    writer.tensor("blk.0.ffn_up_exps.weight", {3, 4, 32}, 8, block_bytes_of(stack));
    writer.floats("blk.0.ffn_gate_inp.weight", {3, 32}, counted(96));
    const Source source(writer);
    const std::string block =
        std::string(arch) == "llama" ? "model.layers.0.block_sparse_moe." : "model.layers.0.mlp.";
    const std::string part = std::string(arch) == "llama" ? ".w3.weight" : ".up_proj.weight";
    EXPECT_NE(source.source->find(block + "gate.weight"), nullptr);
    for (int e = 0; e < 3; ++e) {
      const std::string name = block + "experts." + std::to_string(e) + part;
      const std::vector<float> values =
          source.floats({.name = name, .shape = {4, 32}, .ranges = {{1, 2}}});
      for (std::size_t i = 0; i < values.size(); ++i)
        EXPECT_EQ(values[i], q8_value(static_cast<std::int64_t>(1 + i / 32),
                                      static_cast<std::int64_t>(i % 32)) *
                                 static_cast<float>(1 << e))
            << name;
    }
    EXPECT_EQ(source.source->find(block + "experts.3" + part), nullptr);
  }
}

TEST(GgufCheckpoint, LatentProjectionInTwoIsPutTogether) {
  constexpr std::int64_t kLatent = 32, kNope = 32, kV = 16;
  const auto value = [](std::int64_t head, std::int64_t row, std::int64_t column) {
    return static_cast<float>(head * 10000 + row * 100 + column);
  };
  std::vector<float> k, v;
  for (std::int64_t head = 0; head < kHeads; ++head) {
    for (std::int64_t c = 0; c < kLatent; ++c)
      for (std::int64_t r = 0; r < kNope; ++r) k.push_back(value(head, r, c));
    for (std::int64_t r = 0; r < kV; ++r)
      for (std::int64_t c = 0; c < kLatent; ++c) v.push_back(value(head, kNope + r, c));
  }
  GgufWriter writer = header("deepseek2", 2);
  writer.floats("blk.1.attn_k_b.weight", {kHeads, kLatent, kNope}, k)
      .floats("blk.1.attn_v_b.weight", {kHeads, kV, kLatent}, v);
  const Source source(writer);
  const std::string name = "model.layers.1.self_attn.kv_b_proj.weight";
  constexpr std::int64_t kRows = kHeads * (kNope + kV);
  for (const AxisRange rows : {AxisRange{0, kRows}, AxisRange{47, 3}, AxisRange{100, 60}}) {
    const std::vector<float> values =
        source.floats({.name = name, .shape = {kRows, kLatent}, .ranges = {rows, {3, 20}}});
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::int64_t row = rows.begin + static_cast<std::int64_t>(i) / 20;
      EXPECT_EQ(values[i], value(row / 48, row % 48, 3 + static_cast<std::int64_t>(i) % 20)) << row;
    }
  }
  EXPECT_EQ(source.source->names(), std::vector<std::string>{name});
}

TEST(GgufCheckpoint, ATensorOfAnotherTypeIsRefusedOnlyIfItIsAskedFor) {
  for (const auto& [type, says] : {std::pair(15u, "Q8_K"), std::pair(999u, "number 999")}) {
    GgufWriter writer = header("qwen2");
    writer.floats("output_norm.weight", {32}, counted(32))
        .tensor("blk.0.attn_output.weight", {2, 32}, type, std::string(70, 'x'))
        .floats("output.weight", {2, 32}, counted(64));
    const Source source(writer);
    EXPECT_THAT(source.source->names(),
                testing::ElementsAre("model.norm.weight", "lm_head.weight"));
    EXPECT_EQ(source.floats({.name = "lm_head.weight", .shape = {2, 32}}), counted(64));
    const std::string message =
        message_of([&] { source.source->find("model.layers.0.self_attn.o_proj.weight"); });
    EXPECT_THAT(message, testing::HasSubstr("the tensor blk.0.attn_output.weight has the type"));
    EXPECT_THAT(message, testing::HasSubstr(says));
    EXPECT_THAT(message, testing::HasSubstr("IQ4_XS and MXFP4 can be read"));
  }
}

TEST(GgufCheckpoint, NamesOfTheOthers) {
  GgufWriter writer = header("qwen2moe", 2);
  for (const char* name : {"token_embd.weight", "output.weight", "blk.0.attn_output.weight",
                           "blk.0.ffn_gate_shexp.weight", "blk.11.attn_norm.weight",
                           "strange.weight", "blk.x.attn_q.weight", "blk.0.attn_strange.weight"})
    writer.floats(name, {1, 1}, {1});
  writer.floats("blk.0.ffn_gate_inp_shexp.weight", {4}, counted(4))
      .floats("rope_freqs.weight", {4}, counted(4));
  writer.floats("output_norm.weight", {4}, counted(4));
  const Source source(writer);
  EXPECT_EQ(
      source.source->names(),
      (std::vector<std::string>{
          "model.embed_tokens.weight", "lm_head.weight", "model.layers.0.self_attn.o_proj.weight",
          "model.layers.0.mlp.shared_expert.gate_proj.weight",
          "model.layers.11.input_layernorm.weight", "strange.weight", "blk.x.attn_q.weight",
          "blk.0.attn_strange.weight", "model.layers.0.mlp.shared_expert_gate.weight",
          "model.norm.weight"}));
  EXPECT_EQ(
      source.floats({.name = "model.layers.0.mlp.shared_expert_gate.weight", .shape = {1, 4}}),
      counted(4));
  EXPECT_EQ(source.floats({.name = "model.norm.weight", .shape = {4}, .ranges = {{1, 2}}}),
            counted(2, 1));
}

// Rows q, k, v of 4 heads and 2 key heads of 2 rows, as the file has them.
TEST(GgufCheckpoint, FusedHeadsComeByKeyHead) {
  const Source source(header("falcon").floats("blk.0.attn_qkv.weight", {16, 1}, counted(16)));
  const std::vector<float> wanted = {0, 1, 2, 3, 8, 9, 12, 13, 4, 5, 6, 7, 10, 11, 14, 15};
  const WeightRequest request{.name = "transformer.h.0.self_attention.query_key_value.weight",
                              .shape = {16, 1}};
  EXPECT_EQ(source.floats(request), wanted);
  WeightRequest part = request;
  part.ranges = {{3, 7}};
  EXPECT_EQ(source.floats(part), std::vector<float>(wanted.begin() + 3, wanted.begin() + 10));
}

TEST(GgufCheckpoint, FusedTensorsOfSeparateOnesAreParts) {
  GgufWriter writer = header("qwen2");
  writer.floats("blk.0.attn_qkv.weight", {16, 2}, counted(32))
      .floats("blk.0.attn_qkv.bias", {16}, counted(16));
  const Source source(writer);
  EXPECT_EQ(source.floats({.name = "model.layers.0.self_attn.k_proj.weight", .shape = {4, 2}}),
            counted(8, 16));
  EXPECT_EQ(source.floats({.name = "model.layers.0.self_attn.v_proj.bias", .shape = {4}}),
            counted(4, 12));
}

TEST(GgufCheckpoint, NormsOfGemmaAreStoredPlusOne) {
  GgufWriter writer = header("gemma3");
  writer.floats("blk.0.attn_norm.weight", {4}, counted(4, 1))
      .floats("blk.0.ffn_norm.weight", {4}, counted(4, 2));
  const Source source(writer);
  EXPECT_EQ(source.floats({.name = "model.layers.0.input_layernorm.weight", .shape = {4}}),
            counted(4));
  EXPECT_EQ(
      source.floats({.name = "model.layers.0.pre_feedforward_layernorm.weight", .shape = {4}}),
      counted(4, 1));
}

TEST(GgufCheckpoint, MatricesOfGpt2AreTurned) {
  const Source source(header("gpt2").floats("blk.0.ffn_up.weight", {3, 2}, counted(6)));
  const WeightRequest request{.name = "transformer.h.0.mlp.c_fc.weight", .shape = {2, 3}};
  EXPECT_EQ(source.floats(request), (std::vector<float>{0, 2, 4, 1, 3, 5}));
  WeightRequest part = request;
  part.ranges = {{1, 1}, {1, 2}};
  EXPECT_EQ(source.floats(part), (std::vector<float>{3, 5}));
}

TEST(GgufCheckpoint, BiasesOfGateAndUpLieBesideEachOther) {
  GgufWriter writer = header("gpt-oss", 2);
  writer.floats("blk.0.ffn_gate_exps.bias", {2, 2}, counted(4))
      .floats("blk.0.ffn_up_exps.bias", {2, 2}, counted(4, 10));
  const Source source(writer);
  const WeightRequest request{.name = "model.layers.0.mlp.experts.gate_up_proj_bias",
                              .shape = {2, 4}};
  EXPECT_EQ(source.floats(request), (std::vector<float>{0, 1, 10, 11, 2, 3, 12, 13}));
}

std::string refusal(const GgufWriter& writer, const std::optional<WeightRequest>& request = {}) {
  try {
    const Source source(writer);
    if (request) source.floats(*request);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput) << error.what();
    return error.message();
  }
  return "";
}

TEST(GgufCheckpoint, Refusals) {
  EXPECT_NE(refusal(GgufWriter()).find("the key general.architecture is missing"),
            std::string::npos);
  EXPECT_NE(
      refusal(header("gemma9"))
          .find("general.architecture is gemma9, which is not supported; supported are apertus, "),
      std::string::npos);
  EXPECT_NE(refusal(header("qwen3moe")).find("qwen3moe.expert_count is missing or 0"),
            std::string::npos);
  EXPECT_NE(refusal(header("llama").floats("blk.0.attn_q.weight", {6, 2}, counted(12)))
                .find("4 heads of an even number of rows"),
            std::string::npos);
  EXPECT_NE(refusal(header("deepseek2", 2).floats("blk.0.attn_k_b.weight", {1, 2, 3}, counted(6)))
                .find("but no blk.0.attn_v_b.weight"),
            std::string::npos);
  EXPECT_NE(refusal(header("qwen3moe", 2).floats("blk.0.ffn_up_exps.weight", {2, 2}, counted(4)))
                .find("2 dimensions; 3 were expected"),
            std::string::npos);
  EXPECT_NE(refusal(header("llama")
                        .floats("blk.0.attn_v.weight", {1}, {1})
                        .floats("model.layers.0.self_attn.v_proj.weight", {1}, {1}))
                .find("two tensors answer to the name model.layers.0.self_attn.v_proj.weight"),
            std::string::npos);
  const GgufWriter one = header("qwen2").floats("output_norm.weight", {4}, counted(4));
  EXPECT_EQ(refusal(one, WeightRequest{.name = "model.norm.weight", .shape = {5}}),
            "the tensor model.norm.weight is float32 [4]; the model needs [5]");
  EXPECT_EQ(refusal(one, WeightRequest{.name = "lm_head.weight", .shape = {5}}),
            "the checkpoint has no tensor lm_head.weight, which the model needs ([5])");
}

GgufWriter part_of(std::uint16_t number, std::uint16_t count) {
  GgufWriter writer;
  writer.number("split.no", number)
      .number("split.count", count)
      .number("split.tensors.count", std::int32_t{3});
  if (number > 0) return writer;
  writer.text("general.architecture", "qwen2")
      .number("qwen2.attention.head_count", std::uint32_t{1});
  return writer;
}

TEST(GgufCheckpoint, PartsOfASplitFile) {
  const TestFolder folder;
  const std::vector<std::uint64_t> shape = {2, 4};
  folder.write("m-00001-of-00003.gguf",
               part_of(0, 3).floats("token_embd.weight", shape, counted(8)).bytes());
  folder.write("m-00002-of-00003.gguf",
               part_of(1, 3).floats("blk.0.attn_q.weight", shape, counted(8, 100)).bytes());
  folder.write("m-00003-of-00003.gguf",
               part_of(2, 3).floats("blk.0.attn_k.weight", shape, counted(8, 200)).bytes());
  const auto open = [&](const std::string& name) {
    return WeightSource::checkpoint(folder.path() + "/" + name);
  };
  const WeightSource source = open("m-00001-of-00003.gguf");
  EXPECT_EQ(source.names().size(), 3u);
  EXPECT_EQ(source.total_bytes(), 96u);
  std::vector<float> out(8);
  for (const auto& [name, first] : {std::pair{"model.embed_tokens.weight", 0.0f},
                                    {"model.layers.0.self_attn.q_proj.weight", 100.0f},
                                    {"model.layers.0.self_attn.k_proj.weight", 200.0f}}) {
    source.load({.name = name, .shape = {2, 4}}, DType::kF32,
                std::as_writable_bytes(std::span(out)));
    EXPECT_EQ(out, counted(8, first)) << name;
  }
  const auto message = [&](const std::string& name) -> std::string {
    try {
      open(name);
    } catch (const Error& error) {
      return error.message().substr(folder.path().size() + 1);
    }
    return "read";
  };
  EXPECT_EQ(message("m-00002-of-00003.gguf"),
            "m-00002-of-00003.gguf: the file is one of 3 parts; name the first, which must end in "
            "-00001-of-00003.gguf");
  folder.write("n.gguf", part_of(0, 3).bytes());
  EXPECT_EQ(
      message("n.gguf"),
      "n.gguf: the file is one of 3 parts; name the first, which must end in -00001-of-00003.gguf");
  folder.write("m-00002-of-00003.gguf", part_of(2, 3).bytes());
  EXPECT_EQ(message("m-00001-of-00003.gguf"),
            "m-00002-of-00003.gguf: the file does not say that it is part 2 of 3 (split.no, "
            "split.count)");
  folder.write("m-00002-of-00003.gguf", part_of(1, 3).bytes());
  EXPECT_EQ(message("m-00001-of-00003.gguf"),
            "m-00001-of-00003.gguf: the parts have 2 tensors, and split.tensors.count is 3");
}

}  // namespace
}  // namespace sluice
