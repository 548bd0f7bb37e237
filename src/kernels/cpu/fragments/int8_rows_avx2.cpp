#include "kernels/cpu/fragments/int8_rows.h"
#include "kernels/cpu/isa/isa_prelude.h"

#include "kernels/cpu/common/streams.h"

#include "kernels/cpu/fragments/int8_rows_impl.h"

namespace sluice::cpu {
namespace {

// vpmaddubsw adds two products of an unsigned and a signed byte in 16 bits. Sizes of codes are at
// most 128 and numbers of x at most 127, so they fit; x takes the signs of the codes.
struct Avx2Int8 {
  using I = __m256i;
  struct W {
    __m256i sizes, codes;
  };
  static constexpr int kBytes = 32, kRows = 2, kFew = 1;
  static constexpr bool kIsRaised = false;
  static constexpr std::int64_t kNear = 6144;

  static I zero() { return _mm256_setzero_si256(); }
  static W codes(const std::uint8_t* line) {
    const __m256i placed = _mm256_shuffle_epi8(
        load_next<__m256i>(reinterpret_cast<const std::byte*>(line)),
        _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15,  //
                         0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    const __m256i codes = _mm256_xor_si256(placed, _mm256_set1_epi8(static_cast<char>(0x80)));
    return {_mm256_abs_epi8(codes), codes};
  }
  static I dot(I sum, const W& w, const std::int8_t* x) {
    const __m256i signed_x =
        _mm256_sign_epi8(_mm256_load_si256(reinterpret_cast<const __m256i*>(x)), w.codes);
    return _mm256_add_epi32(
        sum, _mm256_madd_epi16(_mm256_maddubs_epi16(w.sizes, signed_x), _mm256_set1_epi16(1)));
  }
  static void reduce(I sum, std::int32_t* out) {
    const __m128i four =
                      _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1)),
                  two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out), two);
  }
};

}  // namespace

void avx2_int8_rows(const Int8Product& args, std::int64_t first, std::int64_t last) {
  multiply_int8_tiles<Avx2Int8>(args, first, last);
}

}  // namespace sluice::cpu
