#include "kernels/cpu/isa/tiles.h"

#include <immintrin.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "kernels/cpu/common/rows.h"
#include "kernels/cpu/gemm/quant_tiles.h"
#include "kernels/cpu/gemm/super_tiles.h"

namespace sluice::cpu {
namespace {

constexpr std::int64_t kRows = kTileWeightRows;
constexpr std::int64_t kPanelTiles = 4;

std::int64_t pairs_of(const Weight& w) {
  return (w.columns + 1) / 2;
}

std::int64_t matrix_bytes(const Weight& w) {
  return num_tiles(w.rows) * kRows * pairs_of(w) * 4;
}

std::int64_t input_bytes(const Weight& w) {
  return w.columns * 2;
}

void prepare(const Weight&, const float* x, std::int64_t first, std::int64_t last, std::byte* out) {
  auto* to = reinterpret_cast<BF16*>(out) + first;
  for (std::int64_t i = 0; i < last - first; ++i) to[i] = BF16(x[i]);
}

// Address of pair 0 of a row, and the distance in bytes from one of its pairs to the next.
struct RowPlace {
  std::byte* at;
  std::int64_t step;
};

RowPlace place_of(const Weight& w, std::int64_t index, std::int64_t row) {
  const std::int64_t tile = row / kRows, panel = tile / kPanelTiles;
  const std::int64_t width = std::min(kPanelTiles, num_tiles(w.rows) - panel * kPanelTiles);
  auto* matrix = static_cast<std::byte*>(w.data.data) + index * w.data.stride[0];
  return {matrix + panel * kPanelTiles * kRows * pairs_of(w) * 4 +
              (tile % kPanelTiles * kRows + row % kRows) * 4,
          width * kRows * 4};
}

void pack_row(const BF16* from, const Weight& w, const RowPlace& place) {
  for (std::int64_t i = 0; i < w.columns / 2; ++i)
    std::memcpy(place.at + i * place.step, from + 2 * i, 4);
  if (w.columns % 2 != 0)
    std::memcpy(place.at + w.columns / 2 * place.step, from + w.columns - 1, 2);
}

// out[i] = word i of each of eight rows. Vectors are assembled from 128-bit halves while loading,
// so that no word moves between halves later: on Zen 1 that would take as long as all the rest.
// Always inlined, because a call would spill the vectors to memory.
[[gnu::always_inline]] inline void transpose_words(const std::uint32_t* rows, std::int64_t stride,
                                                   __m256i (&out)[8]) {
  for (int i = 0; i < 8; i += 4) {
    const auto four = [&](int r) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows + r * stride + i));
    };
    const auto two_rows = [&](int r) {
      return _mm256_inserti128_si256(_mm256_castsi128_si256(four(r)), four(r + 4), 1);
    };
    const __m256i a = two_rows(0), b = two_rows(1), c = two_rows(2), d = two_rows(3);
    const __m256i ab_low = _mm256_unpacklo_epi32(a, b), ab_high = _mm256_unpackhi_epi32(a, b);
    const __m256i cd_low = _mm256_unpacklo_epi32(c, d), cd_high = _mm256_unpackhi_epi32(c, d);
    out[i] = _mm256_unpacklo_epi64(ab_low, cd_low);
    out[i + 1] = _mm256_unpackhi_epi64(ab_low, cd_low);
    out[i + 2] = _mm256_unpacklo_epi64(ab_high, cd_high);
    out[i + 3] = _mm256_unpackhi_epi64(ab_high, cd_high);
  }
}

// Packs pairs [i, i + 8) of eight rows, the first of which is at `rows`: half a line each for eight
// lines. Eight rows at once, because the lines of sixteen rows, 4 KiB from one another, exceed the
// ways of one L1 set. Ordinary stores, not streaming ones: the Linux kernel has just cleared this
// memory, so its lines are in the cache.
[[gnu::always_inline]] inline void pack_lines(const std::uint32_t* rows, std::int64_t pairs,
                                              std::int64_t i, const RowPlace& place) {
  __m256i lines[8];
  transpose_words(rows + i, pairs, lines);
  for (int k = 0; k < 8; ++k)
    _mm256_store_si256(reinterpret_cast<__m256i*>(place.at + (i + k) * place.step), lines[k]);
}

