#include "ops/attention.h"

#include "kernels/cpu/attention/kv_latents.h"
#include "kernels/cuda/attention/kv_e4m3.h"
#include "kernels/cuda/pages/wide_pages.h"
#include "ops/arguments.h"
#include "ops/dispatch.h"
#include "ops/kv.h"
#include "ops/mla.h"

namespace sluice::ops {
namespace {

template <auto kWrite, auto kAttend>
void write_and_attend_rows(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                           const Tensor& slots, const KvPlane& k_plane, const KvPlane& v_plane,
                           std::int64_t kv_heads, const PagedRows& rows,
                           const AttentionParams& params, const Tensor& out) {
  if constexpr (kHasCuda) {
    kWrite(ctx, k, slots, k_plane);
    kWrite(ctx, v, slots, v_plane);
    kAttend(ctx, q, k_plane, v_plane, kv_heads, rows, params, out);
  }
}

void expect_paged(const Context& ctx, const char* what, const PagedRows& rows,
                  std::int64_t tokens) {
  expect(ctx, what, rows.page_table, {-1, -1}, kIndex);
  expect(ctx, what, rows.row_seq, {tokens}, kIndex);
  expect(ctx, what, rows.positions, {tokens}, kIndex);
}

void check_limits(const char* what, float scale, std::int64_t value_dim) {
  check(scale > 0, "{}: scale {} is not positive", what, scale);
  check(value_dim <= kMaxValueDim, "{}: values of {} elements, at most {}", what, value_dim,
        kMaxValueDim);
}

bool are_codes(const Tensor& plane) {
  return dtype_size(plane.dtype) == 1;
}

void expect_latents(const Context& ctx, const char* what, const Tensor& plane, std::int64_t latent,
                    std::int64_t rope) {
  if (!are_codes(plane)) return expect(ctx, what, plane, {-1, latent + rope}, kPlane);
  check(plane.dtype != DType::kI8 || ctx.device.kind == DeviceKind::kCpu,
        "{}: latents in int8 are the CPU's", what);
  expect_dense(ctx, what, plane, {-1, LatentRow{latent, rope}.bytes()},
               {DType::kI8, DType::kF8E4M3});
}

void expect_mla(const Context& ctx, const Tensor& q_latent, const Tensor& q_rope,
                const Tensor& plane, const PagedRows& rows, float scale, const Tensor& out) {
  expect(ctx, "mla_attention q_latent", q_latent, {-1, -1, -1}, kFloat);
  const std::int64_t tokens = q_latent.dim(0), heads = q_latent.dim(1), latent = q_latent.dim(2);
  expect(ctx, "mla_attention q_rope", q_rope, {tokens, heads, -1}, kFloat);
  expect_latents(ctx, "mla_attention latent_plane", plane, latent, q_rope.dim(2));
  expect(ctx, "mla_attention out", out, {tokens, heads, latent}, kFloat);
  expect_paged(ctx, "mla_attention rows", rows, tokens);
  check_limits("mla_attention", scale, latent);
  check(latent + q_rope.dim(2) <= kMaxKeyDim, "mla_attention: rows of {} elements, at most {}",
        latent + q_rope.dim(2), kMaxKeyDim);
}

void expect_attention(const Context& ctx, const Tensor& q, const KvPlane& k_plane,
                      const KvPlane& v_plane, std::int64_t kv_heads, const PagedRows& rows,
                      const AttentionParams& params, const Tensor& out) {
  expect(ctx, "paged_attention q", q, {-1, -1, -1}, kFloat);
  check(kv_heads >= 1 && q.dim(1) % kv_heads == 0,
        "paged_attention: {} query heads over {} kv heads", q.dim(1), kv_heads);
  expect(ctx, "paged_attention out", out, {q.dim(0), q.dim(1), -1}, kFloat);
  const DType dtype = k_plane.data.dtype;
  check(dtype != DType::kI8 || ctx.device.kind == DeviceKind::kCpu,
        "paged_attention: int8 planes are the CPU's");
  expect(ctx, "paged_attention k_plane", k_plane.data,
         {-1, kv_row_elements(dtype, kv_heads, q.dim(2))},
         {DType::kF32, DType::kBF16, DType::kI8, DType::kF8E4M3});
  expect(ctx, "paged_attention v_plane", v_plane.data,
         {k_plane.data.dim(0), kv_row_elements(dtype, kv_heads, out.dim(2))}, {dtype});
  for (const KvPlane* plane : {&k_plane, &v_plane})
    if (plane->scales.defined())
      expect_dense(ctx, "paged_attention scales", plane->scales, {kv_heads}, kFloat);
  check(k_plane.panels() == v_plane.panels() &&
            (!k_plane.panels() ||
             (k_plane.form == PlaneForm::kKeyPanels && v_plane.form == PlaneForm::kValuePanels &&
              k_plane.heads == kv_heads && v_plane.heads == kv_heads)),
        "paged_attention: panels of {} and {} heads for {} kv heads, or of another form",
        k_plane.heads, v_plane.heads, kv_heads);
  expect_paged(ctx, "paged_attention rows", rows, q.dim(0));
  check(params.window >= 0 && params.chunk >= 0 && (params.window == 0 || params.chunk == 0),
        "paged_attention: window {} and chunk {}", params.window, params.chunk);
  if (params.sinks.defined())
    expect(ctx, "paged_attention sinks", params.sinks, {q.dim(1)}, kFloat);
  if (params.slopes.defined())
    expect(ctx, "paged_attention slopes", params.slopes, {q.dim(1)}, kFloat);
  check(params.softcap >= 0, "paged_attention: a soft cap of {}", params.softcap);
  check(q.dim(2) <= kMaxKeyDim, "paged_attention: keys of {} elements, at most {}", q.dim(2),
        kMaxKeyDim);
  check_limits("paged_attention", params.scale, out.dim(2));
}

}  // namespace

void paged_attention(Context& ctx, const Tensor& q, const KvPlane& k_plane, const KvPlane& v_plane,
                     std::int64_t kv_heads, const PagedRows& rows, const AttentionParams& params,
                     const Tensor& out) {
  expect_attention(ctx, q, k_plane, v_plane, kv_heads, rows, params, out);
  on_device<cpu::paged_attention, cuda::paged_attention>(ctx, q, k_plane, v_plane, kv_heads, rows,
                                                         params, out);
}

std::int64_t prefill_bytes([[maybe_unused]] const Context& ctx, [[maybe_unused]] const Tensor& q,
                           [[maybe_unused]] const KvPlane& k_plane,
                           [[maybe_unused]] const KvPlane& v_plane,
                           [[maybe_unused]] std::int64_t kv_heads,
                           [[maybe_unused]] const PagedRows& rows,
                           [[maybe_unused]] const AttentionParams& params) {
  if constexpr (kHasCuda)
    if (params.plain()) return cuda::wide_pages_bytes(ctx, q, k_plane, v_plane, kv_heads, rows);
  return 0;
}

void expect_write_and_attend(const Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                             const Tensor& slots, const KvPlane& k_plane, const KvPlane& v_plane,
                             std::int64_t kv_heads, const PagedRows& rows,
                             const AttentionParams& params, const Tensor& out) {
  expect_attention(ctx, q, k_plane, v_plane, kv_heads, rows, params, out);
  expect(ctx, "write_and_attend k", k, {q.dim(0), kv_heads * q.dim(2)}, kFloat);
  expect(ctx, "write_and_attend v", v, {q.dim(0), kv_heads * out.dim(2)}, kFloat);
  expect(ctx, "write_and_attend slots", slots, {q.dim(0)}, kSlot);
}

void write_and_attend(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                      const Tensor& slots, const KvPlane& k_plane, const KvPlane& v_plane,
                      std::int64_t kv_heads, const PagedRows& rows, const AttentionParams& params,
                      const Tensor& out) {
  expect_write_and_attend(ctx, q, k, v, slots, k_plane, v_plane, kv_heads, rows, params, out);
  on_device<cpu::write_and_attend, write_and_attend_rows<cuda::kv_write, cuda::paged_attention>>(
      ctx, q, k, v, slots, k_plane, v_plane, kv_heads, rows, params, out);
}

void write_latents(Context& ctx, const Tensor& latent, const Tensor& rope, const Tensor& slots,
                   const Tensor& latent_plane) {
  if (!are_codes(latent_plane)) {
    const std::int64_t n = latent.dim(1);
    kv_write(ctx, latent, slots, latent_plane.slice(1, 0, n));
    kv_write(ctx, rope, slots, latent_plane.slice(1, n, rope.dim(1)));
    return;
  }
  expect(ctx, "write_latents latent", latent, {-1, -1}, kFloat);
  expect(ctx, "write_latents rope", rope, {latent.dim(0), -1}, kFloat);
  expect(ctx, "write_latents slots", slots, {latent.dim(0)}, kSlot);
  expect_latents(ctx, "write_latents plane", latent_plane, latent.dim(1), rope.dim(1));
  on_device<cpu::write_latent_codes, cuda::write_latent_codes>(ctx, latent, rope, slots,
                                                               latent_plane);
}

void gather_latents(Context& ctx, const Tensor& latent_plane, const Tensor& slots,
                    std::int64_t latent, const Tensor& out) {
  if (!are_codes(latent_plane)) return kv_gather(ctx, latent_plane, slots, out);
  expect(ctx, "gather_latents slots", slots, {-1}, kIndex);
  expect(ctx, "gather_latents out", out, {slots.dim(0), -1}, kFloat);
  expect_latents(ctx, "gather_latents plane", latent_plane, latent, out.dim(1) - latent);
  on_device<cpu::gather_latent_codes, cuda::gather_latent_codes>(ctx, latent_plane, slots, latent,
                                                                 out);
}

void mla_attention(Context& ctx, const Tensor& q_latent, const Tensor& q_rope,
                   const Tensor& latent_plane, const PagedRows& rows, float scale,
                   const Tensor& out) {
  expect_mla(ctx, q_latent, q_rope, latent_plane, rows, scale, out);
  on_device<cpu::mla_attention, cuda::mla_attention>(ctx, q_latent, q_rope, latent_plane, rows,
                                                     scale, out);
}

void mla_sparse_attention(Context& ctx, const Tensor& q_latent, const Tensor& q_rope,
                          const Tensor& latent_plane, const PagedRows& rows, const Tensor& indices,
                          float scale, const Tensor& out) {
  expect_mla(ctx, q_latent, q_rope, latent_plane, rows, scale, out);
  expect(ctx, "mla_sparse_attention indices", indices, {q_latent.dim(0), -1}, kIndex);
  on_device<cpu::mla_sparse_attention, cuda::mla_sparse_attention>(
      ctx, q_latent, q_rope, latent_plane, rows, indices, scale, out);
}

void mha_attention(Context& ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                   const Tensor& ks, const Tensor& ke, float scale, const Tensor& out,
                   const Tensor& lse) {
  expect(ctx, "mha_attention q", q, {-1, -1, -1}, kFloat);
  expect(ctx, "mha_attention k", k, {-1, q.dim(1), q.dim(2)}, kFloat);
  expect(ctx, "mha_attention v", v, {k.dim(0), q.dim(1), -1}, kFloat);
  expect(ctx, "mha_attention ks", ks, {q.dim(0)}, kIndex);
  expect(ctx, "mha_attention ke", ke, {q.dim(0)}, kIndex);
  expect(ctx, "mha_attention out", out, {q.dim(0), q.dim(1), v.dim(2)}, kFloat);
  expect(ctx, "mha_attention lse", lse, {q.dim(0), q.dim(1)}, kFloat);
  check_limits("mha_attention", scale, v.dim(2));
  on_device<cpu::mha_attention, cuda::mha_attention>(ctx, q, k, v, ks, ke, scale, out, lse);
}

void merge_state(Context& ctx, const Tensor& out_a, const Tensor& lse_a, const Tensor& out_b,
                 const Tensor& lse_b, const Tensor& out, const Tensor& lse) {
  expect(ctx, "merge_state out_a", out_a, {-1, -1, -1}, kFloat);
  const std::int64_t tokens = out_a.dim(0), heads = out_a.dim(1);
  expect(ctx, "merge_state out_b", out_b, {tokens, heads, out_a.dim(2)}, kFloat);
  expect(ctx, "merge_state out", out, {tokens, heads, out_a.dim(2)}, kFloat);
  for (const Tensor* t : {&lse_a, &lse_b, &lse})
    expect(ctx, "merge_state lse", *t, {tokens, heads}, kFloat);
  on_device<cpu::merge_state, cuda::merge_state>(ctx, out_a, lse_a, out_b, lse_b, out, lse);
}

}  // namespace sluice::ops
