// Blocks of GGUF files in the order of MMA fragments (kernels/types/block_units.h): what the
// kernels of a GPU compute. A CPU serves such blocks in tiles (super_layout.h), which are faster.
#include "kernels/cpu/fragments/block_fragments.h"

#include <vector>

#include "kernels/cpu/common/bias.h"
#include "kernels/cpu/common/rows.h"
#include "kernels/types/block_fragments.h"

namespace sluice::cpu {
namespace {

// The 16 rows of a tile, [16][whole units of columns].
std::vector<float> widened_tile(const ops::Weight& w, std::int64_t tile) {
  const ops::BlockUnit form = ops::block_unit(w.format);
  const std::int64_t units = ops::fragment_units(w.columns), width = units * ops::kFragmentColumns;
  std::vector<float> out(static_cast<std::size_t>(ops::kFragmentRows * width));
  const auto* unit = static_cast<const std::uint8_t*>(w.data.data) + tile * units * form.bytes();
  for (std::int64_t u = 0; u < units; ++u, unit += form.bytes())
    for (int r = 0; r < ops::kFragmentRows; ++r) {
      const ops::BlockRow row = ops::block_row_of(w.format, r, unit);
      for (int k = 0; k < ops::kFragmentColumns; ++k)
        out[static_cast<std::size_t>(r * width + u * ops::kFragmentColumns + k)] =
            static_cast<float>(ops::block_value(form, row, k));
    }
  return out;
}

template <class T>
float dot(const T* x, const float* w, std::int64_t columns) {
  float sum = 0;
  for (std::int64_t k = 0; k < columns; ++k) sum += static_cast<float>(x[k]) * w[k];
  return sum;
}

}  // namespace

void linear_block_fragments(Context& ctx, const Tensor& x, const ops::Weight& w, const Tensor& bias,
                            const Tensor& out) {
  const std::int64_t width = ops::fragment_units(w.columns) * ops::kFragmentColumns;
  parallel(ctx, ops::fragment_tiles(w.rows), ops::kFragmentRows * width * x.dim(0),
           [&](std::int64_t begin, std::int64_t end) {
             for (std::int64_t tile = begin; tile < end; ++tile) {
               const std::vector<float> rows = widened_tile(w, tile);
               const std::int64_t first = tile * ops::kFragmentRows,
                                  count = std::min(ops::kFragmentRows, w.rows - first);
               for (std::int64_t m = 0; m < x.dim(0); ++m)
                 for (std::int64_t r = 0; r < count; ++r) {
                   const float* const own = rows.data() + r * width;
                   row<float>(out, m)[first + r] =
                       bias_at(bias, first + r) + (x.dtype == DType::kBF16
                                                       ? dot(row<BF16>(x, m), own, w.columns)
                                                       : dot(row<float>(x, m), own, w.columns));
                 }
             }
           });
}

}  // namespace sluice::cpu
