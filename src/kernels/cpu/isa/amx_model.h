// The operations of amx.h in portable code, so that kernels for AMX are tested on processors
// without it. Included instead of amx.h. Tile registers belong to the thread.
#pragma once

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/isa/amx_config.h"
#include "kernels/cpu/isa/flush_denormals.h"

namespace sluice::cpu {
namespace {

// Operations on tiles whose shapes do not fit, or without a configuration: AMX raises a fault.
inline std::atomic<long> amx_faults{0};

struct AmxUnit {
  struct Tile {
    int rows = 0, row_bytes = 0;
    std::uint8_t bytes[kAmxRows][64] = {};

    template <class T>
    T at(int row, int i) const {
      T value;
      std::memcpy(&value, bytes[row] + static_cast<std::size_t>(i) * sizeof value, sizeof value);
      return value;
    }
    template <class T>
    void put(int row, int i, T value) {
      std::memcpy(bytes[row] + static_cast<std::size_t>(i) * sizeof value, &value, sizeof value);
    }
  };
  Tile tiles[kAmxRegisters];
};
inline thread_local AmxUnit amx_unit;

template <int kTile>
void amx_zero() {
  AmxUnit::Tile& tile = amx_unit.tiles[kTile];
  amx_faults += tile.rows == 0;
  std::memset(tile.bytes, 0, sizeof tile.bytes);
}
template <int kTile>
void amx_load(const void* from, std::int64_t stride) {
  AmxUnit::Tile& tile = amx_unit.tiles[kTile];
  amx_faults += tile.rows == 0;
  std::memset(tile.bytes, 0, sizeof tile.bytes);
  for (int row = 0; row < tile.rows; ++row)
    std::memcpy(tile.bytes[row], static_cast<const std::byte*>(from) + row * stride,
                static_cast<std::size_t>(tile.row_bytes));
}
template <int kTile>
void amx_store(void* to, std::int64_t stride) {
  const AmxUnit::Tile& tile = amx_unit.tiles[kTile];
  amx_faults += tile.rows == 0;
  for (int row = 0; row < tile.rows; ++row)
    std::memcpy(static_cast<std::byte*>(to) + row * stride, tile.bytes[row],
                static_cast<std::size_t>(tile.row_bytes));
}

// C += A B over lanes of four bytes: a row of A meets a row of B for each of its lanes.
template <int kSum, int kA, int kB, class Lane>
void amx_dot(const Lane& lane) {
  static_assert(kSum != kA && kA != kB && kSum != kB);
  AmxUnit::Tile &sum = amx_unit.tiles[kSum], &x = amx_unit.tiles[kA], &w = amx_unit.tiles[kB];
  amx_faults += sum.rows == 0 || sum.rows != x.rows || sum.row_bytes != w.row_bytes ||
                x.row_bytes != w.rows * 4;
  for (int m = 0; m < x.rows; ++m)
    for (int n = 0; n < w.row_bytes / 4; ++n) lane(sum, x, w, m, n);
}
template <int kSum, int kA, int kB, class W>
void amx_dot_of_bytes() {
  amx_dot<kSum, kA, kB>(
      [](AmxUnit::Tile& sum, const AmxUnit::Tile& x, const AmxUnit::Tile& w, int m, int n) {
        auto total = sum.at<std::int32_t>(m, n);
        for (int k = 0; k < x.row_bytes; ++k)
          total += std::int32_t{x.at<std::int8_t>(m, k)} * w.at<W>(k / 4, n * 4 + k % 4);
        sum.put(m, n, total);
      });
}
template <int kSum, int kA, int kB>
void amx_dot_bytes() {
  amx_dot_of_bytes<kSum, kA, kB, std::uint8_t>();
}
template <int kSum, int kA, int kB>
void amx_dot_signed_bytes() {
  amx_dot_of_bytes<kSum, kA, kB, std::int8_t>();
}
template <int kSum, int kA, int kB>
void amx_dot_bf16() {
  amx_dot<kSum, kA, kB>(
      [](AmxUnit::Tile& sum, const AmxUnit::Tile& x, const AmxUnit::Tile& w, int m, int n) {
        // Denormal numbers count as zero.
        const auto flushed = [](float number) {
          return std::fpclassify(number) == FP_SUBNORMAL ? std::copysign(0.0f, number) : number;
        };
        const auto number = [&](const AmxUnit::Tile& tile, int row, int i) {
          const std::uint32_t bits = std::uint32_t{tile.at<std::uint16_t>(row, i)} << 16;
          float value;
          std::memcpy(&value, &bits, sizeof value);
          return flushed(value);
        };
        float even = 0, odd = 0;
        for (int k = 0; k < x.row_bytes / 2; k += 2) {
          even = flushed(std::fma(number(x, m, k), number(w, k / 2, 2 * n), even));
          odd = flushed(std::fma(number(x, m, k + 1), number(w, k / 2, 2 * n + 1), odd));
        }
        sum.put(m, n, flushed(flushed(sum.at<float>(m, n)) + flushed(even + odd)));
      });
}

class AmxShapes {
 public:
  AmxShapes() = default;
  ~AmxShapes() {
    for (AmxUnit::Tile& tile : amx_unit.tiles) tile = {};
  }
  AmxShapes(const AmxShapes&) = delete;
  AmxShapes& operator=(const AmxShapes&) = delete;

  void set(const AmxShape& shape) {
    if (shape == shape_) return;
    shape_ = shape;
    const AmxConfig config(shape);
    for (int i = 0; i < kAmxRegisters; ++i) {
      const int rows = config.rows[i], bytes = config.row_bytes[i];
      amx_faults += rows < 1 || rows > kAmxRows || bytes < 4 || bytes > 64 || bytes % 4 != 0;
      amx_unit.tiles[i] = {.rows = rows, .row_bytes = bytes};
    }
  }

 private:
  AmxShape shape_;
};

}  // namespace
}  // namespace sluice::cpu
