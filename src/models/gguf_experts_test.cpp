// A mixture in pairs of types of GGUF's blocks: what a GPU computes (experts in fragments), on the
// CPU's body, beside widened matrices.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "base/testing/folder.h"
#include "checkpoint/gguf/gguf_types.h"
#include "checkpoint/tensors/quantized_blocks.h"
#include "checkpoint/testing/gguf_writer.h"
#include "distributed/testing/in_process.h"
#include "models/testing/driver.h"

namespace sluice::testing {
namespace {

constexpr std::int64_t kHidden = 256, kWidth = 768, kVocab = 80, kExperts = 4;
constexpr std::uint32_t kHeads = 4, kLayers = 2, kUsed = 2;

std::uint32_t type_number(BlockType blocks) {
  for (const GgufTensorType& type : kGgufTensorTypes)
    if (type.blocks == blocks) return type.number;
  fail(ErrorKind::kBug, "{} has no number", block_type_name(blocks));
}

// Places of the float16 numbers of a block; MXFP4 has a byte at 0 instead.
std::vector<std::size_t> halves_of(BlockType blocks) {
  switch (blocks) {
    case BlockType::kMxFp4:
      return {};
    case BlockType::kQ4_1:
    case BlockType::kQ5_1:
    case BlockType::kQ4K:
    case BlockType::kQ5K:
      return {0, 2};
    case BlockType::kQ2K:
      return {80, 82};
    case BlockType::kQ3K:
      return {108};
    case BlockType::kQ6K:
      return {208};
    default:
      return {0};
  }
}

struct Types {
  BlockType gate, up, down;
};

// Blocks of `count` values with a root mean square of about `size`.
std::string random_blocks(BlockType type, std::int64_t count, double size, std::mt19937& random) {
  const auto bytes = static_cast<std::size_t>(block_bytes(type));
  const std::int64_t blocks = count / block_values(type);
  std::string data(static_cast<std::size_t>(blocks) * bytes, '\0');
  for (char& c : data) c = static_cast<char>(random() & 255);
  const auto fill = [&](float d) {
    for (std::size_t at = 0; at < data.size(); at += bytes) {
      if (type == BlockType::kMxFp4) data[at] = static_cast<char>(127 + std::ilogb(d));
      for (const std::size_t half : halves_of(type)) {
        const F16 number(d * (0.5f + static_cast<float>(random() % 1024) / 1024));
        std::memcpy(data.data() + at + half, &number, 2);
      }
    }
  };
  std::vector<float> values(static_cast<std::size_t>(count));
  fill(0x1p-6f);
  dequantize_blocks(type, reinterpret_cast<const std::byte*>(data.data()), blocks, values.data());
  double square = 0;
  for (const float value : values) square += static_cast<double>(value) * value;
  fill(static_cast<float>(0x1p-6 * size / std::sqrt(square / static_cast<double>(count))));
  return data;
}

class Mixture {
 public:
  explicit Mixture(const Types& types) {
    numbers("token_embd.weight", {kVocab, kHidden});
    ones("output_norm.weight");
    for (std::uint32_t i = 0; i < kLayers; ++i) {
      const std::string at = fmt::format("blk.{}.", i);
      for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"})
        numbers(at + name + ".weight", {kHidden, kHidden});
      ones(at + "attn_norm.weight");
      ones(at + "ffn_norm.weight");
      numbers(at + "ffn_gate_inp.weight", {kExperts, kHidden});
      experts(at + "ffn_gate_exps.weight", types.gate, kWidth, kHidden);
      experts(at + "ffn_up_exps.weight", types.up, kWidth, kHidden);
      experts(at + "ffn_down_exps.weight", types.down, kHidden, kWidth);
    }
    writer_.text("general.architecture", "llama")
        .number("llama.block_count", kLayers)
        .number("llama.context_length", std::uint32_t{512})
        .number("llama.embedding_length", static_cast<std::uint32_t>(kHidden))
        .number("llama.feed_forward_length", static_cast<std::uint32_t>(kWidth))
        .number("llama.attention.head_count", kHeads)
        .number("llama.attention.head_count_kv", kHeads)
        .number("llama.attention.layer_norm_rms_epsilon", 1e-5f)
        .number("llama.expert_count", static_cast<std::uint32_t>(kExperts))
        .number("llama.expert_used_count", kUsed)
        .number("llama.vocab_size", static_cast<std::uint32_t>(kVocab));
    folder_.write("model.gguf", writer_.bytes());
  }
  std::string path() const { return folder_.path() + "/model.gguf"; }

  // `bytes`: of the rank's weights.
  Rows logits(bool in_fragments, Communicator* communicator = nullptr,
              std::int64_t* bytes = nullptr) const {
    DriverOptions options;
    options.communicator = communicator;
    options.numerics = {
        .compute = DType::kBF16, .int_fragments = in_fragments, .keep_blocks = in_fragments};
    TestDriver driver(path(), options);
    if (bytes != nullptr) *bytes = driver.model().weight_bytes();
    return driver.step({{.tokens = {0, 3, 41, 17, static_cast<int>(kVocab) - 1}}});
  }
  std::vector<MatrixForm> forms(bool in_fragments = true) const {
    Context ctx;
    return planned_forms(
        ctx, load_model_config(path()), WeightSource::checkpoint(path()),
        {.numerics = {
             .compute = DType::kBF16, .int_fragments = in_fragments, .keep_blocks = true}});
  }

