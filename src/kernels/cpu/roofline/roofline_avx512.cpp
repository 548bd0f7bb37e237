#include "kernels/cpu/isa/isa_prelude.h"
#include "kernels/cpu/roofline/roofline_loops.h"

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx512vnni")
#include "kernels/cpu/roofline/roofline_vector_impl.h"

namespace sluice::cpu {
namespace {

struct Registers {
  using F = __m512;
  using I = __m512i;
};
using Wide = VectorLoop<Registers>;

double dpbf16(std::int64_t rounds) {
  const __m512i a = _mm512_set1_epi16(0x3F00), b = _mm512_set1_epi16(0x3A00);
  return Wide::chain(__m512{}, rounds, [&](__m512& sum) {
    asm volatile("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  });
}

double dpbusd(std::int64_t rounds) {
  const __m512i a = Wide::bytes(3), b = Wide::bytes(255);
  return Wide::chain(__m512i{}, rounds, [&](__m512i& sum) {
    asm volatile("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  });
}

}  // namespace
}  // namespace sluice::cpu
#pragma GCC pop_options

namespace sluice::cpu {

VectorLoops avx512_loops() {
  return Wide::loops();
}
PeakLoop dpbf16_loop() {
  return {dpbf16, Wide::kSums * 16 * 4};
}
PeakLoop dpbusd_loop() {
  return {dpbusd, Wide::kSums * 16 * 8};
}

}  // namespace sluice::cpu
