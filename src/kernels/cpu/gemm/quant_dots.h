// Dot products of bytes without VNNI, over lanes L (Avx2Lanes or Avx512Lanes, wrapped in
// ByteLanes). vpmaddubsw multiplies unsigned by signed bytes and adds neighbours in 16 bits, with
// saturation. Two terms of whole bytes may saturate; sixteen terms of nibbles never do.
// quant_tiles_impl.h documents the members of each type. Included inside a target pragma.
#pragma once

namespace sluice::cpu {
namespace {

// Lanes L plus the splitting of bytes and the byte multiply-add, in either vector width.
template <class L>
struct ByteLanes : L {
  using I = typename L::I;
  typedef std::int16_t Words [[gnu::vector_size(sizeof(I))]];
  typedef std::uint16_t UnsignedWords [[gnu::vector_size(sizeof(I))]];

  static I low_nibbles(I line) { return line & L::spread_int(0x0F0F0F0F); }
  static I high_nibbles(I line) { return low_nibbles((I)((UnsignedWords)line >> 4)); }
  // Bytes 0 and 2 (even) or 1 and 3 (odd) of every lane, as 16-bit integers.
  static I even_bytes(I line) { return line & L::spread_int(0x00FF00FF); }
  static I odd_bytes(I line) { return (I)((UnsignedWords)line >> 8); }
  static I even_signed(I x) { return odd_signed((I)((UnsignedWords)x << 8)); }
  static I odd_signed(I x) { return (I)((Words)x >> 8); }
  // One asm statement for both instructions. The compiler would schedule all multiplications before
  // the additions, and run out of registers for their results.
  static I add_maddubs(I sum, I w, I x) {
    I products;
    asm("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+v"(sum), "=&v"(products) : "v"(w), "v"(x));
    return sum;
  }
};

// Nibbles. A 16-bit sum holds eight dots: 16 terms of at most 15 * 127.
template <class L>
struct NibbleDots {
  using W = typename L::I;
  using X = typename L::I;
  using Part = typename L::I;
  static constexpr int kLinesAtOnce = 4;  // four lines, two dots each
  static constexpr bool kSettles = true;

  static W low_nibbles(typename L::I line) { return L::low_nibbles(line); }
  static W high_nibbles(typename L::I line) { return L::high_nibbles(line); }
  static W bytes(typename L::I line) { return line; }
  static X spread(const std::byte* p) { return L::spread_quad(p); }
  static Part begin(typename L::I) { return L::spread_int(0); }
  static Part dot(Part part, W w, X x) { return L::add_maddubs(part, w, x); }
  static typename L::I settle(typename L::I sum, Part part) {
    return L::add32(sum, L::madd(part, L::spread_int(0x00010001)));
  }
};

// Bytes as two nibbles, so that 16-bit sums cannot saturate. settle() gives the high ones weight
// 16.
template <class L>
struct ByteDots {
  struct W {
    typename L::I low, high;
  };
  using X = typename L::I;
  using Part = W;
  static constexpr int kLinesAtOnce = 8;
  static constexpr bool kSettles = true;

  static W bytes(typename L::I line) { return {L::low_nibbles(line), L::high_nibbles(line)}; }
  static W low_nibbles(typename L::I line) { return bytes(line); }
  static W high_nibbles(typename L::I line) { return bytes(line); }
  static X spread(const std::byte* p) { return L::spread_quad(p); }
  static Part begin(typename L::I) { return {L::spread_int(0), L::spread_int(0)}; }
  static Part dot(Part part, W w, X x) {
    return {L::add_maddubs(part.low, w.low, x), L::add_maddubs(part.high, w.high, x)};
  }
  static typename L::I settle(typename L::I sum, Part part) {
    return L::add32(sum, L::add32(L::madd(part.low, L::spread_int(0x00010001)),
                                  L::madd(part.high, L::spread_int(0x00100010))));
  }
};

// Bytes as two 16-bit words, whose pair sums are added in 32 bits. Half the registers of ByteDots
// and no settle(), but more work per element of x: used for a single row.
template <class L>
struct WordDots {
  struct W {
    typename L::I even, odd;
  };
  using X = W;
  using Part = typename L::I;
  static constexpr int kLinesAtOnce = 4;
  static constexpr bool kSettles = false;

  static W bytes(typename L::I line) { return {L::even_bytes(line), L::odd_bytes(line)}; }
  static W low_nibbles(typename L::I line) { return bytes(line); }
  static W high_nibbles(typename L::I line) { return bytes(line); }
  static X spread(const std::byte* p) {
    const typename L::I x = L::spread_quad(p);
    return {L::even_signed(x), L::odd_signed(x)};
  }
  static Part begin(typename L::I sum) { return sum; }
  static Part dot(Part part, W w, X x) {
    return L::add32(L::add32(part, L::madd(w.even, x.even)), L::madd(w.odd, x.odd));
  }
  static typename L::I settle(typename L::I, Part part) { return part; }
};

// The members that quant_tiles_impl.h and quant_row_impl.h require of D, except vectors_at_once().
template <class L>
struct MaddubsQuant : ByteLanes<L> {
  using Lanes = ByteLanes<L>;
  template <bool kNibbles>
  using Dots = std::conditional_t<kNibbles, NibbleDots<Lanes>, ByteDots<Lanes>>;
  template <bool kNibbles>
  using RowDots = std::conditional_t<kNibbles, NibbleDots<Lanes>, WordDots<Lanes>>;
  static constexpr auto kFetchHint = _MM_HINT_T0;
  static constexpr bool fetches_by_line(std::int64_t) { return true; }
  static constexpr std::int64_t groups_ahead(std::int64_t parts) { return parts == 1 ? 4 : 0; }
  static std::int64_t block_bytes() { return first_level_cache_bytes() / 4 * 3; }
  static constexpr int kTilesOfManyRows = 4;
  static constexpr int max_rows(int) { return 6; }
};

}  // namespace
}  // namespace sluice::cpu
