#include "layers/weights/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/source_dir.h"
#include "tensor/testing/rank_of.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kDirectory = source_dir() + "/tests/golden/models/";

bool nothing_is_known(std::string_view) {
  return false;
}

class WeightsTest : public ::testing::Test {
 protected:
  std::vector<std::byte> bytes_of(const std::string& name, std::vector<std::int64_t> shape,
                                  std::vector<AxisRange> ranges = {}) {
    WeightRequest request{.name = name, .shape = std::move(shape), .ranges = std::move(ranges)};
    std::vector<std::byte> bytes(static_cast<std::size_t>(request.numel()) * 2);
    source_.load(request, DType::kBF16, bytes);
    return bytes;
  }
  static std::vector<std::byte> bytes_of(const Tensor& tensor) {
    const auto* begin = static_cast<const std::byte*>(tensor.data);
    return {begin, begin + tensor.bytes()};
  }

  WeightSource source_ = WeightSource::checkpoint(kDirectory + "qwen3");
  Context ctx_;
};

TEST_F(WeightsTest, PartsAreStackedByRows) {
  WeightLoader loader(source_, {}, DType::kBF16, ctx_);
  const Weights attention = loader.root().sub("model").sub("layers", 0).sub("self_attn");
  const TensorInfo& q = *source_.find("model.layers.0.self_attn.q_proj.weight");
  const TensorInfo& k = *source_.find("model.layers.0.self_attn.k_proj.weight");
  const Tensor fused = attention.matrix({{"q_proj", q.shape[0]}, {"k_proj", k.shape[0]}},
                                        q.shape[1], Shard::kReplicated);
  loader.finish(nothing_is_known);
  EXPECT_EQ(fused.dtype, DType::kBF16);
  EXPECT_EQ(bytes_of(fused.rows(0, q.shape[0])), bytes_of(q.name, q.shape));
  EXPECT_EQ(bytes_of(fused.rows(q.shape[0], k.shape[0])), bytes_of(k.name, k.shape));
}

TEST_F(WeightsTest, RanksTakeEqualSharesOfEachPart) {
  const TensorInfo& gate = *source_.find("model.layers.0.mlp.gate_proj.weight");
  const TensorInfo& down = *source_.find("model.layers.0.mlp.down_proj.weight");
  const std::int64_t width = gate.shape[0], hidden = gate.shape[1];
  for (const int rank : {0, 1}) {
    RankOf communicator(rank, 2);
    ctx_.communicator = &communicator;
    WeightLoader loader(source_, {}, DType::kBF16, ctx_);
    const Weights mlp = loader.root().sub("model").sub("layers", 0).sub("mlp");
    const Tensor column =
        mlp.matrix({{"gate_proj", width}, {"up_proj", width}}, hidden, Shard::kColumn);
    const Tensor row = mlp.matrix({{"down_proj", hidden}}, width, Shard::kRow);
    loader.finish(nothing_is_known);
    const AxisRange share{rank * width / 2, width / 2};
    EXPECT_EQ(bytes_of(column.rows(0, width / 2)), bytes_of(gate.name, gate.shape, {share}));
    EXPECT_EQ(bytes_of(row), bytes_of(down.name, down.shape, {{}, share}));
  }
}

TEST_F(WeightsTest, SharesThatDoNotComeOutEvenAreRefused) {
  RankOf communicator(0, 3);
  ctx_.communicator = &communicator;
  WeightLoader loader(source_, {}, DType::kBF16, ctx_);
  EXPECT_THROW(loader.root().matrix({{"lm_head", 320}}, 64, Shard::kColumn), Error);
}

TEST_F(WeightsTest, TypesInMemory) {
  struct Row {
    std::string fixture;
    DType compute, matrix;
  };
  for (const Row& row :
       {Row{"qwen3", DType::kF32, DType::kBF16}, Row{"qwen3", DType::kBF16, DType::kBF16},
        Row{"qwen3", DType::kF16, DType::kF16}, Row{"llama-plain", DType::kF32, DType::kF32},
        Row{"llama-plain", DType::kBF16, DType::kBF16},
        Row{"llama-linear-bias-headdim", DType::kF32, DType::kF16}}) {
    const WeightSource source = WeightSource::checkpoint(kDirectory + row.fixture);
    WeightLoader loader(source, {.compute = row.compute}, DType::kBF16, ctx_);
    const Weights body = loader.root().sub("model");
    EXPECT_EQ(body.matrix({{"embed_tokens", 320}}, 64, Shard::kReplicated).dtype, row.matrix)
        << row.fixture;
    EXPECT_EQ(body.vector("norm.weight", 64, WeightInit::kOnes).dtype, DType::kF32);
  }
}