// `tiles` neighbouring tiles of a panel, the rows of the first of them at `from`. All tiles of a
// few columns come before the next columns: so a panel is written in the order of memory, and what
// is read of a row is read a line at a time.
void pack_tiles(const BF16* from, const Weight& w, const RowPlace& place, std::int64_t tiles) {
  const std::int64_t pairs = w.columns / 2;
  constexpr std::int64_t kTileBytes = kRows * 4;  // distance from one tile to the next
  // Prefetch distance for writing, in bytes: later lines of the panel are fetched while these are
  // written.
  constexpr std::int64_t kAhead = 4096;
  const auto row_at = [&](std::int64_t t, std::int64_t r) {
    return RowPlace{place.at + t * kTileBytes + r * 4, place.step};
  };
  std::int64_t done = 0;
  // Two blocks of 8 pairs per row: 64 bytes, one cache line of the source.
  if (w.columns % 2 == 0) {
    const auto* words = reinterpret_cast<const std::uint32_t*>(from);
    for (; done + 8 <= pairs; done += 16) {
      const std::byte* ahead = place.at + done * place.step + kAhead;
      for (std::int64_t t = 0; t < tiles; ++t)
        for (std::int64_t r = 0; r < kRows; r += 8)
          for (std::int64_t i = done; i + 8 <= std::min(pairs, done + 16); i += 8) {
            for (int line = 0; line < 4; ++line, ahead += 64) __builtin_prefetch(ahead, 1);
            pack_lines(words + (t * kRows + r) * pairs, pairs, i, row_at(t, r));
          }
    }
    done = pairs / 8 * 8;
  }
  // Remaining pairs, and all pairs if the columns are odd: a row is then not a whole number of
  // pairs.
  for (std::int64_t t = 0; t < tiles; ++t) {
    const BF16* rows = from + t * kRows * w.columns;
    const RowPlace to = row_at(t, 0);
    std::uint32_t line[kRows];
    for (std::int64_t i = done; i < pairs; ++i) {
      for (std::int64_t r = 0; r < kRows; ++r)
        std::memcpy(line + r, rows + r * w.columns + 2 * i, 4);
      std::memcpy(to.at + i * to.step, line, sizeof line);
    }
    if (w.columns % 2 == 0) continue;
    for (std::int64_t r = 0; r < kRows; ++r)
      std::memcpy(to.at + pairs * to.step + r * 4, rows + (r + 1) * w.columns - 1, 2);
  }
}

void pack(const Tensor& from, const Weight& w, std::int64_t index, std::int64_t first) {
  const auto* rows = from.ptr<BF16>();
  for (std::int64_t r = 0; r < from.dim(0);) {
    const RowPlace place = place_of(w, index, first + r);
    const std::int64_t tile = (first + r) / kRows;
    // Whole tiles go through the vector code, single rows at the edges through pack_row().
    const std::int64_t tiles =
        std::min((from.dim(0) - r) / kRows, kPanelTiles - tile % kPanelTiles);
    const bool whole = (first + r) % kRows == 0 && tiles > 0;
    if (whole)
      pack_tiles(rows + r * w.columns, w, place, tiles);
    else
      pack_row(rows + r * w.columns, w, place);
    r += whole ? tiles * kRows : 1;
  }
}

void read_row(const Weight& w, std::int64_t row, float* out) {
  const RowPlace place = place_of(w, 0, row);
  for (std::int64_t i = 0; i < w.columns; ++i) {
    BF16 value;
    std::memcpy(&value, place.at + i / 2 * place.step + i % 2 * 2, 2);
    out[i] = static_cast<float>(value);
  }
}

// Float32: columns take the place of pairs.

std::int64_t float_matrix_bytes(const Weight& w) {
  return num_tiles(w.rows) * kRows * w.columns * 4;
}

void prepare_floats(const Weight&, const float* x, std::int64_t first, std::int64_t last,
                    std::byte* out) {
  std::memcpy(out + first * 4, x, static_cast<std::size_t>(last - first) * 4);
}

RowPlace float_place(const Weight& w, std::int64_t index, std::int64_t row) {
  const std::int64_t tile = row / kRows, panel = tile / kPanelTiles;
  const std::int64_t width = std::min(kPanelTiles, num_tiles(w.rows) - panel * kPanelTiles);
  auto* matrix = static_cast<std::byte*>(w.data.data) + index * w.data.stride[0];
  return {matrix + panel * kPanelTiles * kRows * w.columns * 4 +
              (tile % kPanelTiles * kRows + row % kRows) * 4,
          width * kRows * 4};
}

