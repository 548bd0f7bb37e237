// Products of bfloat16 rows with tiles of tiles.h, a step of 32 columns at a time. Included after
// amx.h.
#pragma once

namespace sluice::cpu {
namespace {

inline constexpr std::int64_t kLine = 64;
inline constexpr std::int64_t kStepColumns = 32;              // of one instruction
inline constexpr std::int64_t kStepLines = kStepColumns / 2;  // of a tile

// The rows of two registers, or of one.
struct RowGroup {
  const std::byte* x = nullptr;  // of the first row, where the sums begin
  std::int64_t stride = 0;       // bytes from a row to the next
  std::int64_t second_at = 0;    // from the first register's rows to the second's
  int first = 0, second = 0;     // how many
};

// What is done for memory while registers are multiplied.
enum class Fetch {
  kNothing,
  kStream,  // the lines themselves are fetched kNear and kAhead bytes before they are needed, as
            // one stream goes on
  kTouch,  // the lines that come next are read, which is as good as fetching them and done in their
           // order, and others fetched
};
constexpr std::int64_t kAhead = 3072, kNear = 1024;
// from lines that are read to those that are fetched, in one stream
constexpr std::int64_t kFurther = 3072;

// Sums of `count` steps in registers of 1 x NT or 2 x 2 tiles; w is the first tile's first line.
// `touched` and `fetched` are as many lines for kTouch, which must exist.
template <int kRowTiles, int NT, Fetch kFetch>
void steps(const RowGroup& x, const std::byte* w, std::int64_t line_step, std::int64_t count,
           const std::byte* touched = nullptr, const std::byte* fetched = nullptr) {
  const std::byte* rows = x.x;
  for (std::int64_t k = 0; k < count; ++k) {
    // Of the lines of this step, in four parts.
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
