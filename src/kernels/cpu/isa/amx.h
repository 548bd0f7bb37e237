// AMX: eight tile registers of 16 rows of 64 bytes.
// Included inside a target pragma.
//
// The register number is part of the instruction, hence a template argument. Registers 0 to 3 hold
// sums (C), 4 and 5 rows of A, 6 and 7 B. Rows of x are those of A, and weights B, but for weights
// in fragments, where it is the other way round. A thread may use AMX only after detect_cpu_isa()
// has requested the permission from Linux.
#pragma once

#include "kernels/cpu/isa/amx_config.h"
#include "kernels/cpu/isa/flush_denormals.h"

namespace sluice::cpu {
namespace {

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

// Tile configuration, valid while the object lives.
class AmxShapes {
 public:
  AmxShapes() = default;
  ~AmxShapes() { asm volatile("tilerelease"); }
  AmxShapes(const AmxShapes&) = delete;
  AmxShapes& operator=(const AmxShapes&) = delete;

  void set(const AmxShape& shape) {
    if (shape == shape_) return;
    shape_ = shape;
    const AmxConfig config(shape);
    asm volatile("ldtilecfg %0" : : "m"(config));
  }

 private:
  AmxShape shape_;
};

}  // namespace
}  // namespace sluice::cpu
