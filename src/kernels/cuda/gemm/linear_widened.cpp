// Linear layers of many rows with integer weights in fragments: parts of the weights become
// bfloat16 (widen_fragments.cu), and the GEMMs of bfloat16 multiply them. The codes are then
// unpacked once, and not for each tile of rows of x.
#include <algorithm>

#include "kernels/cuda/common/alignment.h"
#include "kernels/cuda/common/session.h"
#include "kernels/cuda/common/shared_memory.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/gemm/gemm_int.h"

namespace sluice::cuda {
namespace {

bool widens(const Context& ctx, const Tensor& x, const Weight& w) {
  if (ctx.cuda == nullptr || x.dtype != DType::kBF16 || !rows_aligned(x)) return false;
  return widens_int_weights(x.dim(0), ctx.deterministic, ctx.cuda->library() != nullptr,
                            ctx.cuda->info().sm) &&
         w.columns % 8 == 0 && w.columns * 2 <= max_shared_bytes(ctx.cuda->info().sm) - 1024;
}

// Rows of bfloat16 in the memory for them, from `at` on.
Tensor widen(Context& ctx, const Weight& w, std::int64_t at) {
  auto* const to = static_cast<std::byte*>(ctx.cuda->widened()) + at * w.columns * 2;
  widen_fragments(ctx, weights_of(w), w.rows, w.columns, to);
  return Tensor::dense(to, DType::kBF16, {w.rows, w.columns}, ctx.device);
}

// Calls multiply(first row, number, those rows of w as bfloat16).
template <class Multiply>
void for_each_part(Context& ctx, const Weight& w, Multiply&& multiply) {
  const std::int64_t at_once = widened_at_once(w.rows, w.columns, ctx.cuda->widened_bytes());
  for (std::int64_t n = 0; n < w.rows; n += at_once) {
    const std::int64_t count = std::min(at_once, w.rows - n);
    multiply(n, count, widen(ctx, w.slice(n, count), 0));
  }
}

Tensor part_of(const Tensor& bias, std::int64_t first, std::int64_t count) {
  return bias.defined() ? bias.rows(first, count) : Tensor{};
}

}  // namespace

bool linear_widened(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                    const Tensor& out) {
  if (!widens(ctx, x, w) || out.dtype != DType::kF32) return false;
  for_each_part(ctx, w, [&](std::int64_t n, std::int64_t count, const Tensor& part) {
    linear(ctx, x, part, part_of(bias, n, count), out.slice(1, n, count));
  });
  return true;
}

bool linear_add_widened(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                        const Tensor& branch, const Tensor& sum) {
  if (!widens(ctx, x, w)) return false;
  for_each_part(ctx, w, [&](std::int64_t n, std::int64_t count, const Tensor& part) {
    linear_add(ctx, x, part, part_of(bias, n, count), branch.slice(1, n, count),
               sum.slice(1, n, count));
  });
  return true;
}

bool gate_up_widened(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                     Activation activation, const Tensor& both, const Tensor& out) {
  const std::int64_t n = w.rows / 2;
  if (!widens(ctx, x, w) || bias.defined() || out.dtype != DType::kBF16 || !w.begins_at(n))
    return false;
  // The gates of a part of the output, and the ups behind them.
  const std::int64_t at_once = widened_at_once(n, w.columns, ctx.cuda->widened_bytes() / 2);
  for (std::int64_t first = 0; first < n; first += at_once) {
    const std::int64_t count = std::min(at_once, n - first);
    Tensor part = widen(ctx, w.slice(first, count), 0);
    widen(ctx, w.slice(n + first, count), count);
    part.shape[0] = 2 * count;
    norm_gate_up(ctx, x, {}, part, {}, activation, {}, both.slice(1, 0, 2 * count),
                 out.slice(1, first, count));
  }
  return true;
}

}  // namespace sluice::cuda
