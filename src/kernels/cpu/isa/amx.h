// AMX: eight tile registers of 16 rows of 64 bytes.
// Included inside a target pragma.
//
// The register number is part of the instruction, hence a template argument. Registers 0 to 3 hold
// sums (C), 4 and 5 hold rows of x (A), 6 and 7 hold weights (B). A thread may use AMX only after
// detect_cpu_isa() has requested the permission from Linux.
#pragma once

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
// Over the pairs of a row of x, ascending: e = fma(x[2i], w[2i], e) and o = fma(x[2i + 1], w[2i +
// 1], o). Then sum += e + o. Denormal numbers count as zero.
template <int kSum, int kX, int kW>
[[gnu::always_inline]] inline void amx_dot_bf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kX), "i"(kW));
}
// C += A B of signed x and unsigned w, four bytes per 32-bit lane, exact (TDPBSUD).
template <int kSum, int kX, int kW>
[[gnu::always_inline]] inline void amx_dot_bytes() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kX), "i"(kW));
}

// C += A B of signed x and signed w (TDPBSSD).
template <int kSum, int kX, int kW>
[[gnu::always_inline]] inline void amx_dot_signed_bytes() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kX), "i"(kW));
}

// Tile configuration, valid while the object lives. Register 4 has `first` rows of x, register 5
// has `second` rows, each row `x_bytes` bytes wide. With second > 0, registers 0 and 1 hold the
// sums of the first rows, and 2 and 3 those of the second rows. With second == 0, all four hold
// sums of the first rows.
class AmxShapes {
 public:
  AmxShapes() = default;
  ~AmxShapes() { asm volatile("tilerelease"); }
  AmxShapes(const AmxShapes&) = delete;
  AmxShapes& operator=(const AmxShapes&) = delete;

  void set(int first, int second, int x_bytes) {
    if (first == first_ && second == second_ && x_bytes == x_bytes_) return;
    first_ = first, second_ = second, x_bytes_ = x_bytes;
    struct alignas(64) {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {};
      std::uint8_t rows[16] = {};
    } config;
    for (int i = 0; i < 8; ++i) config.row_bytes[i] = 64;
    const int below = second > 0 ? second : first;
    config.rows[0] = config.rows[1] = config.rows[4] = static_cast<std::uint8_t>(first);
    config.rows[2] = config.rows[3] = config.rows[5] = static_cast<std::uint8_t>(below);
    config.row_bytes[4] = config.row_bytes[5] = static_cast<std::uint16_t>(x_bytes);
    // B tiles have one row per four bytes of a row of A (four int8 or two bfloat16 columns).
    config.rows[6] = config.rows[7] = static_cast<std::uint8_t>(x_bytes / 4);
    asm volatile("ldtilecfg %0" : : "m"(config));
  }

 private:
  int first_ = 0, second_ = 0, x_bytes_ = 0;
};

}  // namespace
}  // namespace sluice::cpu
