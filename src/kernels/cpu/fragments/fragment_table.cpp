// Embeddings from a table in fragments (kernels/types/int_fragments.h): a row has the numbers of a
// matrix that is widened to bfloat16.
#include <array>
#include <cstring>

#include "base/error.h"
#include "kernels/cpu/common/rows.h"
#include "kernels/cpu/cpu.h"
#include "kernels/types/block_fragments.h"
#include "kernels/types/fp4.h"
#include "kernels/types/fp8.h"

namespace sluice::cpu {
namespace {

using ops::Format;
using ops::FragmentUnit;
using Numbers = std::array<BF16, ops::kFragmentColumns>;  // of a row of a unit

// The scale of a group; with factors the factor of the row.
float scale_of(const Weight& w, const FragmentUnit& form, const std::uint8_t* unit, int row,
               int group) {
  const auto read = [&]<class T>(T, std::int64_t at) {
    T value;
    std::memcpy(&value, unit + at, sizeof value);
    return static_cast<float>(value);
  };
  if (form.has_factors) return read(float{}, form.factor_at(row));
  const std::int64_t at = form.scale_at(group, row);
  if (form.scale_bytes == 1) return ops::mx_scale(unit[at]);
  if (form.scale_bytes == 4) return read(float{}, at);
  return w.scale == DType::kBF16 ? read(BF16{}, at) : read(F16{}, at);
}

// What the scale multiplies; exact.
float difference_of(Format format, const FragmentUnit& form, const std::uint8_t* unit, int row,
                    int group, int code) {
  static const std::array<float, 256> e4m3 = ops::e4m3_values();
  const auto at = static_cast<std::size_t>(code);
  if (format == Format::kFp8) return e4m3[at];
  if (format == Format::kMxFp4) return ops::kE2M1[at];
  if (format == Format::kNvFp4) return ops::kE2M1[at] * e4m3[unit[form.scale_at(group, row)]];
  return static_cast<float>(code -
                            (form.has_zeros ? int{unit[form.zero_at(group, row)]} : form.middle()));
}

void read_unit(const Weight& w, const std::uint8_t* unit, int row, Numbers& out) {
  constexpr int kColumns = static_cast<int>(ops::kFragmentColumns);
  if (const ops::BlockUnit blocks = ops::block_unit(w.format); blocks.exists()) {
    const ops::BlockRow own = ops::block_row_of(w.format, row, unit);
    for (int k = 0; k < kColumns; ++k)
      out[static_cast<std::size_t>(k)] = ops::block_value(blocks, own, k);
    return;
  }
  const FragmentUnit form = fragment_unit(w);
  for (int k = 0; k < kColumns; ++k) {
    const auto [byte, shift] = form.code_at(row, k);
    const int code = unit[byte] >> shift & ((1 << form.bits) - 1),
              group = k * form.groups / kColumns;
    out[static_cast<std::size_t>(k)] = BF16(difference_of(w.format, form, unit, row, group, code) *
                                            scale_of(w, form, unit, row, group));
  }
}

void read_row(const Weight& w, std::int64_t row, float* out) {
  const std::int64_t units = ops::fragment_units(w.columns), bytes = fragment_unit(w).bytes();
  const auto* unit =
      static_cast<const std::uint8_t*>(w.data.data) + row / ops::kFragmentRows * units * bytes;
  const std::int32_t* const order = w.order.defined() ? w.order.ptr<std::int32_t>() : nullptr;
  Numbers numbers;
  for (std::int64_t first = 0; first < w.columns; first += ops::kFragmentColumns, unit += bytes) {
    read_unit(w, unit, static_cast<int>(row % ops::kFragmentRows), numbers);
    const std::int64_t count = std::min(ops::kFragmentColumns, w.columns - first);
    for (std::int64_t k = 0; k < count; ++k)
      out[order == nullptr ? first + k : order[first + k]] =
          static_cast<float>(numbers[static_cast<std::size_t>(k)]);
  }
}

}  // namespace

void embedding_fragments(Context& ctx, const Tensor& ids, const Weight& table, const Tensor& out) {
  const auto* id = ids.ptr<std::int32_t>();
  for (std::int64_t t = 0; t < ids.dim(0); ++t)
    check(id[t] >= 0 && id[t] < table.rows, "token id {} is {}, outside [0, {})", t, id[t],
          table.rows);
  parallel(ctx, num_rows(out), 16 * table.columns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) read_row(table, id[t], row<float>(out, t));
  });
}

}  // namespace sluice::cpu
