// PTX wrappers of Hopper's wgmma for e4m3, with the tiles and the hazards of wgmma.cuh: a row of a
// tile is 128 bytes, here 128 columns. Other GPUs trap.
//
// The tensor cores add with fewer bits than float32, so sums of FP8 are promoted: a GEMM adds the
// accumulators of 128 columns to sums of its own. Source: DeepSeek-V3 technical report, 3.3.2.
#pragma once

#include <cstdint>

namespace sluice::cuda {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define SLUICE_WGMMA(...) asm volatile(__VA_ARGS__)
#else
#define SLUICE_WGMMA(...) __trap()
#endif

// c[64 x 8] (+)= a[64 x 32] b[8 x 32]^T.
__device__ inline void wgmma_e4m3_m64(float (&c)[4], std::uint64_t a, std::uint64_t b, bool add) {
  SLUICE_WGMMA(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 "
      "{%0, %1, %2, %3}, "
      "%4, %5, p, 1, 1;\n}\n" : "+f"(c[0]),
      "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

// c[64 x 16] (+)= a[64 x 32] b[16 x 32]^T.
__device__ inline void wgmma_e4m3_m64(float (&c)[8], std::uint64_t a, std::uint64_t b, bool add) {
  SLUICE_WGMMA(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3 "
      "{%0, %1, %2, %3, %4, %5, %6, %7}, "
      "%8, %9, p, 1, 1;\n}\n" : "+f"(c[0]),
      "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]) : "l"(a),
      "l"(b), "r"(static_cast<int>(add)));
}

// c[64 x 64] (+)= a[64 x 32] b[64 x 32]^T.
__device__ inline void wgmma_e4m3_m64n64(float (&c)[32], std::uint64_t a, std::uint64_t b,
                                         bool add) {
  SLUICE_WGMMA(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1;\n}\n" : "+f"(c[0]),
      "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
      "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]),
      "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]),
      "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]),
      "+f"(c[29]), "+f"(c[30]), "+f"(c[31]) : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

// c[64 x 128] (+)= a[64 x 32] b[128 x 32]^T.
__device__ inline void wgmma_e4m3_m64n128(float (&c)[64], std::uint64_t a, std::uint64_t b,
                                          bool add) {
  SLUICE_WGMMA(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
      "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "
      "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1;\n}\n" : "+f"(c[0]),
      "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
      "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]),
      "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]),
      "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]),
      "+f"(c[29]), "+f"(c[30]), "+f"(c[31]), "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]),
      "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), "+f"(c[40]), "+f"(c[41]), "+f"(c[42]),
      "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), "+f"(c[48]), "+f"(c[49]),
      "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]), "+f"(c[56]),
      "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]),
      "+f"(c[63]) : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

#undef SLUICE_WGMMA

}  // namespace sluice::cuda
