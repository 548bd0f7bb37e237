#include "kernels/cpu/fragments/int8_rows.h"
#include "kernels/cpu/isa/isa_prelude.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,f16c")

#include "kernels/cpu/common/streams.h"

#include "kernels/cpu/fragments/int8_rows_impl.h"

namespace sluice::cpu {
namespace {

// Codes are unsigned, with 128 more: as vpdpbusd wants them.
struct VnniInt8 {
  using I = __m512i;
  using W = __m512i;
  static constexpr int kBytes = 64, kRows = 6, kFew = 3;
  static constexpr bool kIsRaised = true;
  static constexpr std::int64_t kNear = 6144;

  static I zero() { return _mm512_setzero_si512(); }
  // Of a lane: rows r and r + 8, then their next two columns, then the next step.
  static W codes(const std::uint8_t* line) {
    return _mm512_shuffle_epi8(load_next<W>(reinterpret_cast<const std::byte*>(line)),
                               _mm512_set4_epi32(0x0F0E0B0A, 0x0D0C0908, 0x07060302, 0x05040100));
  }
  static I dot(I sum, W w, const std::int8_t* x) {
    return _mm512_dpbusd_epi32(sum, w, _mm512_load_si512(x));
  }
  static void reduce(I sum, std::int32_t* out) {
    const __m256i half = _mm256_add_epi32(_mm512_maskz_extracti64x4_epi64(0xF, sum, 0),
                                          _mm512_maskz_extracti64x4_epi64(0xF, sum, 1));
    const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(half),
                                       _mm256_extracti128_si256(half, 1)),
                  two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out), two);
  }
};

}  // namespace
}  // namespace sluice::cpu

#pragma GCC pop_options

namespace sluice::cpu {

void vnni_int8_rows(const Int8Product& args, std::int64_t first, std::int64_t last) {
  multiply_int8_tiles<VnniInt8>(args, first, last);
}

}  // namespace sluice::cpu
