#include "ops/indexer.h"

#include <algorithm>
#include <bit>

#include "ops/arguments.h"
#include "ops/dispatch.h"
#include "tensor/format.h"

namespace sluice::ops {
namespace {

// On a GPU planes lie in rows; other forms are refused before.
template <auto kBody>
void index_rows(Context& ctx, const Tensor& q, const Tensor& weights, const KvPlane& index_k_plane,
                const PagedRows& rows, const Tensor& workspace, const Tensor& out_indices) {
  if constexpr (kHasCuda) kBody(ctx, q, weights, index_k_plane.data, rows, workspace, out_indices);
}

}  // namespace

void hadamard(Context& ctx, const Tensor& x) {
  if (x.rank == 3)
    expect(ctx, "hadamard x", x, {-1, -1, -1}, kFloat);
  else
    expect(ctx, "hadamard x", x, {-1, -1}, kFloat);
  const std::int64_t n = x.dim(-1);
  check(n >= 1 && n <= 4096 && std::has_single_bit(static_cast<std::uint64_t>(n)),
        "hadamard: {} elements are not a power of two up to 4096", n);
  on_device<cpu::hadamard, cuda::hadamard>(ctx, x);
}

IndexWorkspaceShape index_topk_workspace(const Context& ctx, std::int64_t tokens,
                                         std::int64_t max_len) {
  constexpr std::int64_t kFewRows = 16, kMaxRows = 32768, kScores = (256 << 20) / sizeof(float);
  max_len = std::max<std::int64_t>(max_len, 1);
  const std::int64_t most = ctx.device.kind == DeviceKind::kCpu
                                ? kFewRows
                                : std::clamp<std::int64_t>(kScores / max_len, kFewRows, kMaxRows);
  return {.rows = std::clamp<std::int64_t>(tokens, 1, most), .max_len = max_len};
}

void index_topk(Context& ctx, const Tensor& q, const Tensor& weights, const KvPlane& index_k_plane,
                const PagedRows& rows, const Tensor& workspace, const Tensor& out_indices) {
  expect(ctx, "index_topk q", q, {-1, -1, -1}, kFloat);
  expect(ctx, "index_topk weights", weights, {q.dim(0), q.dim(1)}, kFloat);
  if (index_k_plane.scaled())
    expect_dense(ctx, "index_topk index_k_plane", index_k_plane.data,
                 {-1, q.dim(2) + kKeyScaleBytes}, {DType::kU8});
  else
    expect(ctx, "index_topk index_k_plane", index_k_plane.data, {-1, q.dim(2)}, kPlane);
  check(!index_k_plane.panels() ||
            (index_k_plane.form == PlaneForm::kKeyPanels && index_k_plane.heads == 1),
        "index_topk: {} in panels of {} heads or of another form", index_k_plane.data,
        index_k_plane.heads);
  expect(ctx, "index_topk page_table", rows.page_table, {-1, -1}, kIndex);
  expect(ctx, "index_topk row_seq", rows.row_seq, {q.dim(0)}, kIndex);
  expect(ctx, "index_topk positions", rows.positions, {q.dim(0)}, kIndex);
  expect(ctx, "index_topk workspace", workspace, {-1, -1}, kFloat);
  check(q.dim(2) <= kMaxKeyDim, "index_topk: keys of {} elements, at most {}", q.dim(2),
        kMaxKeyDim);
  expect(ctx, "index_topk out_indices", out_indices, {q.dim(0), -1}, kIndex);
  check(workspace.dim(0) >= 1 && out_indices.dim(1) >= 1, "index_topk: workspace {}, indices {}",
        workspace, out_indices);
  on_device<cpu::index_topk, index_rows<cuda::index_topk>>(ctx, q, weights, index_k_plane, rows,
                                                           workspace, out_indices);
}

}  // namespace sluice::ops
