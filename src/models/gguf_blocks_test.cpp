// A Llama in each type of GGUF's blocks, against an exact model of the arithmetic.
#include <gtest/gtest.h>

#include <array>
#include <iostream>
#include <thread>

#include "base/testing/folder.h"
#include "checkpoint/gguf/gguf_types.h"
#include "checkpoint/testing/gguf_writer.h"
#include "distributed/testing/in_process.h"
#include "kernels/types/block_units.h"
#include "kernels/types/super_block_model.h"
#include "models/testing/driver.h"
#include "ops/activation.h"
#include "ops/norm.h"

namespace sluice::testing {
namespace {

using ops::testing::BlockKind;
using ops::testing::SuperBlockMatrix;
using Vector = std::vector<float>;

constexpr std::int64_t kHidden = 256, kWidth = 512, kVocab = 84, kHeads = 4, kHeadDim = 64;
constexpr int kLayers = 2;
constexpr float kEpsilon = 1e-5f;

Tensor view(Vector& v) {
  return Tensor::dense(v.data(), DType::kF32, {1, static_cast<std::int64_t>(v.size())});
}

std::uint32_t type_number(const BlockKind& kind) {
  for (const GgufTensorType& type : kGgufTensorTypes)
    if (type.blocks && block_type_name(*type.blocks) == kind.name) return type.number;
  fail(ErrorKind::kBug, "{} has no number", kind.name);
}

// Its file, and its logits of sequences of one token: their attention output is the value itself.
// Norms and activations are the operations of Sluice, which have their own tests.
class ExactLlama {
 public:
  // `other`: of values and of the MLPs' up. `head`: of the head; without it the embedding is one.
  ExactLlama(const BlockKind& kind, CpuIsa isa, std::optional<BlockKind> other = {},
             std::optional<BlockKind> head = {})
      : kind_(kind) {
    const BlockKind second = other.value_or(kind);
    ctx_.cpu_isa = isa;
    table_ = matrix("token_embd", kVocab, kHidden);
    for (int i = 0; i < kLayers; ++i) {
      const std::string at = fmt::format("blk.{}.", i);
      matrix(at + "attn_q", kHidden, kHidden);
      matrix(at + "attn_k", kHidden, kHidden);
      layers_.push_back({norm_weight(at + "attn_norm"), norm_weight(at + "ffn_norm"),
                         matrix(at + "attn_v", kHidden, kHidden, second),
                         matrix(at + "attn_output", kHidden, kHidden),
                         matrix(at + "ffn_gate", kWidth, kHidden),
                         matrix(at + "ffn_up", kWidth, kHidden, second),
                         matrix(at + "ffn_down", kHidden, kWidth)});
    }
    last_norm_ = norm_weight("output_norm");
    if (head) head_ = matrix("output", kVocab, kHidden, *head);
    writer_.text("general.architecture", "llama")
        .number("llama.block_count", std::uint32_t{kLayers})
        .number("llama.context_length", std::uint32_t{512})
        .number("llama.embedding_length", static_cast<std::uint32_t>(kHidden))
        .number("llama.feed_forward_length", static_cast<std::uint32_t>(kWidth))
        .number("llama.attention.head_count", static_cast<std::uint32_t>(kHeads))
        .number("llama.attention.head_count_kv", static_cast<std::uint32_t>(kHeads))
        .number("llama.attention.layer_norm_rms_epsilon", kEpsilon)
        .number("llama.vocab_size", static_cast<std::uint32_t>(kVocab));
    folder_.write("model.gguf", writer_.bytes());
  }
  std::string path() const { return folder_.path() + "/model.gguf"; }

  Vector logits(int token) {
    Vector residual;
    for (std::int64_t k = 0; k < kHidden; ++k) residual.push_back(table_->value(token, k));
    for (Layer& layer : layers_) {
      add(residual, product(layer.o, product(layer.v, norm(residual, layer.input_norm))));
      const Vector x = norm(residual, layer.post_norm);
      Vector both = product(layer.gate, x);
      const Vector up = product(layer.up, x);
      both.insert(both.end(), up.begin(), up.end());
      Vector inner(up.size());
      ops::act_and_mul(ctx_, Activation::kSilu, view(both), view(inner));
      add(residual, product(layer.down, inner));
    }
    return product(head_ ? *head_ : *table_, norm(residual, last_norm_));
  }

 private:
  struct Layer {
    Vector input_norm, post_norm;
    SuperBlockMatrix v, o, gate, up, down;
  };