// Columns of eight rows at a time become half a line each.
void pack_float_tile(const float* rows, const Weight& w, const RowPlace& place) {
  const auto* words = reinterpret_cast<const std::uint32_t*>(rows);
  std::int64_t done = 0;
  for (; done + 8 <= w.columns; done += 8)
    for (std::int64_t r = 0; r < kRows; r += 8)
      pack_lines(words + r * w.columns, w.columns, done, {place.at + r * 4, place.step});
  for (; done < w.columns; ++done)
    for (std::int64_t r = 0; r < kRows; ++r)
      std::memcpy(place.at + done * place.step + r * 4, rows + r * w.columns + done, 4);
}

void pack_floats(const Tensor& from, const Weight& w, std::int64_t index, std::int64_t first) {
  for (std::int64_t r = 0; r < from.dim(0);) {
    const RowPlace place = float_place(w, index, first + r);
    if (from.dtype == DType::kF32 && (first + r) % kRows == 0 && r + kRows <= from.dim(0)) {
      pack_float_tile(from.ptr<float>() + r * w.columns, w, place);
      r += kRows;
      continue;
    }
    for (std::int64_t i = 0; i < w.columns; ++i) {
      const float value = from.dtype == DType::kF32
                              ? from.ptr<float>()[r * w.columns + i]
                              : static_cast<float>(from.ptr<BF16>()[r * w.columns + i]);
      std::memcpy(place.at + i * place.step, &value, sizeof value);
    }
    ++r;
  }
}

void read_float_row(const Weight& w, std::int64_t row, float* out) {
  const RowPlace place = float_place(w, 0, row);
  for (std::int64_t i = 0; i < w.columns; ++i)
    std::memcpy(out + i, place.at + i * place.step, sizeof *out);
}

TileKernels float_tiles(DotTileProduct product) {
  return {.input = DType::kF32,
          .tiles_at_once = kPanelTiles,
          .pieces = 4,
          .input_bytes = [](const Weight& w) { return w.columns * 4; },
          .prepare = prepare_floats,
          .matrix_bytes = float_matrix_bytes,
          .block_row_bytes = [](const Weight&) { return std::int64_t{0}; },
          .pack = pack_floats,
          .read_row = read_float_row,
          .product = product,
          .paired_row = nullptr};
}

TileKernels bf16_tiles(DotTileProduct product, std::int64_t panels_at_once = 1,
                       decltype(TileKernels::paired_row) paired_row = nullptr) {
  return {.input = DType::kBF16,
          .tiles_at_once = panels_at_once * kPanelTiles,
          // With AMX the LM head is 4 % faster panel by panel. Elsewhere that makes int8 2 to 4 %
          // slower.
          .pieces = paired_row == nullptr ? 4 : 0,
          .input_bytes = input_bytes,
          .prepare = prepare,
          .matrix_bytes = matrix_bytes,
          .block_row_bytes = [](const Weight&) { return std::int64_t{0}; },
          .pack = pack,
          .read_row = read_row,
          .product = product,
          .paired_row = paired_row};
}

}  // namespace

TileProduct tile_product(const Tensor& x, const Weight& w, const Tensor& bias, const Tensor& out) {
  return {.x = static_cast<const std::byte*>(x.data),
          .x_stride = x.stride[0] * dtype_size(x.dtype),
          .w = static_cast<const std::byte*>(w.data.data),
          .rows = w.rows,
          .columns = w.columns,
          .group = w.group,
          .bias = weight_vector(bias),
          .out = out.ptr<float>(),
          .out_stride = out.stride[0]};
}

std::int64_t first_level_cache_bytes() {
  static const std::int64_t bytes = [] {
    const long said = sysconf(_SC_LEVEL1_DCACHE_SIZE);
    return said > 0 ? static_cast<std::int64_t>(said) : 32 << 10;
  }();
  return bytes;
}

const TileKernels& tile_kernels(CpuIsa isa, Format format) {
  static const std::array kBf16 = {
      bf16_tiles(avx2_bf16_product()), bf16_tiles(avx512_bf16_product()),
      bf16_tiles(avx512_bf16_product()), bf16_tiles(avx512bf16_bf16_product()),
      bf16_tiles(amx_bf16_product(), 2, amx_bf16_paired_row())};
  static const TileKernels kFloat[] = {float_tiles(avx2_float_product()),
                                       float_tiles(avx512_float_product())};
  if (format == Format::kF32) return kFloat[isa == CpuIsa::kAvx2 ? 0 : 1];
  if (is_super(format)) return super_tile_kernels(isa, format);
  if (format != Format::kBf16) return quant_tile_kernels(isa, format);
  return kBf16[static_cast<std::size_t>(isa)];
}

}  // namespace sluice::cpu
