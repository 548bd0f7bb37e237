// Inner loop of AMX GEMM with the bfloat16 tiles of tiles.h, one step of 32 columns at a time.
// Included after amx.h.
#pragma once

namespace sluice::cpu {
namespace {

inline constexpr std::int64_t kLine = 64;
inline constexpr std::int64_t kStepColumns = 32;              // columns of one tile instruction
inline constexpr std::int64_t kStepLines = kStepColumns / 2;  // lines of a tile

// Rows of x in A registers: `first` rows in register 4 and, if any, `second` rows in register 5.
struct RowGroup {
  const std::byte* x = nullptr;  // first row, at the first column of the sum
  std::int64_t stride = 0;       // bytes from one row to the next
  std::int64_t second_at = 0;    // from the first row of register 4 to the first row of register 5
  int first = 0, second = 0;     // numbers of rows
};

// Memory accesses that are interleaved with the tile instructions.
enum class Fetch {
  kNothing,
  kStream,  // prefetch the same stream kNear bytes ahead into L1 and kAhead bytes
            // ahead into L2
  kTouch,   // load the next lines (as good as a prefetch, and done in their order) and
            // prefetch later ones
};
constexpr std::int64_t kAhead = 3072, kNear = 1024;
// Fetch::kTouch within one stream: distance in bytes from the touched lines to the prefetched ones.
constexpr std::int64_t kFurther = 3072;

// Accumulates `count` steps in registers of 1 x NT or 2 x 2 tiles; w is line 0 of the first tile.
// For kTouch, `touched` and `fetched` have as many lines as w, and those must exist.
template <int kRowTiles, int NT, Fetch kFetch>
void steps(const RowGroup& x, const std::byte* w, std::int64_t line_step, std::int64_t count,
           const std::byte* touched = nullptr, const std::byte* fetched = nullptr) {
  const std::byte* rows = x.x;
  for (std::int64_t k = 0; k < count; ++k) {
    // The memory accesses of a step, in four parts that are spread over its tile instructions.
    const auto fetch = [&](int part) __attribute__((always_inline)) {
      if constexpr (kFetch != Fetch::kNothing) {
        for (std::int64_t i = part * 4 * line_step; i < (part + 1) * 4 * line_step; i += kLine)
          if constexpr (kFetch == Fetch::kTouch)
            asm volatile("prefetcht0 (%0)\n\tvmovdqu64 (%1), %%zmm31"
                         :
                         : "r"(fetched + i), "r"(touched + i)
                         : "xmm31");
          else
            _mm_prefetch(reinterpret_cast<const char*>(w + kAhead + i), _MM_HINT_T1),
                _mm_prefetch(reinterpret_cast<const char*>(w + kNear + i), _MM_HINT_T0);
      }
    };
    amx_load<4>(rows, x.stride);
    fetch(0);
    if constexpr (kRowTiles == 2) {
      // 2 x NT: each loaded B tile is multiplied with both A tiles.
      amx_load<5>(rows + x.second_at, x.stride);
      fetch(1);
      amx_load<6>(w, line_step);
      fetch(2);
      if constexpr (NT > 1) amx_load<7>(w + kLine, line_step);
      fetch(3);
      amx_dot_bf16<0, 4, 6>();
      amx_dot_bf16<2, 5, 6>();
      if constexpr (NT > 1) amx_dot_bf16<1, 4, 7>();
      if constexpr (NT > 1) amx_dot_bf16<3, 5, 7>();
    } else {
      // 1 x NT: B tiles alternate between registers 6 and 7, so that a load need not wait for the
      // TDPBF16PS before it.
      amx_load<6>(w, line_step);
      amx_dot_bf16<0, 4, 6>();
      fetch(1);
      if constexpr (NT > 1) amx_load<7>(w + kLine, line_step);
      if constexpr (NT > 1) amx_dot_bf16<1, 4, 7>();
      fetch(2);
      if constexpr (NT > 2) amx_load<6>(w + 2 * kLine, line_step);
      if constexpr (NT > 2) amx_dot_bf16<2, 4, 6>();
      fetch(3);
      if constexpr (NT > 3) amx_load<7>(w + 3 * kLine, line_step);
      if constexpr (NT > 3) amx_dot_bf16<3, 4, 7>();
    }
    w += kStepLines * line_step;
    if constexpr (kFetch == Fetch::kTouch)
      touched += kStepLines * line_step, fetched += kStepLines * line_step;
    rows += kLine;
  }
}

}  // namespace
}  // namespace sluice::cpu
