// How blocks of a GGUF file, and plain weights under --quantization, are stored.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "base/testing/errors.h"
#include "base/testing/folder.h"
#include "checkpoint/testing/gguf_writer.h"
#include "kernels/types/quantize_model.h"
#include "kernels/types/super_block_model.h"
#include "layers/linear.h"
#include "ops/elementwise.h"
#include "tensor/testing/rank_of.h"

namespace sluice {
namespace {

using ops::Format;

constexpr std::int64_t kColumns = 96;

class QuantisedLinear : public ::testing::Test {
 protected:
  QuantisedLinear() {
    GgufWriter writer;
    writer.text("general.architecture", "qwen2");
    writer.number("qwen2.attention.head_count", std::uint32_t{4})
        .number("qwen2.attention.head_count_kv", std::uint32_t{4});
    add(writer, "a.weight", 40, 8, 34);
    add(writer, "b.weight", 24, 8, 34);
    add(writer, "c.weight", 40, 2, 18);
    add(writer, "d.weight", 24, 3, 20);
    writer.floats("plain.weight", {40, kColumns}, std::vector<float>(40 * kColumns, 0.25f));
    folder_.write("x.gguf", writer.bytes());
    source_.emplace(WeightSource::checkpoint(folder_.path() + "/x.gguf"));
  }

  // Random blocks; scales and minima are small float16 numbers of either sign.
  void add(GgufWriter& writer, const std::string& name, std::uint64_t rows, std::uint32_t type,
           std::size_t bytes) {
    std::string data;
    for (std::uint64_t b = 0; b < rows * kColumns / 32; ++b) {
      std::string block(bytes, '\0');
      for (char& c : block) c = static_cast<char>(random_() & 255);
      for (const std::size_t at : {std::size_t{0}, std::size_t{2}})
        if (at == 0 || type == 3) {
          const F16 number(static_cast<float>(static_cast<int>(random_() % 4000) - 2000) /
                           50000.0f);
          std::memcpy(block.data() + at, &number, sizeof number);
        }
      data += block;
    }
    writer.tensor(name, {rows, kColumns}, type, std::move(data));
  }

  Linear load(const Numerics& numerics, std::initializer_list<WeightPart> parts) {
    WeightLoader loader(*source_, numerics, DType::kBF16, ctx_);
    const Linear linear = Linear::load(loader.root(), parts, kColumns, Shard::kReplicated, false);
    loader.finish([](std::string_view) { return true; });
    stores_.push_back(loader.take_store());
    return linear;
  }

  std::vector<float> stored(const std::string& name, std::int64_t rows) {
    std::vector<float> values(static_cast<std::size_t>(rows * kColumns));
    source_->load({.name = name, .shape = {rows, kColumns}}, DType::kF32,
                  std::as_writable_bytes(std::span(values)));
    return values;
  }
  std::vector<float> held(const Linear& linear) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(linear.rows()));
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
    std::vector<float> values(ids.size() * kColumns);
    ops::embedding(ctx_, Tensor::dense(ids.data(), DType::kI32, {linear.rows()}), linear.weight,
                   Tensor::dense(values.data(), DType::kF32, {linear.rows(), kColumns}));
    return values;
  }

  std::mt19937 random_{3};
  TestFolder folder_;
  std::optional<WeightSource> source_;
  Context ctx_;
  std::vector<WeightStore> stores_;
};

const Numerics kKept = {.compute = DType::kBF16, .keep_blocks = true};

TEST_F(QuantisedLinear, BlocksKeepTheirValues) {
  for (const auto& [name, rows, format] :
       std::vector<std::tuple<std::string, std::int64_t, Format>>{
           {"a", 40, Format::kInt8}, {"c", 40, Format::kInt4}, {"d", 24, Format::kInt4Min}}) {
    const Linear linear = load(kKept, {{name, rows}});
    EXPECT_EQ(linear.weight.format, format);
    EXPECT_EQ(held(linear), stored(name + ".weight", rows)) << name;
  }
}

