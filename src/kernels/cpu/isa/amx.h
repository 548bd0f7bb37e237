// AMX: eight tile registers of 16 rows of 64 bytes.
// Included inside a target pragma.
//
// The register number is part of the instruction, hence a template argument. Registers 0 to 3 hold
// sums (C), 4 and 5 rows of A, 6 and 7 B. Rows of x are those of A, and weights B, but for weights
// in fragments, where it is the other way round. A thread may use AMX only after detect_cpu_isa()
// has requested the permission from Linux.
#pragma once

#include <array>

#include "kernels/cpu/isa/flush_denormals.h"

namespace sluice::cpu {
namespace {

inline constexpr int kAmxRows = 16;

template <int kTile>
[[gnu::always_inline]] inline void amx_zero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
template <int kTile>
[[gnu::always_inline]] inline void amx_load(const void* from, std::int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTile) : "memory");
}
template <int kTile>
[[gnu::always_inline]] inline void amx_store(void* to, std::int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
}
// C += A B on bfloat16 pairs (TDPBF16PS, Intel's manual). Two temporaries e and o start at zero.
// Over the pairs of a row of A, ascending: e = fma(a[2i], b[2i], e) and o = fma(a[2i + 1], b[2i +
// 1], o). Then sum += e + o. Denormal numbers count as zero.
template <int kSum, int kA, int kB>
[[gnu::always_inline]] inline void amx_dot_bf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
}
// C += A B of signed A and unsigned B, four bytes per 32-bit lane, exact (TDPBSUD).
template <int kSum, int kA, int kB>
[[gnu::always_inline]] inline void amx_dot_bytes() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
}

// C += A B of signed A and signed B (TDPBSSD).
template <int kSum, int kA, int kB>
[[gnu::always_inline]] inline void amx_dot_signed_bytes() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
}

// Tile configuration, valid while the object lives. Register 4 has `first` rows of A, register 5
// has `second` rows, each row `x_bytes` bytes wide. With second > 0, registers 0 and 1 hold the
// sums of the first rows, and 2 and 3 those of the second rows. With second == 0, all four hold
// sums of the first rows. Registers 6, 0 and 2 have `columns` columns of 32 bits, registers 7, 1
// and 3 have `more_columns`.
class AmxShapes {
 public:
  AmxShapes() = default;
  ~AmxShapes() { asm volatile("tilerelease"); }
  AmxShapes(const AmxShapes&) = delete;
  AmxShapes& operator=(const AmxShapes&) = delete;

  void set(int first, int second, int x_bytes, int columns = 16, int more_columns = 16) {
    const std::array shape = {first, second, x_bytes, columns, more_columns};
    if (shape == shape_) return;
    shape_ = shape;
    struct alignas(64) {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {};
      std::uint8_t rows[16] = {};
    } config;
    for (int i = 0; i < 8; ++i) {
      const int count = i % 2 == 0 || more_columns == 0 ? columns : more_columns;
      config.row_bytes[i] = static_cast<std::uint16_t>(count * 4);
    }
    const int below = second > 0 ? second : first;
    config.rows[0] = config.rows[1] = config.rows[4] = static_cast<std::uint8_t>(first);
    config.rows[2] = config.rows[3] = config.rows[5] = static_cast<std::uint8_t>(below);
    config.row_bytes[4] = config.row_bytes[5] = static_cast<std::uint16_t>(x_bytes);
    // B tiles have one row per four bytes of a row of A (four int8 or two bfloat16 columns).
    config.rows[6] = config.rows[7] = static_cast<std::uint8_t>(x_bytes / 4);
    asm volatile("ldtilecfg %0" : : "m"(config));
  }

 private:
  std::array<int, 5> shape_{};
};

}  // namespace
}  // namespace sluice::cpu
