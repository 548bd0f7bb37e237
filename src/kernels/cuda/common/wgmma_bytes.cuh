// PTX wrappers of Hopper's wgmma for e4m3 and int8, with the tiles and the hazards of wgmma.cuh: a
// row of a tile is 128 bytes, here 128 columns. Other GPUs trap.
//
// c[64 x n] (+)= a[64 x 32] b[n x 32]^T, with n of 8, 16, 64 and 128: n / 2 registers of c.
//
//   wgmma_e4m3_m64()   The tensor cores add with fewer bits than float32, so sums of FP8 are
//                      promoted: a GEMM adds the accumulators of 128 columns to sums of its own.
//                      Source: DeepSeek-V3 technical report, 3.3.2.
//   wgmma_s8_m64()     Sums are exact in 32 bits.
#pragma once

#include <cstdint>

namespace sluice::cuda {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define SLUICE_WGMMA(...) asm volatile(__VA_ARGS__)
#else
#define SLUICE_WGMMA(...) __trap()
#endif

// Names of the registers of c in the instruction, and what they are bound to.
#define SLUICE_NAMES_4 "%0, %1, %2, %3"
#define SLUICE_NAMES_8 SLUICE_NAMES_4 ", %4, %5, %6, %7"
#define SLUICE_NAMES_32                                                                        \
  SLUICE_NAMES_8                                                                               \
  ", %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, " \
  "%26, %27, %28, %29, %30, %31"
#define SLUICE_NAMES_64                                                                          \
  SLUICE_NAMES_32                                                                                \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, " \
  "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SLUICE_BIND_4(bind, i) bind(c[i]), bind(c[(i) + 1]), bind(c[(i) + 2]), bind(c[(i) + 3])
#define SLUICE_BIND_8(bind, i) SLUICE_BIND_4(bind, i), SLUICE_BIND_4(bind, (i) + 4)
#define SLUICE_BIND_16(bind, i) SLUICE_BIND_8(bind, i), SLUICE_BIND_8(bind, (i) + 8)
#define SLUICE_BIND_32(bind, i) SLUICE_BIND_16(bind, i), SLUICE_BIND_16(bind, (i) + 16)
#define SLUICE_BIND_64(bind, i) SLUICE_BIND_32(bind, i), SLUICE_BIND_32(bind, (i) + 32)

// One width: `count` registers of c, then the names of a, b and `add`.
#define SLUICE_WGMMA_WIDTH(name, Sum, bind, types, scales, columns, count, a_name, b_name,   \
                           add_name)                                                         \
  __device__ inline void name(Sum(&c)[count], std::uint64_t a, std::uint64_t b, bool add) {  \
    SLUICE_WGMMA("{\n.reg .pred p;\nsetp.ne.b32 p, " add_name                                \
                 ", 0;\nwgmma.mma_async.sync.aligned.m64n" columns "k32." types              \
                 " {" SLUICE_NAMES_##count "}, " a_name ", " b_name ", p" scales             \
                                           ";\n}\n" : SLUICE_BIND_##count(bind, 0) : "l"(a), \
                 "l"(b), "r"(static_cast<int>(add)));                                        \
  }
#define SLUICE_WGMMA_WIDTHS(name, Sum, bind, types, scales)                         \
  SLUICE_WGMMA_WIDTH(name, Sum, bind, types, scales, "8", 4, "%4", "%5", "%6")      \
  SLUICE_WGMMA_WIDTH(name, Sum, bind, types, scales, "16", 8, "%8", "%9", "%10")    \
  SLUICE_WGMMA_WIDTH(name, Sum, bind, types, scales, "64", 32, "%32", "%33", "%34") \
  SLUICE_WGMMA_WIDTH(name, Sum, bind, types, scales, "128", 64, "%64", "%65", "%66")

SLUICE_WGMMA_WIDTHS(wgmma_e4m3_m64, float, "+f", "f32.e4m3.e4m3", ", 1, 1")
SLUICE_WGMMA_WIDTHS(wgmma_s8_m64, std::int32_t, "+r", "s32.s8.s8", "")

#undef SLUICE_WGMMA_WIDTHS
#undef SLUICE_WGMMA_WIDTH
#undef SLUICE_BIND_64
#undef SLUICE_BIND_32
#undef SLUICE_BIND_16
#undef SLUICE_BIND_8
#undef SLUICE_BIND_4
#undef SLUICE_NAMES_64
#undef SLUICE_NAMES_32
#undef SLUICE_NAMES_8
#undef SLUICE_NAMES_4
#undef SLUICE_WGMMA

}  // namespace sluice::cuda
