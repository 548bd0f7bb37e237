// PTX wrappers of Hopper's wgmma for int8, with the tiles and the hazards of wgmma.cuh: a row of a
// tile is 128 bytes, here 128 columns. Sums are exact in 32 bits. Other GPUs trap.
#pragma once

#include <cstdint>

namespace sluice::cuda {

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define SLUICE_WGMMA(...) asm volatile(__VA_ARGS__)
#else
#define SLUICE_WGMMA(...) __trap()
#endif

// c[64 x 8] (+)= a[64 x 32] b[8 x 32]^T.
__device__ inline void wgmma_s8_m64(std::int32_t (&c)[4], std::uint64_t a, std::uint64_t b,
                                    bool add) {
  SLUICE_WGMMA(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %6, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 "
      "{%0, %1, %2, %3}, "
      "%4, %5, p;\n}\n" : "+r"(c[0]),
      "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

// c[64 x 16] (+)= a[64 x 32] b[16 x 32]^T.
__device__ inline void wgmma_s8_m64(std::int32_t (&c)[8], std::uint64_t a, std::uint64_t b,
                                    bool add) {
  SLUICE_WGMMA(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k32.s32.s8.s8 "
      "{%0, %1, %2, %3, %4, %5, %6, %7}, "
      "%8, %9, p;\n}\n" : "+r"(c[0]),
      "+r"(c[1]), "+r"(c[2]), "+r"(c[3]), "+r"(c[4]), "+r"(c[5]), "+r"(c[6]), "+r"(c[7]) : "l"(a),
      "l"(b), "r"(static_cast<int>(add)));
}

// c[64 x 64] (+)= a[64 x 32] b[64 x 32]^T.
__device__ inline void wgmma_s8_m64(std::int32_t (&c)[32], std::uint64_t a, std::uint64_t b,
                                    bool add) {
  SLUICE_WGMMA(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p;\n}\n" : "+r"(c[0]),
      "+r"(c[1]), "+r"(c[2]), "+r"(c[3]), "+r"(c[4]), "+r"(c[5]), "+r"(c[6]), "+r"(c[7]),
      "+r"(c[8]), "+r"(c[9]), "+r"(c[10]), "+r"(c[11]), "+r"(c[12]), "+r"(c[13]), "+r"(c[14]),
      "+r"(c[15]), "+r"(c[16]), "+r"(c[17]), "+r"(c[18]), "+r"(c[19]), "+r"(c[20]), "+r"(c[21]),
      "+r"(c[22]), "+r"(c[23]), "+r"(c[24]), "+r"(c[25]), "+r"(c[26]), "+r"(c[27]), "+r"(c[28]),
      "+r"(c[29]), "+r"(c[30]), "+r"(c[31]) : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

// c[64 x 128] (+)= a[64 x 32] b[128 x 32]^T.
__device__ inline void wgmma_s8_m64(std::int32_t (&c)[64], std::uint64_t a, std::uint64_t b,
                                    bool add) {
  SLUICE_WGMMA(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
      "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "
      "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p;\n}\n" : "+r"(c[0]),
      "+r"(c[1]), "+r"(c[2]), "+r"(c[3]), "+r"(c[4]), "+r"(c[5]), "+r"(c[6]), "+r"(c[7]),
      "+r"(c[8]), "+r"(c[9]), "+r"(c[10]), "+r"(c[11]), "+r"(c[12]), "+r"(c[13]), "+r"(c[14]),
      "+r"(c[15]), "+r"(c[16]), "+r"(c[17]), "+r"(c[18]), "+r"(c[19]), "+r"(c[20]), "+r"(c[21]),
      "+r"(c[22]), "+r"(c[23]), "+r"(c[24]), "+r"(c[25]), "+r"(c[26]), "+r"(c[27]), "+r"(c[28]),
      "+r"(c[29]), "+r"(c[30]), "+r"(c[31]), "+r"(c[32]), "+r"(c[33]), "+r"(c[34]), "+r"(c[35]),
      "+r"(c[36]), "+r"(c[37]), "+r"(c[38]), "+r"(c[39]), "+r"(c[40]), "+r"(c[41]), "+r"(c[42]),
      "+r"(c[43]), "+r"(c[44]), "+r"(c[45]), "+r"(c[46]), "+r"(c[47]), "+r"(c[48]), "+r"(c[49]),
      "+r"(c[50]), "+r"(c[51]), "+r"(c[52]), "+r"(c[53]), "+r"(c[54]), "+r"(c[55]), "+r"(c[56]),
      "+r"(c[57]), "+r"(c[58]), "+r"(c[59]), "+r"(c[60]), "+r"(c[61]), "+r"(c[62]),
      "+r"(c[63]) : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

#undef SLUICE_WGMMA

}  // namespace sluice::cuda
