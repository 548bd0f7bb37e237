// GEMM with row-major weights over a vector type V. Included by isa_*.cpp after isa_prelude.h.
//
// One output element is one accumulator of kLanes partial sums over ascending k, reduced by the
// fixed tree of V::sum. The register tile around it does not affect its bits.
#pragma once

namespace sluice::cpu {

// Register tile: out[m * out_stride + n] = x[m] . w[n] for MR x 4 elements.
template <class V, int MR, class TX, class TW>
inline void dot_tile4(const TX* const* x, const TW* const* w, std::int64_t k, float* out,
                      std::int64_t out_stride) {
  // 1. Accumulators.
  typename V::F acc[MR][4];
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
#pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) acc[m][n] = V::zero();

  const TW* const w0 = w[0];
  const TW* const w1 = w[1];
  const TW* const w2 = w[2];
  const TW* const w3 = w[3];
  std::int64_t i = 0;
  // 2. Whole vectors of k: four loads of w and one of x per row feed MR x 4 FMAs.
  for (; i + V::kLanes <= k; i += V::kLanes) {
    const typename V::F wv[4] = {V::load(w0 + i), V::load(w1 + i), V::load(w2 + i),
                                 V::load(w3 + i)};
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) {
      const auto xv = V::load(x[m] + i);
#pragma GCC unroll 4
      for (int n = 0; n < 4; ++n) acc[m][n] = V::fma(xv, wv[n], acc[m][n]);
    }
  }
  // The last, partial vector: missing lanes load as zero.
  if (i < k) {
    const int rest = static_cast<int>(k - i);
    const typename V::F wv[4] = {V::load_n(w0 + i, rest), V::load_n(w1 + i, rest),
                                 V::load_n(w2 + i, rest), V::load_n(w3 + i, rest)};
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) {
      const auto xv = V::load_n(x[m] + i, rest);
#pragma GCC unroll 4
      for (int n = 0; n < 4; ++n) acc[m][n] = V::fma(xv, wv[n], acc[m][n]);
    }
  }
  // 3. sum4 transposes four accumulators and adds them, so that four results are stored at once.
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m)
    _mm_storeu_ps(out + m * out_stride, V::sum4(acc[m][0], acc[m][1], acc[m][2], acc[m][3]));
}

// One element alone; the same order of summation as in the register tile.
template <class V, class TX, class TW>
inline float dot_one(const TX* x, const TW* w, std::int64_t k) {
  auto acc = V::zero();
  std::int64_t i = 0;
  for (; i + V::kLanes <= k; i += V::kLanes) acc = V::fma(V::load(x + i), V::load(w + i), acc);
  if (i < k) {
    const int rest = static_cast<int>(k - i);
    acc = V::fma(V::load_n(x + i, rest), V::load_n(w + i, rest), acc);
  }
  return V::sum(acc);
}

// MR rows of x with `count` rows of w, where row(n) is the address of w[n].
template <class V, int MR, class TX, class TW, class RowOfW>
inline void dot_rows(const TX* const* x, const RowOfW& row, std::int64_t count, std::int64_t k,
                     float* out, std::int64_t out_stride) {
  std::int64_t n = 0;
  for (; n + 4 <= count; n += 4) {
    const TW* w[4] = {row(n), row(n + 1), row(n + 2), row(n + 3)};
    dot_tile4<V, MR, TX, TW>(x, w, k, out + n, out_stride);
  }
  // Columns that do not fill a register tile.
  for (; n < count; ++n)
    for (int m = 0; m < MR; ++m) out[m * out_stride + n] = dot_one<V>(x[m], row(n), k);
}

// The same for 1 to V::kTileRows rows.
template <class V, class TX, class TW, class RowOfW>
inline void dot_some_rows(int rows, const TX* const* x, const RowOfW& row, std::int64_t count,
                          std::int64_t k, float* out, std::int64_t out_stride) {
  // MR is a template argument, so that the accumulators stay in registers.
  switch (rows) {
    case 1:
      return dot_rows<V, 1, TX, TW>(x, row, count, k, out, out_stride);
    case 2:
      return dot_rows<V, 2, TX, TW>(x, row, count, k, out, out_stride);
    default:
      break;
  }
  if constexpr (V::kTileRows > 2) {
    switch (rows) {
      case 3:
        return dot_rows<V, 3, TX, TW>(x, row, count, k, out, out_stride);
      case 4:
        return dot_rows<V, 4, TX, TW>(x, row, count, k, out, out_stride);
      case 5:
        return dot_rows<V, 5, TX, TW>(x, row, count, k, out, out_stride);
      default:
        return dot_rows<V, 6, TX, TW>(x, row, count, k, out, out_stride);
    }
  }
}

template <class V>
inline float weight_at(const WeightVector& w, std::int64_t i) {
  if (w.dtype == DType::kBF16)
    return std::bit_cast<float>(static_cast<std::uint32_t>(static_cast<const BF16*>(w.data)[i].bits)
                                << 16);
  if (w.dtype == DType::kF16) return _cvtsh_ss(static_cast<const F16*>(w.data)[i].bits);
  return static_cast<const float*>(w.data)[i];
}

// Bytes of w per block: they stay in L2 while the rows of x pass.
inline constexpr std::int64_t kWeightBlockBytes = 192 * 1024;

template <class V, class TX, class TW>
void gemm_range(const GemmArgs& a, std::int64_t m0, std::int64_t m1, std::int64_t n0,
                std::int64_t n1) {
  const auto* x = static_cast<const TX*>(a.x);
  const auto* w = static_cast<const TW*>(a.w);
  const std::int64_t row_bytes =
      std::max<std::int64_t>(1, a.k * static_cast<std::int64_t>(sizeof(TW)));
  const std::int64_t fit = std::max<std::int64_t>(4, kWeightBlockBytes / row_bytes / 4 * 4);
  // A single register tile of rows reads w once, so it needs no blocking.
  const std::int64_t block = m1 - m0 <= V::kTileRows ? n1 - n0 : fit;
  for (std::int64_t nb = n0; nb < n1; nb += block) {
    const std::int64_t count = std::min(block, n1 - nb);
    const auto row = [&](std::int64_t n) { return w + (nb + n) * a.w_stride; };
    for (std::int64_t m = m0; m < m1; m += V::kTileRows) {
      const int rows = static_cast<int>(std::min<std::int64_t>(V::kTileRows, m1 - m));
      const TX* xp[V::kTileRows];
      // Rows may be listed (MoE): gather their addresses.
      for (int i = 0; i < rows; ++i)
        xp[i] = x + (a.x_rows == nullptr ? m + i : a.x_rows[m + i]) * a.x_stride;
      float* out = a.out + m * a.out_stride + nb;
      dot_some_rows<V, TX, TW>(rows, xp, row, count, a.k, out, a.out_stride);
      if (a.bias.data == nullptr) continue;
      for (int i = 0; i < rows; ++i)
        for (std::int64_t n = 0; n < count; ++n)
          out[i * a.out_stride + n] += weight_at<V>(a.bias, nb + n);
    }
  }
}

}  // namespace sluice::cpu