 private:
  void numbers(const std::string& name, std::vector<std::uint64_t> shape) {
    std::vector<float> values(shape[0] * shape[1]);
    const double size = std::sqrt(3.0 / static_cast<double>(shape[1]));
    std::uniform_real_distribution<double> uniform(-size, size);
    for (float& value : values) value = static_cast<float>(uniform(random_));
    writer_.floats(name, std::move(shape), values);
  }
  void ones(const std::string& name) {
    writer_.floats(name, {kHidden}, std::vector<float>(kHidden, 1));
  }
  void experts(const std::string& name, BlockType type, std::int64_t rows, std::int64_t columns) {
    writer_.tensor(
        name, {kExperts, static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns)},
        type_number(type),
        random_blocks(type, kExperts * rows * columns, 1 / std::sqrt(static_cast<double>(columns)),
                      random_));
  }

  std::mt19937 random_{5};
  GgufWriter writer_;
  TestFolder folder_;
};

void expect_close(const Rows& rows, const Rows& wanted) {
  ASSERT_EQ(rows.size(), wanted.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    float largest = 0;
    for (const float logit : wanted[i]) largest = std::max(largest, std::abs(logit));
    EXPECT_GT(largest, 0.1f);
    for (std::size_t n = 0; n < rows[i].size(); ++n)
      EXPECT_NEAR(rows[i][n], wanted[i][n], largest / 64) << i << ", " << n;
  }
}

class GgufExperts : public ::testing::TestWithParam<std::pair<BlockType, BlockType>> {};

// The order of sums differs, and the last bit of weights with minima, and then rounding.
TEST_P(GgufExperts, FragmentsGiveTheLogitsOfWidenedMatrices) {
  const auto [up, down] = GetParam();
  const Mixture mixture({up, up, down});
  const Rows wanted = mixture.logits(false), rows = mixture.logits(true);
  expect_close(rows, wanted);
  const std::vector<MatrixForm> forms = mixture.forms();
  EXPECT_EQ(forms.size(), 3 * kExperts * kLayers);
  EXPECT_EQ(widened_when_read(forms), "");
}

using enum BlockType;
INSTANTIATE_TEST_SUITE_P(Types, GgufExperts,
                         ::testing::Values(std::pair(kQ4K, kQ6K), std::pair(kQ5K, kQ8_0),
                                           std::pair(kQ6K, kQ5_1), std::pair(kQ3K, kQ4K),
                                           std::pair(kQ2K, kQ3K), std::pair(kIQ4XS, kQ5K),
                                           std::pair(kIQ4NL, kMxFp4), std::pair(kQ4_1, kIQ4XS),
                                           std::pair(kQ5_0, kIQ4NL), std::pair(kQ5_1, kQ5_0),
                                           std::pair(kQ4_0, kQ4_1), std::pair(kMxFp4, kQ2K),
                                           std::pair(kQ8_0, kQ4_0)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", block_type_name(info.param.first),
                                              block_type_name(info.param.second));
                         });

// Each rank has one and a half super-blocks of a row of `down`.
TEST(GgufExpertsOfRanks, KeepTheirBlocks) {
  const Mixture mixture({kQ4K, kQ4K, kQ6K});
  std::int64_t whole = 0;
  const Rows wanted = mixture.logits(true, nullptr, &whole);
  InProcessGroup group(2);
  std::array<Rows, 2> rows;
  std::array<std::int64_t, 2> bytes{};
  const auto run = [&](std::size_t rank) {
    InProcessCommunicator communicator(group, static_cast<int>(rank));
    rows[rank] = mixture.logits(true, &communicator, &bytes[rank]);
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  EXPECT_EQ(rows[0], rows[1]);
  expect_close(rows[0], wanted);
  for (const std::int64_t own : bytes) EXPECT_LT(own, whole * 6 / 10);
}

TEST(GgufExpertsOfOtherTypes, AreWidenedWithTheReason) {
  const Mixture mixture({kQ4K, kQ5K, kQ6K});
  EXPECT_EQ(mixture.logits(true), mixture.logits(false));
  const std::string widened = widened_when_read(mixture.forms());
  EXPECT_NE(widened.find("experts lie together in Q4_K and Q5_K"), std::string::npos) << widened;
  // Tiles of a CPU: gate and up of every expert have the reason, and `down` keeps its blocks.
  for (const MatrixForm& form : mixture.forms(false))
    EXPECT_EQ(form.widened_because, form.name.find(".w2.") != form.name.npos
                                        ? ""
                                        : "parts that lie together differ in type")
        << form.name;
}

}  // namespace
}  // namespace sluice::testing
