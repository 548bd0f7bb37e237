// Flush-to-zero for the vector code around AMX.
#pragma once

#include <immintrin.h>

namespace sluice::cpu {
namespace {

// While it lives, the vector units treat denormal numbers as zero too, as AMX does (FTZ and DAZ).
class FlushDenormals {
 public:
  FlushDenormals() { _mm_setcsr(before_ | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(before_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  const unsigned before_ = _mm_getcsr();
};

}  // namespace
}  // namespace sluice::cpu
