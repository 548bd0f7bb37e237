// The measuring loops of each instruction set; roofline.cpp selects and times them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/roofline/roofline.h"

namespace sluice::cpu {

inline constexpr std::int64_t kLine = 64;

// Reads `lines` cache lines of each stream. Streams begin `stride` bytes from one another.
using ReadLines = std::uint32_t (*)(const std::byte* from, std::int64_t stride, std::int64_t lines);

// A thread reads `streams` equal parts of its share side by side. It prefetches each line `ahead`
// lines before it is needed (0: never).
struct ReadShape {
  std::string_view name;
  int streams, ahead;
  bool dealt = false;  // threads take pages in turn instead of one contiguous share each
};

inline constexpr std::array<ReadShape, ops::kReadPatterns> kReadShapes = {{
    {"1 stream", 1, 0},
    {"4 streams", 4, 0},
    {"8 streams", 8, 0},
    {"1 stream, prefetch", 1, 32},
    {"1 stream, far prefetch", 1, 96},
    {"2 streams, prefetch", 2, 48},
    {"4 streams, prefetch", 4, 16},
    {"pages in turn", 1, 0, true},
}};

// The loop of one instruction, and the operations of one round.
struct PeakLoop {
  double (*run)(std::int64_t rounds) = nullptr;
  double operations = 0;
};

struct VectorLoops {
  std::array<ReadLines, ops::kReadPatterns> read;  // in the order of kReadShapes
  PeakLoop fma, maddubs;
};
VectorLoops avx2_loops();
VectorLoops avx512_loops();

PeakLoop dpbf16_loop();
PeakLoop dpbusd_loop();
PeakLoop amx_bf16_loop();
PeakLoop amx_int8_loop();

}  // namespace sluice::cpu
