// 1. The head's queries, keys and values are copied: keys in blocks of sixteen, by columns within a
//    block, so that neighbours of a row of scores lie together.
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
constexpr std::int64_t kRows = 4;            // queries at a time
constexpr std::int64_t kBlock = 2 * kLanes;  // keys whose numbers lie together
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

// Rows and columns of eight times eight numbers change places: rows `stride` apart become rows of
// `to` that are kBlock apart.
void transpose_square(const float* from, std::int64_t stride, float* to) {
  __m256 rows[8], pairs[8];
  for (int i = 0; i < 8; ++i) rows[i] = _mm256_loadu_ps(from + i * stride);
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < 4; ++i) {  // columns i and i + 4 of all rows
    const int from_high = i / 2;
    const __m256 first = pairs[from_high], second = pairs[2 + from_high],
                 third = pairs[4 + from_high], fourth = pairs[6 + from_high];
    const auto joined = [&](const __m256& a, const __m256& b) {
      return i % 2 == 0 ? _mm256_shuffle_ps(a, b, 0x44) : _mm256_shuffle_ps(a, b, 0xEE);
    };
    const __m256 upper = joined(first, second), lower = joined(third, fourth);
    _mm256_storeu_ps(to + i * kBlock, _mm256_permute2f128_ps(upper, lower, 0x20));
    _mm256_storeu_ps(to + (i + 4) * kBlock, _mm256_permute2f128_ps(upper, lower, 0x31));
  }
}

std::int64_t padded(std::int64_t n, std::int64_t to) {
  return (n + to - 1) / to * to;
}

// A head's numbers in the first row of a text.
struct HeadRows {
  const float *queries, *keys, *values;
  std::int64_t stride;  // from one row to the next
};

// One head of one text.
class Head {
 public:
  void run(const HeadRows& rows_of, std::int64_t n, int d, float scale,
           const RotationTable& rotation, std::int64_t window, float* out,
           std::int64_t out_stride) {
    n_ = n;
    d_ = d;
    columns_ = padded(n, kBlock);
    value_width_ = padded(d, kLanes);
    copy(rows_of, scale, rotation);
    for (std::int64_t row = 0; row < n; row += kRows) {
      const std::int64_t rows = std::min(kRows, n - row);
      std::int64_t begin = 0, end = n;
      if (window > 0) {
        begin = std::max<std::int64_t>(0, row - window);
        end = std::min(n, row + rows + window);
      }
      begin = begin / (kBlock) * (kBlock);
      score(row, begin, end);
      for (std::int64_t r = 0; r < rows; ++r) soften(r, row + r, begin, end, window);
      sum(rows, begin, end, out + row * out_stride, out_stride);
    }
  }

 private:
  void copy(const HeadRows& rows, float scale, const RotationTable& rotation) {
    const auto d = static_cast<std::size_t>(d_);
    // Every number is written below but for the rows that fill the last block.
    queries_.resize(static_cast<std::size_t>(padded(n_, kRows)) * d);
    keys_.resize(d * static_cast<std::size_t>(columns_));
    values_.resize(static_cast<std::size_t>(n_ * value_width_));
    scores_.resize(static_cast<std::size_t>(kRows * columns_));
    turned_.resize(d * kBlock);
    std::fill(queries_.begin() + n_ * d_, queries_.end(), 0.0f);
    for (std::int64_t i = 0; i < n_; ++i) {
      float* query = queries_.data() + i * d_;
      std::copy_n(rows.queries + i * rows.stride, d_, query);
      if (rotation.defined()) rotation.rotate(static_cast<int>(i), query);
      for (int c = 0; c < d_; ++c) query[c] *= scale;
      float* value = values_.data() + i * value_width_;
      std::copy_n(rows.values + i * rows.stride, d_, value);
      std::fill(value + d_, value + value_width_, 0.0f);
    }
    for (std::int64_t first = 0; first < columns_; first += kBlock) {
      const std::int64_t count = std::min(kBlock, n_ - first);
      if (count == kBlock && !rotation.defined()) {
        copy_keys(rows.keys + first * rows.stride, rows.stride, keys_.data() + first * d_);
        continue;
      }
      std::fill(turned_.begin(), turned_.end(), 0.0f);
      for (std::int64_t i = 0; i < count; ++i) {
        std::copy_n(rows.keys + (first + i) * rows.stride, d_, turned_.data() + i * d_);
        if (rotation.defined())
          rotation.rotate(static_cast<int>(first + i), turned_.data() + i * d_);
      }
      copy_keys(turned_.data(), d_, keys_.data() + first * d_);
    }
  }

  // kBlock keys become columns of a block.
  void copy_keys(const float* from, std::int64_t stride, float* block) const {
    int c = 0;
    for (; c + 8 <= d_; c += 8)
      for (std::int64_t i = 0; i < kBlock; i += 8)
        transpose_square(from + i * stride + c, stride, block + c * kBlock + i);
    for (; c < d_; ++c)
      for (std::int64_t i = 0; i < kBlock; ++i) block[c * kBlock + i] = from[i * stride + c];
  }

  // scores_ [kRows, columns_] of the keys [begin, end), begin and the width of a row in whole
  // pairs.
  void score(std::int64_t row, std::int64_t begin, std::int64_t end) {
    const float* query = queries_.data() + row * d_;
    for (std::int64_t j = begin; j < end; j += kBlock) {
      Lanes sums[kRows][2] = {};
      for (int c = 0; c < d_; ++c) {
        const float* key = keys_.data() + j * d_ + c * kBlock;
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
    Lanes largest = load(row + begin);
    for (std::int64_t j = begin + kLanes; j < stop; j += kLanes) {
      const Lanes x = load(row + j);
      largest = x > largest ? x : largest;
    }
    float most = largest[0];
    for (std::int64_t k = 1; k < kLanes; ++k) most = std::max(most, largest[k]);
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
    for (std::int64_t c = 0; c < value_width_; c += kBlock) {
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
  std::vector<float> queries_, keys_, values_, scores_, turned_;
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
  const std::int64_t d = shape.head_dim, width = shape.num_heads * d,
                     shared = shape.num_kv_heads * d, group = shape.num_heads / shape.num_kv_heads;
  check(ctx.device.kind == DeviceKind::kCpu, "attention in both directions runs on a CPU");
  check(qkv.dim(1) == width + 2 * shared && out.dim(1) == width && out.dim(0) == qkv.dim(0) &&
            starts.back() == qkv.dim(0) && group * shape.num_kv_heads == shape.num_heads,
        "{} rows of {} columns, {} wanted", qkv.dim(0), qkv.dim(1), width + 2 * shared);
  if (ctx.dry_run) return;
  const auto texts = static_cast<std::int64_t>(starts.size()) - 1;
  ctx.pool->parallel_for(texts * shape.num_heads, [&](std::int64_t begin, std::int64_t end) {
    Head head;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t text = i / shape.num_heads, index = i % shape.num_heads;
      const std::int64_t row = starts[static_cast<std::size_t>(text)];
      const float* first = qkv.ptr<float>() + row * qkv.stride[0];
      const float* key = first + width + index / group * d;
      head.run({first + index * d, key, key + shared, qkv.stride[0]},
               starts[static_cast<std::size_t>(text) + 1] - row, shape.head_dim, shape.scale,
               rotation, window, out.ptr<float>() + row * out.stride[0] + index * d, out.stride[0]);
    }
  });
}

}  // namespace sluice
