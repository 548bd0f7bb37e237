// 1. The head's queries, keys and values are copied: keys by columns, so that neighbours of a row
//    of scores lie together.
// 2. Scores of four rows at a time, eight keys in a register.
// 3. Their softmax.
// 4. The sums of the values.
#include "models/encoders/bidirectional_attention.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace sluice {
namespace {

constexpr std::int64_t kLanes = 8;
constexpr std::int64_t kRows = 4;  // queries at a time
using Lanes = float __attribute__((vector_size(32)));
using IntLanes = std::int32_t __attribute__((vector_size(32)));

Lanes load(const float* from) {
  Lanes out;
  std::memcpy(&out, from, sizeof out);
  return out;
}
void store(float* to, Lanes value) {
  std::memcpy(to, &value, sizeof value);
}
// a * b + c, rounded once.
Lanes fused(float a, Lanes b, Lanes c) {
  return _mm256_fmadd_ps(_mm256_set1_ps(a), b, c);
}
Lanes all(float value) {
  return value - Lanes{};
}

// e^x for x <= 0, within 2e-7 of the value: 2^n e^r with |r| <= ln 2 / 2 and e^r by its series.
Lanes exp_of(Lanes x) {
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kToInteger = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  x = x > all(-87.0f) ? x : all(-87.0f);
  const Lanes n = (x * kLog2E + kToInteger) - kToInteger;
  const Lanes r = (x - n * kLn2High) - n * kLn2Low;
  Lanes p = all(1.0f / 720);
  for (const float c : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) p = p * r + c;
  const IntLanes power = (__builtin_convertvector(n, IntLanes) + 127) << 23;
  Lanes scale;
  std::memcpy(&scale, &power, sizeof scale);
  return p * scale;
}

std::int64_t padded(std::int64_t n, std::int64_t to) {
  return (n + to - 1) / to * to;
}

// One head of one text.
class Head {
 public:
  // `first`: the head's first query in the text's first row.
  void run(const float* first, std::int64_t stride, std::int64_t width, std::int64_t n, int d,
           const RotationTable& rotation, std::int64_t window, float* out,
           std::int64_t out_stride) {
    n_ = n;
    d_ = d;
    columns_ = padded(n, 2 * kLanes);
    value_width_ = padded(d, kLanes);
    copy(first, stride, width, rotation);
    for (std::int64_t row = 0; row < n; row += kRows) {
      const std::int64_t rows = std::min(kRows, n - row);
      std::int64_t begin = 0, end = n;
      if (window > 0) {
        begin = std::max<std::int64_t>(0, row - window);
        end = std::min(n, row + rows + window);
      }
      begin = begin / (2 * kLanes) * (2 * kLanes);
      score(row, begin, end);
      for (std::int64_t r = 0; r < rows; ++r) soften(r, row + r, begin, end, window);
      sum(rows, begin, end, out + row * out_stride, out_stride);
    }
  }

 private:
  void copy(const float* first, std::int64_t stride, std::int64_t width,
            const RotationTable& rotation) {
    const auto d = static_cast<std::size_t>(d_);
    queries_.assign(static_cast<std::size_t>(padded(n_, kRows)) * d, 0.0f);
    keys_.assign(d * static_cast<std::size_t>(columns_), 0.0f);
    values_.assign(static_cast<std::size_t>(n_ * value_width_), 0.0f);
    scores_.resize(static_cast<std::size_t>(kRows * columns_));
    key_.resize(d);
    const float scale = 1.0f / std::sqrt(static_cast<float>(d_));
    for (std::int64_t i = 0; i < n_; ++i) {
      const float* from = first + i * stride;
      float* query = queries_.data() + i * d_;
      std::copy_n(from, d_, query);
      std::copy_n(from + width, d_, key_.data());
      std::copy_n(from + 2 * width, d_, values_.data() + i * value_width_);
      if (rotation.defined()) {
        rotation.rotate(static_cast<int>(i), query);
        rotation.rotate(static_cast<int>(i), key_.data());
      }
      for (int c = 0; c < d_; ++c) {
        query[c] *= scale;
        keys_[static_cast<std::size_t>(c * columns_ + i)] = key_[static_cast<std::size_t>(c)];
      }
    }
  }

  // scores_ [kRows, columns_] of the keys [begin, end), begin and the width of a row in whole
  // pairs.
  void score(std::int64_t row, std::int64_t begin, std::int64_t end) {
    const float* query = queries_.data() + row * d_;
    for (std::int64_t j = begin; j < end; j += 2 * kLanes) {
      Lanes sums[kRows][2] = {};
      for (int c = 0; c < d_; ++c) {
        const float* key = keys_.data() + c * columns_ + j;
        const Lanes low = load(key), high = load(key + kLanes);
#pragma GCC unroll 4
        for (std::int64_t r = 0; r < kRows; ++r) {
          sums[r][0] = fused(query[r * d_ + c], low, sums[r][0]);
          sums[r][1] = fused(query[r * d_ + c], high, sums[r][1]);
        }
      }
#pragma GCC unroll 4
      for (std::int64_t r = 0; r < kRows; ++r) {
        store(&scores_[static_cast<std::size_t>(r * columns_ + j)], sums[r][0]);
        store(&scores_[static_cast<std::size_t>(r * columns_ + j + kLanes)], sums[r][1]);
      }
    }
  }

