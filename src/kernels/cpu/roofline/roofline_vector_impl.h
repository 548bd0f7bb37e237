// The measuring loops of roofline_loops.h, for vectors of either width. Included inside a target
// pragma, after isa_prelude.h.
#pragma once

namespace sluice::cpu {
namespace {

// R: F is a vector of float32, I a vector of integers.
template <class R>
struct VectorLoop {
  using F = typename R::F;
  using I = typename R::I;
  static constexpr int kBytes = sizeof(I);
  // Independent accumulators: enough to hide the latency of an FMA, and as many as fit the
  // registers.
  static constexpr int kSums = kBytes == 64 ? 16 : 10;

  // A load with its XOR, preceded by a prefetch kAhead lines further on (0: none), and nothing
  // else: a core's instruction window is limited. Inline assembly fixes the order. Other orders of
  // the same instructions read a quarter slower on some processors.
  template <int kAhead>
  [[gnu::always_inline]] static inline void read_line(const std::byte* p, I* sum) {
    if constexpr (kAhead > 0) asm volatile("prefetcht0 %c1(%0)" : : "r"(p), "i"(kAhead * kLine));
    if constexpr (kBytes == 64)
      asm volatile("vpxord (%1), %0, %0" : "+v"(sum[0]) : "r"(p) : "memory");
    else
      asm volatile("vpxor (%2), %0, %0\n\tvpxor 32(%2), %1, %1"
                   : "+x"(sum[0]), "+x"(sum[1])
                   : "r"(p)
                   : "memory");
  }
  template <int kStreams, int kAhead>
  static std::uint32_t read(const std::byte* from, std::int64_t stride, std::int64_t lines) {
    constexpr int kLines = kStreams >= 4 ? 1 : 4;  // lines of one stream that are read in a row
    constexpr int kVectors = kLine / kBytes;
    I sum[4] = {};
    for (std::int64_t i = 0; i < lines / kLines * kLines; i += kLines)
#pragma GCC unroll 8
      for (int j = 0; j < kStreams * kLines; ++j)
        read_line<kAhead>(from + j / kLines * stride + (i + j % kLines) * kLine,
                          sum + j % (4 / kVectors) * kVectors);
    const I all = sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
    std::uint32_t bits = 0;
    for (int i = 0; i < kBytes / 8; ++i) bits ^= static_cast<std::uint32_t>(all[i] ^ all[i] >> 32);
    return bits;
  }

  // `rounds` times kSums independent steps; each step depends on its own result of the round
  // before. The final value has no meaning. It is returned so that the loop is not optimised away.
  // Loops over `sums` must be unrolled, or the vectors would live in memory.
  template <class V, class Step>
  [[gnu::always_inline]] static inline double chain(V zero, std::int64_t rounds, const Step& step) {
    V sums[kSums];
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i)
      sums[i] = zero + static_cast<std::remove_cvref_t<decltype(zero[0])>>(i);
    for (std::int64_t r = 0; r < rounds; ++r)
#pragma GCC unroll 16
      for (int i = 0; i < kSums; ++i) step(sums[i]);
    double all = 0;
#pragma GCC unroll 16
    for (int i = 0; i < kSums; ++i) all += static_cast<double>(sums[i][0]);
    return all;
  }
  static F floats(float x) { return F{} + x; }
  static I bytes(std::uint8_t x) { return I{} + static_cast<long long>(x * 0x0101010101010101ull); }

  static double fma(std::int64_t rounds) {
    const F a = floats(0.999f), b = floats(1e-3f);
    return chain(F{}, rounds, [&](F& sum) {
      asm volatile("vfmadd213ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    });
  }
  static double maddubs(std::int64_t rounds) {
    const I a = bytes(3), b = bytes(255);
    return chain(I{}, rounds, [&](I& sum) {
      I products;
      asm volatile("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0"
                   : "+v"(sum), "=&v"(products)
                   : "v"(a), "v"(b));
    });
  }

  template <std::size_t... kShapes>
  static VectorLoops loops(std::index_sequence<kShapes...>) {
    return {{read<kReadShapes[kShapes].streams, kReadShapes[kShapes].ahead>...},
            {fma, kSums * kBytes / 4 * 2},
            {maddubs, kSums * kBytes * 2}};
  }
  static VectorLoops loops() { return loops(std::make_index_sequence<ops::kReadPatterns>()); }
};

}  // namespace
}  // namespace sluice::cpu
