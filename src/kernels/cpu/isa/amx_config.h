// The configuration of AMX's tile registers, as LDTILECFG reads it (Intel's manual). Its users have
// two rows of A (registers 4 and 5) by two columns of B (6 and 7), and their sums (0 to 3).
#pragma once

#include <cstdint>

namespace sluice::cpu {

inline constexpr int kAmxRows = 16, kAmxRegisters = 8;

// Register 4 has `first` rows, register 5 has `second` rows, each row `a_bytes` bytes wide. With
// second > 0, registers 0 and 1 hold the sums of the first rows, and 2 and 3 those of the second
// rows. With second == 0, all four hold sums of the first rows. Registers 6, 0 and 2 have `columns`
// columns of 32 bits, registers 7, 1 and 3 have `more_columns`, or `columns` where that is 0.
struct AmxShape {
  int first = 0, second = 0, a_bytes = 0;
  int columns = 16, more_columns = 16;

  bool operator==(const AmxShape&) const = default;
};

struct alignas(64) AmxConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  constexpr explicit AmxConfig(const AmxShape& shape) {
    const int below = shape.second > 0 ? shape.second : shape.first,
              right = shape.more_columns > 0 ? shape.more_columns : shape.columns;
    const auto put = [&](int tile, int count, int bytes) {
      rows[tile] = static_cast<std::uint8_t>(count);
      row_bytes[tile] = static_cast<std::uint16_t>(bytes);
    };
    for (const int i : {0, 1}) {
      const int bytes = (i == 0 ? shape.columns : right) * 4;
      put(i, shape.first, bytes);
      put(2 + i, below, bytes);
      put(4 + i, i == 0 ? shape.first : below, shape.a_bytes);
      // One row of B for four bytes of a row of A (four int8 or two bfloat16 columns).
      put(6 + i, shape.a_bytes / 4, bytes);
    }
  }
};
static_assert(sizeof(AmxConfig) == 64);

}  // namespace sluice::cpu