// out = linear(x) for two rows of x.
std::vector<float> outputs(Context& ctx, const Linear& linear, std::int64_t columns) {
  Arena arena(1 << 20);
  ctx.arena = &arena;
  std::vector<float> x(static_cast<std::size_t>(2 * columns)),
      out(static_cast<std::size_t>(2 * linear.rows()));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
  linear.forward(ctx, Tensor::dense(x.data(), DType::kF32, {2, columns}),
                 Tensor::dense(out.data(), DType::kF32, {2, linear.rows()}));
  ctx.arena = nullptr;
  return out;
}

// The rows of `parts` one after the other, computed alone.
std::vector<float> beside(const std::vector<std::vector<float>>& parts) {
  std::vector<float> out;
  for (const std::size_t row : {0, 1})
    for (const std::vector<float>& part : parts) {
      const auto half = static_cast<std::ptrdiff_t>(part.size() / 2);
      const auto begin = part.begin() + static_cast<std::ptrdiff_t>(row) * half;
      out.insert(out.end(), begin, begin + half);
    }
  return out;
}

TEST_F(QuantisedLinear, FusedBlocksOfOneTypeAreOneWeightAndOfTwoTypesTwo) {
  const Linear fused = load(kKept, {{"a", 40}, {"b", 24}});
  EXPECT_EQ(fused.weight.format, Format::kInt8);
  EXPECT_TRUE(fused.pieces.empty());
  std::vector<float> want = stored("a.weight", 40);
  const std::vector<float> second = stored("b.weight", 24);
  want.insert(want.end(), second.begin(), second.end());
  EXPECT_EQ(held(fused), want);
  for (const std::string other : {"c", "plain"}) {
    const Linear mixed = load(kKept, {{"b", 24}, {"a", 40}, {other, 40}});
    ASSERT_EQ(mixed.pieces.size(), 2u) << other;
    EXPECT_EQ(mixed.pieces[0].weight.format, Format::kInt8);
    EXPECT_EQ(mixed.pieces[0].rows(), 64);
    EXPECT_EQ(mixed.pieces[1].weight.format, other == "c" ? Format::kInt4 : Format::kBf16);
    EXPECT_TRUE(mixed.defined());
    EXPECT_EQ(mixed.rows(), 104);
    EXPECT_EQ(mixed.columns(), kColumns);
    const Linear one = load(kKept, {{"b", 24}, {"a", 40}}), two = load(kKept, {{other, 40}});
    EXPECT_EQ(outputs(ctx_, mixed, kColumns),
              beside({outputs(ctx_, one, kColumns), outputs(ctx_, two, kColumns)}));
  }
}

// Q4_K and Q6_K, as Q4_K_M stores queries and values.
TEST(SuperBlockLinear, PartsKeepTheirFormsAndValues) {
  constexpr std::int64_t kWide = 512;
  GgufWriter writer;
  writer.text("general.architecture", "qwen2");
  const auto add = [&](const char* name, const ops::testing::SuperBlockMatrix& model,
                       std::uint32_t type) {
    writer.tensor(name, {static_cast<std::uint64_t>(model.rows), kWide}, type,
                  std::string(model.bytes.begin(), model.bytes.end()));
  };
  const auto q = ops::testing::SuperBlockMatrix::random(ops::kQ4K, 40, kWide, 1),
             v = ops::testing::SuperBlockMatrix::random(ops::kQ6K, 24, kWide, 2);
  add("q.weight", q, 12);
  add("v.weight", v, 14);
  const TestFolder folder;
  folder.write("x.gguf", writer.bytes());
  const WeightSource source = WeightSource::checkpoint(folder.path() + "/x.gguf");
  Context ctx;
  WeightLoader loader(source, kKept, DType::kBF16, ctx);
  const Linear linear =
      Linear::load(loader.root(), {{"q", 40}, {"v", 24}}, kWide, Shard::kReplicated, false);
  loader.finish([](std::string_view) { return true; });
  ASSERT_EQ(linear.pieces.size(), 2u);
  EXPECT_EQ(linear.pieces[0].weight.format, ops::kQ4K);
  EXPECT_EQ(linear.pieces[1].weight.format, ops::kQ6K);
  // The values that the file's reader widens them to.
  for (const auto& [name, model] : {std::pair{"q.weight", &q}, std::pair{"v.weight", &v}}) {
    std::vector<float> values(static_cast<std::size_t>(model->rows * kWide));
    source.load({.name = name, .shape = {model->rows, kWide}}, DType::kF32,
                std::as_writable_bytes(std::span(values)));
    for (std::int64_t i = 0; i < model->rows * kWide; ++i)
      EXPECT_EQ(values[static_cast<std::size_t>(i)], model->value(i / kWide, i % kWide)) << name;
  }
  const std::vector<float> out = outputs(ctx, linear, kWide);
  std::vector<float> x(kWide);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 37 % 101) / 50 - 1;
  for (std::int64_t n = 0; n < 64; ++n)
    EXPECT_EQ(out[static_cast<std::size_t>(n)],
              n < 40 ? q.product(x.data(), n) : v.product(x.data(), n - 40));
}

