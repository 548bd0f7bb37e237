// Sizes read from a file, with every multiplication and addition checked (R6).
//
//   CheckedSize bytes = CheckedSize(rows) * cols * dtype_size;   // overflow: Error{kBadInput}
//   read(file, bytes.get());
#pragma once

#include <cstdint>

#include "base/error.h"

namespace sluice {

class CheckedSize {
 public:
  explicit constexpr CheckedSize(std::uint64_t value) : value_(value) {}

  std::uint64_t get() const { return value_; }

  friend CheckedSize operator+(CheckedSize a, CheckedSize b) {
    std::uint64_t sum = 0;
    require(!__builtin_add_overflow(a.value_, b.value_, &sum), "size overflow: {} + {}", a.value_,
            b.value_);
    return CheckedSize(sum);
  }
  friend CheckedSize operator*(CheckedSize a, CheckedSize b) {
    std::uint64_t product = 0;
    require(!__builtin_mul_overflow(a.value_, b.value_, &product), "size overflow: {} * {}",
            a.value_, b.value_);
    return CheckedSize(product);
  }
  friend CheckedSize operator+(CheckedSize a, std::uint64_t b) { return a + CheckedSize(b); }
  friend CheckedSize operator*(CheckedSize a, std::uint64_t b) { return a * CheckedSize(b); }
  friend bool operator==(CheckedSize, CheckedSize) = default;
  friend auto operator<=>(CheckedSize, CheckedSize) = default;

 private:
  std::uint64_t value_;
};

}  // namespace sluice
