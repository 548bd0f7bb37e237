// The matrix units of AMX, eight tile registers of 16 rows of 64 bytes, and what else the
// processors that have them want. Included inside a target pragma.
//
// The register's number is a template argument, because it is a part of the instruction. Registers
// 0 to 3 hold sums, 4 and 5 rows of x, 6 and 7 weights. A thread may use them once detect_cpu_isa()
// has asked the kernel for it.
#pragma once

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
// Sums += x w of bfloat16 pairs: with temporaries e and o from zero, over the pairs of a row of x
// in order, e = fma(x[2i], w[2i], e) and o = fma(x[2i + 1], w[2i + 1], o), then sum += e + o.
// Denormal numbers count as zero. (Intel's manual, TDPBF16PS.)
template <int kSum, int kX, int kW>
[[gnu::always_inline]] inline void amx_dot_bf16() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kX), "i"(kW));
}
// Sums += x w of signed x and unsigned w, four bytes a lane, exactly.
template <int kSum, int kX, int kW>
[[gnu::always_inline]] inline void amx_dot_bytes() {
  asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kX), "i"(kW));
}

// The same of signed w.
template <int kSum, int kX, int kW>
[[gnu::always_inline]] inline void amx_dot_signed_bytes() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kX), "i"(kW));
}

// The shapes of the registers while it lives: `first` rows of x in register 4, `second` in 5,
// columns of `x_bytes` bytes, and the sums that go with them: with `second` > 0 registers 0 and 1
// of the first, 2 and 3 of the second rows.
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
    config.rows[6] = config.rows[7] = static_cast<std::uint8_t>(x_bytes / 4);
    asm volatile("ldtilecfg %0" : : "m"(config));
  }

 private:
  int first_ = 0, second_ = 0, x_bytes_ = 0;
};

// Denormal numbers count as zero for the vector units too while it lives.
class FlushDenormals {
 public:
  FlushDenormals() { _mm_setcsr(before_ | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(before_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  const unsigned before_ = _mm_getcsr();
};

}  // namespace
}  // namespace sluice::cpu