  // Values of about 1 / sqrt(columns), so that activations keep their size.
  SuperBlockMatrix matrix(const std::string& name, std::int64_t rows, std::int64_t columns) {
    return matrix(name, rows, columns, kind_);
  }
  SuperBlockMatrix matrix(const std::string& name, std::int64_t rows, std::int64_t columns,
                          const BlockKind& kind) {
    auto unit = SuperBlockMatrix::random(kind.format, 4, columns, 1);
    double square = 0;
    for (std::int64_t i = 0; i < 4 * columns; ++i)
      square += std::pow(unit.value(i / columns, i % columns), 2);
    const double size = std::sqrt(square / (4.0 * static_cast<double>(columns)));
    auto out = SuperBlockMatrix::random(
        kind.format, rows, columns, ++seed_,
        static_cast<float>(0.01 / size / std::sqrt(static_cast<double>(columns))));
    writer_.tensor(name + ".weight",
                   {static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns)},
                   type_number(kind), std::string(out.bytes.begin(), out.bytes.end()));
    return out;
  }
  Vector norm_weight(const std::string& name) {
    Vector weight;
    for (std::int64_t k = 0; k < kHidden; ++k)
      weight.push_back(0.75f + static_cast<float>(k % 32) / 64);
    writer_.floats(name + ".weight", {static_cast<std::uint64_t>(kHidden)}, weight);
    return weight;
  }
  static Vector product(const SuperBlockMatrix& w, const Vector& x) {
    Vector out;
    for (std::int64_t n = 0; n < w.rows; ++n) out.push_back(w.product(x.data(), n));
    return out;
  }
  Vector norm(Vector& x, Vector& weight) {
    Vector out(x.size());
    ops::rms_norm(ctx_, view(x),
                  Tensor::dense(weight.data(), DType::kF32, {static_cast<std::int64_t>(kHidden)}),
                  kEpsilon, view(out));
    return out;
  }
  static void add(Vector& to, const Vector& from) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
  }

  BlockKind kind_;
  unsigned seed_ = 0;
  Context ctx_;
  GgufWriter writer_;
  TestFolder folder_;
  std::optional<SuperBlockMatrix> table_, head_;
  std::vector<Layer> layers_;
  Vector last_norm_;
};

class GgufBlocks : public ::testing::TestWithParam<BlockKind> {};

TEST_P(GgufBlocks, LogitsAreThoseOfTheExactModelBitForBit) {
  ExactLlama exact(GetParam(), detect_cpu_isa());
  DriverOptions options;
  options.numerics.keep_blocks = true;
  TestDriver driver(exact.path(), options);
  std::vector<DriverItem> items;
  for (const int token : {0, 3, 41, static_cast<int>(kVocab) - 1})
    items.push_back({.sequence = static_cast<int>(items.size()), .tokens = {token}});
  const Rows rows = driver.step(items);
  for (std::size_t i = 0; i < items.size(); ++i)
    EXPECT_EQ(rows[i], exact.logits(items[i].tokens[0])) << "row " << i;
}

TEST_P(GgufBlocks, NothingIsWidened) {
  const ExactLlama exact(GetParam(), detect_cpu_isa());
  Context ctx;
  const ModelConfig config = load_model_config(exact.path());
  const WeightSource source = WeightSource::checkpoint(exact.path());
  const auto forms = planned_forms(ctx, config, source,
                                   {.numerics = {.compute = DType::kBF16, .keep_blocks = true}});
  EXPECT_EQ(computed_as_stored(forms), fmt::format("{} in 15 matrices", GetParam().name));
  EXPECT_EQ(widened_when_read(forms), "");
}

// Logits of the same numbers whose sums have other orders, and are then rounded to bfloat16.
void expect_close(const Rows& rows, const Rows& wanted) {
  ASSERT_EQ(rows.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    float largest = 0;
    for (const float logit : wanted[i]) largest = std::max(largest, std::abs(logit));
    for (std::size_t n = 0; n < wanted[i].size(); ++n)
      EXPECT_NEAR(rows[i][n], wanted[i][n], largest / 64) << i << ", " << n;
  }
}

// A GPU's units of super-blocks (kernels/types/block_units.h) have the numbers of matrices that are
// widened to bfloat16, but for 2^-16 of a scale. Only the order of sums differs, and then rounding.
void expect_logits_of_widened(const ExactLlama& exact) {
  Rows rows[2];
  for (const bool in_fragments : {false, true}) {
    DriverOptions options;
    options.numerics = {
        .compute = DType::kBF16, .int_fragments = in_fragments, .keep_blocks = in_fragments};
    TestDriver driver(exact.path(), options);
    rows[in_fragments] = driver.step({{.tokens = {0, 3, 41, static_cast<int>(kVocab) - 1}}});
  }
  expect_close(rows[1], rows[0]);
}

std::vector<MatrixForm> forms_in_fragments(const ExactLlama& exact, LayerRange layers = {}) {
  Context ctx;
  return planned_forms(
      ctx, load_model_config(exact.path()), WeightSource::checkpoint(exact.path()),
      {.numerics = {.compute = DType::kBF16, .int_fragments = true, .keep_blocks = true},
       .layers = layers});
}

TEST_P(GgufBlocks, FragmentsGiveTheLogitsOfWidenedMatrices) {
  const ExactLlama exact(GetParam(), detect_cpu_isa());
  expect_logits_of_widened(exact);
  EXPECT_EQ(computed_as_stored(forms_in_fragments(exact)),
            fmt::format("{} in 15 matrices", GetParam().name));
}