// With and without mapping, and with prefaulted or touched pages (if the system has them).
TEST_F(WeightsTest, HoweverBytesComeTheyArePackedAlike) {
  ThreadPool pool(2);
  ctx_.pool = &pool;
  ctx_.cpu_isa = detect_cpu_isa();
  const WeightSource source = WeightSource::checkpoint(source_dir() + "/models/sluice-tiny");
  const TensorInfo& head = *source.find("lm_head.weight");
  ASSERT_GE(head.bytes, 1u << 20);
  std::vector<std::string> packed;
  for (const int way : {0, 1, 2, 3}) {
    WeightLoader loader(source, {.compute = DType::kBF16}, DType::kBF16, ctx_);
    loader.reads_mapped(way % 2 != 0);
    loader.prefault(way / 2 != 0);
    const ops::Weight w =
        loader.root().packed({{"lm_head", head.shape[0]}}, head.shape[1], Shard::kReplicated);
    ASSERT_FALSE(w.is_row_major());
    loader.finish([](std::string_view) { return true; });
    packed.emplace_back(static_cast<const char*>(w.data.data),
                        static_cast<std::size_t>(w.data.bytes()));
  }
  for (const std::string& other : packed) EXPECT_TRUE(packed[0] == other);
}

TEST_F(WeightsTest, PartsThatBeginWithinATileArePackedAsOne) {
  ctx_.cpu_isa = detect_cpu_isa();
  const WeightSource source = WeightSource::checkpoint(source_dir() + "/models/sluice-tiny");
  const std::int64_t rows = source.find("lm_head.weight")->shape[0],
                     columns = source.find("lm_head.weight")->shape[1];
  ASSERT_GE(rows * columns * 2, 1 << 20);
  std::vector<std::string> packed;
  for (const std::int64_t cut :
       {std::int64_t{0}, std::int64_t{64}, std::int64_t{100}, std::int64_t{777}}) {
    std::vector<WeightPart> parts;
    if (cut > 0) parts.push_back({.name = "lm_head", .rows = cut, .total_rows = rows});
    parts.push_back({.name = "lm_head", .rows = rows - cut, .first_row = cut, .total_rows = rows});
    WeightLoader loader(source, {.compute = DType::kBF16}, DType::kBF16, ctx_);
    loader.reads_mapped(false);
    const ops::Weight w = loader.root().packed(parts, columns, Shard::kReplicated);
    loader.finish([](std::string_view) { return true; });
    packed.emplace_back(static_cast<const char*>(w.data.data),
                        static_cast<std::size_t>(w.data.bytes()));
    EXPECT_TRUE(packed.back() == packed.front()) << cut;
  }
}

TEST_F(WeightsTest, FinishNamesWhatWasNotAskedForAndWhatIsMissing) {
  {
    WeightLoader loader(source_, {}, DType::kBF16, ctx_);
    loader.root().sub("model").vector("norm.weight", 64, WeightInit::kOnes);
    const auto unused =
        loader.finish([](std::string_view name) { return name.starts_with("model.layers."); });
    EXPECT_THAT(unused, ::testing::Contains("model.embed_tokens.weight"));
    EXPECT_THAT(unused, ::testing::Not(::testing::Contains("model.norm.weight")));
    EXPECT_LE(unused.size(), 2u);
  }
  WeightLoader loader(source_, {}, DType::kBF16, ctx_);
  loader.root().vector("first.weight", 64, WeightInit::kOnes);
  loader.root().matrix({{"second", 4}}, 64, Shard::kReplicated);
  try {
    loader.finish(nothing_is_known);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.message(),
                HasSubstr("lacks 2 tensors that the model needs: first.weight, second.weight"));
  }
}

}  // namespace
}  // namespace sluice
