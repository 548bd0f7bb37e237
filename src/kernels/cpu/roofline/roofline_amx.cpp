#include "kernels/cpu/isa/isa_prelude.h"
#include "kernels/cpu/roofline/roofline_loops.h"

#pragma GCC push_options
#pragma GCC target("avx512f,amx-tile,amx-bf16,amx-int8")
#include "kernels/cpu/isa/amx.h"

namespace sluice::cpu {
namespace {

// Full-size tiles and four independent sums: the unit can overlap that many.
template <class Round>
[[gnu::always_inline]] inline double in_tiles(std::int64_t rounds, const Round& round) {
  AmxShapes shapes;
  shapes.set({.first = kAmxRows, .second = kAmxRows, .a_bytes = 64});
  for (std::int64_t r = 0; r < rounds; ++r) round();
  return 0;
}

double tdpbf16_amx(std::int64_t rounds) {
  return in_tiles(rounds, [] {
    amx_dot_bf16<0, 4, 6>(), amx_dot_bf16<1, 4, 7>(), amx_dot_bf16<2, 5, 6>(),
        amx_dot_bf16<3, 5, 7>();
  });
}

double tdpbsud_amx(std::int64_t rounds) {
  return in_tiles(rounds, [] {
    amx_dot_bytes<0, 4, 6>(), amx_dot_bytes<1, 4, 7>(), amx_dot_bytes<2, 5, 6>(),
        amx_dot_bytes<3, 5, 7>();
  });
}

}  // namespace
}  // namespace sluice::cpu
#pragma GCC pop_options

namespace sluice::cpu {

PeakLoop amx_bf16_loop() {
  return {tdpbf16_amx, 4 * 16 * 16 * 32 * 2};
}
PeakLoop amx_int8_loop() {
  return {tdpbsud_amx, 4 * 16 * 16 * 64 * 2};
}

}  // namespace sluice::cpu
