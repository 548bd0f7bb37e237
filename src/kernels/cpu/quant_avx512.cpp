#include "kernels/cpu/isa_prelude.h"
#include "kernels/cpu/quant_tiles.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,fma,f16c")

#include "kernels/cpu/quant_avx512_lanes.h"

#include "kernels/cpu/quant_dots.h"

namespace sluice::cpu {
namespace {

// AVX-512 without VNNI.
struct WideLanes : Avx512Lanes {
  static I low_nibbles(I line) { return _mm512_and_si512(line, _mm512_set1_epi8(15)); }
  static I high_nibbles(I line) { return low_nibbles(_mm512_srli_epi16(line, 4)); }
  // Bytes 0 and 2, or 1 and 3, of every lane as 16-bit integers.
  static I even_bytes(I line) { return _mm512_and_si512(line, _mm512_set1_epi32(0x00FF00FF)); }
  static I odd_bytes(I line) { return _mm512_srli_epi16(line, 8); }
  static I even_signed(I x) { return _mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8); }
  static I odd_signed(I x) { return _mm512_srai_epi16(x, 8); }
  // In one piece: the compiler would put all products before the sums, and have no registers for them.
  static I add_maddubs(I sum, I w, I x) {
    I products;
    asm("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+v"(sum), "=&v"(products) : "v"(w), "v"(x));
    return sum;
  }
  static I madd(I a, I b) { return _mm512_madd_epi16(a, b); }
};

struct Avx512Quant : WideLanes {
  template <bool kNibbles>
  using Dots = std::conditional_t<kNibbles, NibbleDots<WideLanes>, ByteDots<WideLanes>>;
  template <bool kNibbles>
  using RowDots = std::conditional_t<kNibbles, NibbleDots<WideLanes>, WordDots<WideLanes>>;
  static constexpr bool kSpreadsFetches = true;
  static constexpr int kTilesOfManyRows = 4;
  static constexpr int most_rows(int) { return 6; }
  static constexpr int vectors_at_once(bool nibbles) { return nibbles ? 4 : 2; }
};

}  // namespace
}  // namespace sluice::cpu

#include "kernels/cpu/streams.h"

#include "kernels/cpu/quant_tiles_impl.h"

#include "kernels/cpu/quant_row_impl.h"

#pragma GCC pop_options

namespace sluice::cpu {

QuantProducts avx512_quant_products() { return quant_products<Avx512Quant, FetchAhead<6144, 0>>(); }

}  // namespace sluice::cpu