// As files in Q4_K_M have them: parts of fused layers differ.
TEST(GgufBlocksOfSeveralTypes, AreAllInFragments) {
  const ExactLlama exact({ops::kQ4K, "Q4_K"}, detect_cpu_isa(), BlockKind{ops::kQ6K, "Q6_K"});
  expect_logits_of_widened(exact);
  EXPECT_EQ(computed_as_stored(forms_in_fragments(exact)),
            "Q4_K in 11 matrices, Q6_K in 4 matrices");
  const ExactLlama mixed({ops::kQ5K, "Q5_K"}, detect_cpu_isa(), BlockKind{ops::kIQ4NL, "IQ4_NL"});
  expect_logits_of_widened(mixed);
  EXPECT_EQ(computed_as_stored(forms_in_fragments(mixed)),
            "Q5_K in 11 matrices, IQ4_NL in 4 matrices");
}

// Heads of their own.
TEST(GgufBlocksOfSeveralTypes, HeadsAndEmbeddingsAreInFragments) {
  const BlockKind q4{ops::kQ4K, "Q4_K"}, q6{ops::kQ6K, "Q6_K"}, iq4{ops::kIQ4NL, "IQ4_NL"};
  const ExactLlama exact(q4, detect_cpu_isa(), {}, q6);
  expect_logits_of_widened(exact);
  EXPECT_EQ(computed_as_stored(forms_in_fragments(exact)), "Q6_K in 1 matrix, Q4_K in 15 matrices");
  EXPECT_EQ(widened_when_read(forms_in_fragments(exact)), "");
  const ExactLlama mixed(iq4, detect_cpu_isa(), {}, q6);
  expect_logits_of_widened(mixed);
  EXPECT_EQ(computed_as_stored(forms_in_fragments(mixed)),
            "Q6_K in 1 matrix, IQ4_NL in 15 matrices");
}

// One table where the head is the embedding.
TEST(GgufBlocksOfSeveralTypes, ATiedTableLiesInMemoryOnce) {
  const BlockKind kind{ops::kQ4K, "Q4_K"};
  const auto bytes = [](const ExactLlama& exact) {
    DriverOptions options;
    options.numerics = {.compute = DType::kBF16, .int_fragments = true, .keep_blocks = true};
    return TestDriver(exact.path(), options).model().weight_bytes();
  };
  const std::int64_t table =
      (kVocab + 15) / 16 * (kHidden / 128) * ops::block_unit(kind.format).bytes();
  EXPECT_EQ(bytes({kind, detect_cpu_isa(), {}, kind}) - bytes({kind, detect_cpu_isa()}), table);
}

// Stages of a pipeline: the first has the embedding, the last one the head.
TEST(GgufBlocksOfSeveralTypes, StagesHaveTheirOwnTables) {
  const BlockKind q4{ops::kQ4K, "Q4_K"}, q6{ops::kQ6K, "Q6_K"};
  const LayerRange first{0, 1}, last{1, 2};
  const ExactLlama tied(q4, detect_cpu_isa());
  for (const LayerRange& stage : {first, last})
    EXPECT_EQ(computed_as_stored(forms_in_fragments(tied, stage)), "Q4_K in 8 matrices");
  const ExactLlama untied(q4, detect_cpu_isa(), {}, q6);
  EXPECT_EQ(computed_as_stored(forms_in_fragments(untied, first)), "Q4_K in 8 matrices");
  EXPECT_EQ(computed_as_stored(forms_in_fragments(untied, last)),
            "Q6_K in 1 matrix, Q4_K in 7 matrices");
}

// Each rank has 42 rows of the head. Of a tied one these are its rows of the embedding, too.
TEST(GgufBlocksOfSeveralTypes, RanksShareTheHead) {
  const BlockKind kind{ops::kQ51, "Q5_1"};
  for (const bool tied : {true, false}) {
    const ExactLlama exact(kind, detect_cpu_isa(), {},
                           tied ? std::nullopt : std::optional<BlockKind>(kind));
    const auto logits = [&](Communicator* communicator) {
      DriverOptions options;
      options.communicator = communicator;
      options.numerics = {.compute = DType::kBF16, .int_fragments = true, .keep_blocks = true};
      TestDriver driver(exact.path(), options);
      return driver.step({{.tokens = {0, 41, 42, static_cast<int>(kVocab) - 1}}});
    };
    InProcessGroup group(2);
    std::array<Rows, 2> rows;
    const auto run = [&](int rank) {
      InProcessCommunicator communicator(group, rank);
      rows[static_cast<std::size_t>(rank)] = logits(&communicator);
    };
    std::thread other(run, 1);
    run(0);
    other.join();
    EXPECT_EQ(rows[0], rows[1]);
    expect_close(rows[0], logits(nullptr));
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GgufBlocks, ::testing::ValuesIn(ops::testing::kBlockKinds),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace sluice::testing
