// Random units of blocks of GGUF files (kernels/types/block_units.h).
#pragma once

#include <cmath>
#include <random>

#include "kernels/types/block_units.h"
#include "tensor/dtype.h"

namespace sluice::oracle {

// Byte j of a unit: any codes, scales and minima, and a d that keeps numbers below
// 2.1 2^-exponent. Their root mean square is below 0.8 2^-exponent.
inline double block_byte(ops::Format format, std::int64_t j, int exponent, std::mt19937& random) {
  const ops::BlockUnit form = ops::block_unit(format);
  if (j < form.d_at()) return static_cast<double>(random() % 256);
  // d in [1, 2) times a power of two. Scales times codes are up to 45, 128, 945, 1953, 4096 or
  // 16256, and minima up to 63; codes alone up to 15, 16, 31 or 127.
  const int power = format == ops::kQ2K                                      ? 6
                    : format == ops::kQ3K || format == ops::kIQ4NL           ? 7
                    : format == ops::kQ4K                                    ? 10
                    : format == ops::Format::kInt4Min || format == ops::kQ50 ? 5
                    : format == ops::kQ51                                    ? 6
                    : format == ops::kIQ4XS                                  ? 14
                                                                             : 12,
            power_of_min = form.num_d() == 1 ? 7 : 2;
  const bool is_min = form.has_minima && (j - form.d_at()) % 4 >= 2;
  const F16 d(std::ldexp(1 + static_cast<float>(random() % 256) / 256,
                         -exponent - (is_min ? power_of_min : power)));
  return static_cast<double>(j % 2 == 0 ? d.bits & 255 : d.bits >> 8);
}

}  // namespace sluice::oracle
