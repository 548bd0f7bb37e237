#include "models/encoders/bidirectional_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "base/thread_pool.h"

namespace sluice {
namespace {

struct Case {
  std::vector<std::int32_t> starts;
  int heads, d, window;
  int kv_heads = heads;

  std::int64_t columns() const { return std::int64_t{heads + 2 * kv_heads} * d; }
};

std::vector<float> numbers(std::size_t count) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> out(count);
  for (float& value : out) value = normal(random);
  return out;
}

std::vector<float> attend(const Case& c, std::vector<float>& qkv, const RotationTable& rotation,
                          int threads) {
  ThreadPool pool(threads);
  Context ctx;
  ctx.pool = &pool;
  const std::int64_t rows = c.starts.back(), width = std::int64_t{c.heads} * c.d;
  std::vector<float> out(static_cast<std::size_t>(rows * width), NAN);
  attend_both_ways(ctx,
                   {.num_heads = c.heads,
                    .num_kv_heads = c.kv_heads,
                    .head_dim = c.d,
                    .scale = 1 / std::sqrt(static_cast<float>(c.d))},
                   c.starts, Tensor::dense(qkv.data(), DType::kF32, {rows, c.columns()}), rotation,
                   c.window, Tensor::dense(out.data(), DType::kF32, {rows, width}));
  return out;
}

// Row `row` of a head, in 64 bits.
std::vector<double> plain(const Case& c, const std::vector<float>& qkv, int begin, int end, int row,
                          int head) {
  const int shared = head / (c.heads / c.kv_heads);  // the head of keys and values
  const auto at = [&](int r, int part, int i) {
    const int column = part == 0 ? head * c.d : (c.heads + (part - 1) * c.kv_heads + shared) * c.d;
    return static_cast<double>(qkv[static_cast<std::size_t>(r * c.columns() + column + i)]);
  };
  std::vector<double> out(static_cast<std::size_t>(c.d));
  double sum = 0;
  for (int key = begin; key < end; ++key) {
    if (c.window > 0 && std::abs(key - row) > c.window) continue;
    double score = 0;
    for (int i = 0; i < c.d; ++i) score += at(row, 0, i) * at(key, 1, i);
    const double weight = std::exp(score / std::sqrt(c.d));
    sum += weight;
    for (int i = 0; i < c.d; ++i) out[static_cast<std::size_t>(i)] += weight * at(key, 2, i);
  }
  for (double& value : out) value /= sum;
  return out;
}

TEST(BidirectionalAttention, EqualsPlainAttention) {
  for (const Case& c :
       {Case{{0, 1, 4, 37, 100}, 2, 12, 0}, Case{{0, 70}, 1, 64, 0}, Case{{0, 3, 90}, 3, 8, 5},
        Case{{0, 33, 66}, 1, 20, 16}, Case{{0, 17, 60}, 6, 16, 0, 2}}) {
    std::vector<float> qkv = numbers(static_cast<std::size_t>(c.starts.back() * c.columns()));
    const std::vector<float> out = attend(c, qkv, {}, 1);
    for (std::size_t t = 0; t + 1 < c.starts.size(); ++t)
      for (int row = c.starts[t]; row < c.starts[t + 1]; ++row)
        for (int head = 0; head < c.heads; ++head) {
          const auto wanted = plain(c, qkv, c.starts[t], c.starts[t + 1], row, head);
          for (int i = 0; i < c.d; ++i)
            // Scores of up to 64 products of about 1, rounded to 2^-24: their weights are off by
            // 64 * 2^-24 at most, and values are below 5.
            EXPECT_NEAR(out[static_cast<std::size_t>((row * c.heads + head) * c.d + i)],
                        wanted[static_cast<std::size_t>(i)], 64 * 5 * std::ldexp(1.0, -24));
        }
  }
}

TEST(BidirectionalAttention, ATextAloneHasTheSameBits) {
  const Case both{{0, 29, 80}, 2, 12, 0}, alone{{0, 51}, 2, 12, 0};
  std::vector<float> qkv = numbers(80 * 72);
  const std::vector<float> together = attend(both, qkv, {}, 3);
  std::vector<float> second(qkv.begin() + 29 * 72, qkv.end());
  const std::vector<float> own = attend(alone, second, {}, 1);
  EXPECT_EQ(std::memcmp(own.data(), together.data() + 29 * 24, own.size() * sizeof(float)), 0);
}

TEST(BidirectionalAttention, RotationsKeepLengthsAndDependOnDistance) {
  const RotationTable rotation(10000, 8, 64);
  std::vector<float> a = numbers(8), b = a;
  rotation.rotate(0, a.data());
  EXPECT_EQ(a, b);
  const auto product = [&](int p, int q) {
    std::vector<float> x = b, y = b;
    rotation.rotate(p, x.data());
    rotation.rotate(q, y.data());
    double sum = 0;
    for (std::size_t i = 0; i < 8; ++i) sum += static_cast<double>(x[i]) * y[i];
    return sum;
  };
  EXPECT_NEAR(product(3, 10), product(40, 47), 1e-5);
  EXPECT_NEAR(product(5, 5), product(0, 0), 1e-5);
}

}  // namespace
}  // namespace sluice
