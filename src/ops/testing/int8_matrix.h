// A weight of int8 in fragments (Weight::int8_rows) with random codes, and its products by the
// definition in kernels/types/int8_rows.h.
#pragma once

#include <cmath>
#include <cstring>

#include "kernels/types/int_fragments.h"
#include "ops/packing.h"
#include "ops/testing/support.h"

namespace sluice::ops {

// Random codes in [-128, 127], and a scale of each row.
struct Int8Matrix {
  Weight w;
  std::vector<std::byte> bytes;
  std::vector<int> codes;
  std::vector<float> scales;

  Int8Matrix(std::int64_t n, std::int64_t k, DType scale, unsigned seed) {
    w.format = Format::kInt8, w.layout = Layout::kFragments, w.group = kFragmentColumns;
    w.input = DType::kBF16, w.scale = scale, w.int8_rows = true;
    w.rows = n, w.columns = k;
    bytes.resize(static_cast<std::size_t>(fragment_bytes(w)));
    w.data = Tensor::dense(bytes.data(), DType::kU8, {1, fragment_bytes(w)});
    std::mt19937 random(seed);
    const FragmentUnit unit = fragment_unit(w);
    auto* const all = reinterpret_cast<std::uint8_t*>(bytes.data());
    for (std::int64_t u = 0; u < fragment_tiles(n) * fragment_units(k); ++u)
      std::memset(all + u * unit.bytes(), 128, static_cast<std::size_t>(unit.code_bytes()));
    for (std::int64_t row = 0; row < n; ++row) {
      scales.push_back(std::ldexp(1 + static_cast<float>(random() % 128) / 128, -9));
      for (std::int64_t column = 0; column < k; ++column) {
        codes.push_back(static_cast<int>(random() % 256) - 128);
        std::uint8_t* const to = all + (row / 16 * fragment_units(k) + column / 128) * unit.bytes();
        const auto [byte, shift] =
            unit.code_at(static_cast<int>(row % 16), static_cast<int>(column % 128));
        to[byte] = static_cast<std::uint8_t>(codes.back() + 128);
        put_scale(to + unit.scale_at(0, static_cast<int>(row % 16)), scales.back());
      }
    }
  }
  void put_scale(std::uint8_t* to, float scale) const {
    const BF16 brain(scale);
    const F16 half(scale);
    if (w.scale == DType::kF32) std::memcpy(to, &scale, 4);
    if (w.scale == DType::kBF16) std::memcpy(to, &brain, 2);
    if (w.scale == DType::kF16) std::memcpy(to, &half, 2);
  }

  // Row n of the weight times a row of x.
  float product(const std::vector<float>& x, std::int64_t n, float bias) const {
    float largest = 0;
    for (const float number : x) largest = std::max(largest, std::abs(number));
    const float factor = largest > 0 ? 127 / largest : 0;
    long sum = 0;
    for (std::size_t k = 0; k < x.size(); ++k)
      sum += std::lrint(x[k] * factor) * codes[static_cast<std::size_t>(n * w.columns) + k];
    return static_cast<float>(sum) * (largest / 127 * scales[static_cast<std::size_t>(n)]) + bias;
  }
};

inline std::vector<float> row_of(const Owned& x, std::int64_t m, std::int64_t columns) {
  std::vector<float> row;
  for (std::int64_t k = 0; k < columns; ++k) row.push_back(static_cast<float>(get(x, {m, k})));
  return row;
}

}  // namespace sluice::ops
