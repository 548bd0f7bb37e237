#include "kernels/cpu/gemm/super_blocks.h"

#include <cstring>

#include "base/error.h"
#include "kernels/types/super_formats.h"

namespace sluice::cpu {
namespace {

std::uint16_t half_at(const std::uint8_t* at) {
  return static_cast<std::uint16_t>(at[0] | at[1] << 8);
}

// The 6-bit scales and minima of 8 groups: the first four of each are the low six bits of a byte,
// the others a nibble and the two upper bits of the first four.
void read_scales(const std::uint8_t* s, BlockNumbers& out) {
  for (int j = 0; j < 4; ++j) {
    out.scale[j] = s[j] & 63;
    out.minimum[j] = s[j + 4] & 63;
    out.scale[j + 4] = static_cast<std::uint8_t>((s[j + 8] & 15) | s[j] >> 6 << 4);
    out.minimum[j + 4] = static_cast<std::uint8_t>(s[j + 8] >> 4 | s[j + 4] >> 6 << 4);
  }
}

// Two bits of each weight, in two halves of 128 with four shifts of 32.
void read_pairs(const std::uint8_t* q, BlockNumbers& out) {
  for (int i = 0; i < 256; ++i) out.u[i] = q[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

void read_nibbles(const std::uint8_t* q, BlockNumbers& out) {
  for (int i = 0; i < 256; ++i) out.u[i] = q[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
}

// The low nibbles of 16 bytes are columns 0 to 15.
void read_group(const std::uint8_t* q, std::uint8_t* u) {
  for (int i = 0; i < 16; ++i) {
    u[i] = q[i] & 15;
    u[16 + i] = q[i] >> 4;
  }
}

}  // namespace

// Source of the places of fields: ggml, `block_q*` of ggml-common.h.
void read_block(SuperKind kind, const std::uint8_t* b, BlockNumbers& out) {
  switch (kind) {
    case SuperKind::kQ2K:
      for (int j = 0; j < 16; ++j) {
        out.scale[j] = b[j] & 15;
        out.minimum[j] = b[j] >> 4;
      }
      read_pairs(b + 16, out);
      out.d = half_at(b + 80);
      out.d_min = half_at(b + 82);
      return;
    case SuperKind::kQ3K: {
      const std::uint8_t *high = b, *s = b + 96;
      read_pairs(b + 32, out);
      for (int i = 0; i < 256; ++i)
        out.u[i] |= static_cast<std::uint8_t>((high[i % 32] >> i / 32 & 1) << 2);
      for (int j = 0; j < 16; ++j) {
        const int low = j < 8 ? s[j] & 15 : s[j - 8] >> 4;
        out.scale[j] =
            static_cast<std::uint8_t>((low | (s[8 + j % 4] >> (2 * (j / 4)) & 3) << 4) - 32);
      }
      out.d = half_at(b + 108);
      return;
    }
    case SuperKind::kQ4K:
    case SuperKind::kQ5K: {
      const bool fifth = kind == SuperKind::kQ5K;
      out.d = half_at(b);
      out.d_min = half_at(b + 2);
      read_scales(b + 4, out);
      read_nibbles(b + (fifth ? 48 : 16), out);
      if (fifth)
        for (int i = 0; i < 256; ++i)
          out.u[i] |= static_cast<std::uint8_t>((b[16 + i % 32] >> i / 32 & 1) << 4);
      return;
    }
    case SuperKind::kQ6K:
      for (int i = 0; i < 256; ++i) {
        const int half = i / 128, quarter = i % 128 / 32;
        const int low = b[half * 64 + quarter % 2 * 32 + i % 32] >> (quarter / 2 * 4) & 15;
        const int high = b[128 + half * 32 + i % 32] >> (quarter * 2) & 3;
        out.u[i] = static_cast<std::uint8_t>(low | high << 4);
      }
      std::memcpy(out.scale, b + 192, 16);
      out.d = half_at(b + 208);
      return;
    case SuperKind::kIQ4XS: {
      const std::uint16_t high = half_at(b + 2);
      out.d = half_at(b);
      for (int g = 0; g < 8; ++g) {
        const int low = b[4 + g / 2] >> (g % 2 * 4) & 15;
        out.scale[g] = static_cast<std::uint8_t>((low | (high >> 2 * g & 3) << 4) - 32);
        read_group(b + 8 + g * 16, out.u + g * 32);
      }
      return;
    }
    case SuperKind::kQ50:
    case SuperKind::kQ51: {
      out.d = half_at(b);
      b += 2;
      if (kind == SuperKind::kQ51) {
        out.d_min = half_at(b);
        b += 2;
      }
      read_group(b + 4, out.u);
      for (int i = 0; i < 32; ++i)
        out.u[i] |= static_cast<std::uint8_t>((b[i / 8] >> i % 8 & 1) << 4);
      return;
    }
    case SuperKind::kIQ4NL:
      out.d = half_at(b);
      return read_group(b + 2, out.u);
    case SuperKind::kMxFp4:
      out.d = b[0];
      return read_group(b + 1, out.u);
  }
}

SuperKind super_kind_of(ops::Format format) {
  check(ops::is_super(format), "format {} has no blocks", static_cast<int>(format));
  if (format == ops::Format::kMxFp4) return SuperKind::kMxFp4;
  return static_cast<SuperKind>(static_cast<int>(format) - ops::kFirstSuperFormat);
}

}  // namespace sluice::cpu