TEST_F(QuantisedLinear, RanksHaveWholeBlocks) {
  const auto share = [&](int ranks) {
    RankOf communicator(1, ranks);
    ctx_.communicator = &communicator;
    WeightLoader loader(*source_, kKept, DType::kBF16, ctx_);
    const Linear linear = Linear::load(loader.root(), {{"a", 40}}, kColumns, Shard::kRow, false);
    loader.finish([](std::string_view) { return true; });
    return linear.weight.columns;
  };
  EXPECT_EQ(share(3), 32);
  EXPECT_THAT(message_of([&] { share(2); }),
              ::testing::HasSubstr("a.weight: ranks of 48 columns would share its blocks of 32"));
}

TEST_F(QuantisedLinear, BlocksAreWidenedUnlessTheyAreToStay) {
  const Linear linear = load({.compute = DType::kF32}, {{"d", 24}});
  EXPECT_EQ(linear.weight.format, Format::kF32);
  EXPECT_EQ(held(linear), stored("d.weight", 24));
}

TEST_F(QuantisedLinear, QuantisingTakesBlocksOfItsFormAsTheyAreAndOthersByTheirValues) {
  Numerics numerics = {.compute = DType::kBF16, .quantization = Format::kInt8, .keep_blocks = true};
  EXPECT_EQ(held(load(numerics, {{"a", 40}})), stored("a.weight", 40));
  std::vector<float> plain = stored("d.weight", 24);
  for (const std::int64_t group : {32, 128}) {
    numerics.quantization_group = group;
    const auto model = ops::testing::ModelMatrix::quantised(
        Format::kInt8, Tensor::dense(plain.data(), DType::kF32, {24, kColumns}), group);
    const std::vector<float> got = held(load(numerics, {{"d", 24}}));
    for (std::int64_t n = 0; n < 24; ++n)
      for (std::int64_t k = 0; k < kColumns; ++k)
        ASSERT_EQ(got[static_cast<std::size_t>(n * kColumns + k)], model.value(n, k));
  }
}

TEST_F(QuantisedLinear, RowsOfEitherTypeGiveTheProductOfTheirValues) {
  const Linear linear = load(kKept, {{"a", 40}});
  std::vector<float> x(kColumns), wide(40), narrow(40);
  std::vector<BF16> x16(kColumns);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x16[i] = BF16(static_cast<float>(random_() % 1000) / 300 - 1);
    x[i] = static_cast<float>(x16[i]);
  }
  Arena arena(1 << 16);
  ctx_.arena = &arena;
  linear.forward(ctx_, Tensor::dense(x.data(), DType::kF32, {1, kColumns}),
                 Tensor::dense(wide.data(), DType::kF32, {1, 40}));
  linear.forward(ctx_, Tensor::dense(x16.data(), DType::kBF16, {1, kColumns}),
                 Tensor::dense(narrow.data(), DType::kF32, {1, 40}));
  EXPECT_EQ(wide, narrow);
  const std::vector<float> w = held(linear);
  const ops::testing::ModelRow row(x.data(), kColumns, 32);
  for (std::size_t n = 0; n < 40; ++n) {
    // For each of three groups: the multiplication of the scales rounds once, and the sum rounds
    // once.
    double want = 0, size = 0;
    for (std::size_t k = 0; k < kColumns; ++k) {
      const double term = double{w[n * kColumns + k]} * row.q[k] * row.scales[k / 32];
      want += term;
      size += std::abs(term);
    }
    EXPECT_NEAR(wide[n], want, 6 * 6e-8 * size) << n;
  }
}

}  // namespace
}  // namespace sluice
