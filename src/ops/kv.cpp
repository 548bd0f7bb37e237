#include "ops/kv.h"

#include "ops/arguments.h"
#include "ops/dispatch.h"
#include "tensor/device.h"
#include "tensor/format.h"

namespace sluice::ops {
namespace {

// A plane whose rows hold n elements: how many heads share an int8 row shows in its scales.
// `is_written`: e4m3 is allowed.
void expect_plane(const Context& ctx, const char* what, const KvPlane& given, std::int64_t n,
                  bool is_written = false) {
  const Tensor& plane = given.data;
  if (given.scaled()) {
    expect_dense(ctx, what, plane, {-1, n + kKeyScaleBytes}, {DType::kU8});
    check(plane.dim(0) % kPageSize == 0, "{}: {} has no whole pages", what, plane);
    return;
  }
  if (is_written && given.is_fp8()) {
    expect(ctx, what, plane, {-1, n}, {DType::kF8E4M3});
    if (!given.scales.defined()) return;
    expect_dense(ctx, what, given.scales, {-1}, kFloat);
    check(n % given.scales.dim(0) == 0, "{}: rows of {} elements with scales of {} heads", what, n,
          given.scales.dim(0));
    return;
  }
  if (plane.dtype != DType::kI8) return expect(ctx, what, plane, {-1, n}, kPlane);
  expect(ctx, what, plane, {-1, -1}, {DType::kI8});
  const std::int64_t scales = plane.dim(1) - n, heads = scales / kKvScaleBytes;
  if (ctx.device.kind == DeviceKind::kCpu && heads >= 1 && scales % kKvScaleBytes == 0 &&
      n % heads == 0)
    return;
  fail(ErrorKind::kBug, "{}: {} on {} does not hold rows of {} elements, with a scale a head", what,
       plane.describe(), describe(ctx.device), n);
}

void expect_panels(const Context& ctx, const char* what, const KvPlane& plane) {
  if (!plane.panels()) return;
  expect_dense(ctx, what, plane.data, {-1, -1}, {DType::kBF16});
  const bool on_cpu = ctx.device.kind == DeviceKind::kCpu;
  check(on_cpu && plane.heads >= 1 && plane.data.dim(1) % plane.heads == 0 &&
            fits_panels(plane.data.dtype, plane.head_dim()) && plane.data.dim(0) % kPageSize == 0,
        "{}: {} {}cannot be panels of {} heads", what, plane.data, on_cpu ? "" : "on a GPU ",
        plane.heads);
}

}  // namespace

void kv_write(Context& ctx, const Tensor& src, const Tensor& slots, const KvPlane& plane) {
  expect(ctx, "kv_write src", src, {-1, -1}, kFloat);
  expect(ctx, "kv_write slots", slots, {src.dim(0)}, kSlot);
  expect_plane(ctx, "kv_write plane", plane, src.dim(1), true);
  expect_panels(ctx, "kv_write plane", plane);
  on_device<cpu::kv_write, cuda::kv_write>(ctx, src, slots, plane);
}

void kv_gather(Context& ctx, const Tensor& plane, const Tensor& slots, const Tensor& out) {
  expect(ctx, "kv_gather slots", slots, {-1}, kIndex);
  expect(ctx, "kv_gather out", out, {slots.dim(0), -1}, kFloat);
  expect_plane(ctx, "kv_gather plane", plane, out.dim(1));
  on_device<cpu::kv_gather, cuda::kv_gather>(ctx, plane, slots, out);
}

void kv_move(Context& ctx, std::span<const KvPlane> planes, const Tensor& from_slots,
             const Tensor& to_slots) {
  expect(ctx, "kv_move from_slots", from_slots, {-1}, kSlot);
  expect(ctx, "kv_move to_slots", to_slots, {from_slots.dim(0)}, kSlot);
  for (const KvPlane& plane : planes) {
    expect(ctx, "kv_move plane", plane.data, {-1, -1}, {plane.data.dtype});
    expect_panels(ctx, "kv_move plane", plane);
  }
  on_device<cpu::kv_move, cuda::kv_move>(ctx, planes, from_slots, to_slots);
}

}  // namespace sluice::ops