  // The softmax of row r of scores_, which is the text's row `position`; what it does not see gets
  // 0.
  void soften(std::int64_t r, std::int64_t position, std::int64_t begin, std::int64_t end,
              std::int64_t window) {
    float* row = &scores_[static_cast<std::size_t>(r * columns_)];
    std::int64_t low = begin, high = end;
    if (window > 0) {
      low = std::max(begin, position - window);
      high = std::min(end, position + window + 1);
    }
    const std::int64_t stop = padded(end, kLanes);
    std::fill(row + begin, row + low, -INFINITY);
    std::fill(row + high, row + stop, -INFINITY);
    float most = row[low];
    for (std::int64_t j = low; j < high; ++j) most = std::max(most, row[j]);
    Lanes sums = {};
    for (std::int64_t j = begin; j < stop; j += kLanes) {
      const Lanes x = load(row + j) - most;
      const Lanes e = x > all(-87.0f) ? exp_of(x) : Lanes{};
      store(row + j, e);
      sums += e;
    }
    float sum = 0;
    for (std::int64_t k = 0; k < kLanes; ++k) sum += sums[k];
    factors_[r] = 1.0f / sum;
  }

  void sum(std::int64_t rows, std::int64_t begin, std::int64_t end, float* out,
           std::int64_t out_stride) {
    for (std::int64_t c = 0; c < value_width_; c += 2 * kLanes) {
      const bool pair = c + kLanes < value_width_;
      Lanes sums[kRows][2] = {};
      for (std::int64_t j = begin; j < end; ++j) {
        const float* value = values_.data() + j * value_width_ + c;
        const Lanes low = load(value), high = pair ? load(value + kLanes) : Lanes{};
#pragma GCC unroll 4
        for (std::int64_t r = 0; r < kRows; ++r) {
          const float weight = scores_[static_cast<std::size_t>(r * columns_ + j)];
          sums[r][0] = fused(weight, low, sums[r][0]);
          sums[r][1] = fused(weight, high, sums[r][1]);
        }
      }
#pragma GCC unroll 4
      for (std::int64_t r = 0; r < kRows; ++r)
        for (std::int64_t half = 0; half < 2 && r < rows; ++half) {
          const std::int64_t from = c + half * kLanes;
          const Lanes scaled = sums[r][half] * factors_[r];
          for (std::int64_t k = 0; k < kLanes && from + k < d_; ++k)
            out[r * out_stride + from + k] = scaled[k];
        }
    }
  }

  std::int64_t n_ = 0, columns_ = 0, value_width_ = 0;
  int d_ = 0;
  std::vector<float> queries_, keys_, values_, scores_, key_;
  float factors_[kRows] = {};
};

}  // namespace

RotationTable::RotationTable(double theta, int head_dim, int num_positions) : half_(head_dim / 2) {
  for (int p = 0; p < num_positions; ++p)
    for (int i = 0; i < half_; ++i) {
      const float frequency =
          1.0f / std::pow(static_cast<float>(theta),
                          static_cast<float>(2 * i) / static_cast<float>(head_dim));
      const float angle = static_cast<float>(p) * frequency;
      cos_.push_back(std::cos(angle));
      sin_.push_back(std::sin(angle));
    }
}

void RotationTable::rotate(int position, float* x) const {
  const float* cosines = cos_.data() + static_cast<std::ptrdiff_t>(position) * half_;
  const float* sines = sin_.data() + static_cast<std::ptrdiff_t>(position) * half_;
  for (int i = 0; i < half_; ++i) {
    const float a = x[i], b = x[i + half_];
    x[i] = a * cosines[i] - b * sines[i];
    x[i + half_] = b * cosines[i] + a * sines[i];
  }
}

void attend_both_ways(Context& ctx, const BidirectionalAttentionShape& shape,
                      std::span<const std::int32_t> starts, const Tensor& qkv,
                      const RotationTable& rotation, int window, const Tensor& out) {
  const std::int64_t width = std::int64_t{shape.num_heads} * shape.head_dim;
  check(ctx.device.kind == DeviceKind::kCpu, "attention in both directions runs on a CPU");
  check(qkv.dim(1) == 3 * width && out.dim(1) == width && out.dim(0) == qkv.dim(0) &&
            starts.back() == qkv.dim(0),
        "{} rows of {} columns, {} wanted", qkv.dim(0), qkv.dim(1), 3 * width);
  if (ctx.dry_run) return;
  const auto texts = static_cast<std::int64_t>(starts.size()) - 1;
  ctx.pool->parallel_for(texts * shape.num_heads, [&](std::int64_t begin, std::int64_t end) {
    Head head;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t text = i / shape.num_heads, column = i % shape.num_heads * shape.head_dim;
      const std::int64_t row = starts[static_cast<std::size_t>(text)];
      head.run(qkv.ptr<float>() + row * qkv.stride[0] + column, qkv.stride[0], width,
               starts[static_cast<std::size_t>(text) + 1] - row, shape.head_dim, rotation, window,
               out.ptr<float>() + row * out.stride[0] + column, out.stride[0]);
    }
  });
}

}  // namespace sluice
