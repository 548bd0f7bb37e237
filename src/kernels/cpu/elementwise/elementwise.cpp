#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "kernels/cpu/attention/kv_e4m3.h"
#include "kernels/cpu/attention/kv_int8.h"
#include "kernels/cpu/attention/kv_panels.h"
#include "kernels/cpu/attention/kv_scaled.h"
#include "kernels/cpu/common/rows.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa/tiles.h"

namespace sluice::cpu {
namespace {

template <class From, class To>
void convert_row(const From* x, To* out, std::int64_t n) {
  if constexpr (std::is_same_v<From, To>)
    std::memcpy(out, x, static_cast<std::size_t>(n) * sizeof(To));
  else
    for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<To>(static_cast<float>(x[i]));
}

template <class From>
void convert_row_to(const From* x, const Tensor& out, std::int64_t index, std::int64_t n) {
  switch (out.dtype) {
    case DType::kBF16:
      return convert_row(x, row<BF16>(out, index), n);
    case DType::kF16:
      return convert_row(x, row<F16>(out, index), n);
    default:
      return convert_row(x, row<float>(out, index), n);
  }
}

void convert_one(const Tensor& x, std::int64_t from, const Tensor& out, std::int64_t to) {
  const std::int64_t n = x.dim(-1);
  switch (x.dtype) {
    case DType::kBF16:
      return convert_row_to(row<BF16>(x, from), out, to, n);
    case DType::kF16:
      return convert_row_to(row<F16>(x, from), out, to, n);
    default:
      return convert_row_to(row<float>(x, from), out, to, n);
  }
}

void check_range(const char* what, std::int64_t index, std::int64_t value, std::int64_t limit) {
  check(value >= 0 && value < limit, "{} {} is {}, outside [0, {})", what, index, value, limit);
}

}  // namespace

void add(Context& ctx, const Tensor& a, const Tensor& b, const Tensor& out) {
  const std::int64_t n = a.dim(1);
  parallel(ctx, num_rows(a), n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const float* x = row<float>(a, t);
      const float* y = row<float>(b, t);
      float* sum = row<float>(out, t);
      for (std::int64_t i = 0; i < n; ++i) sum[i] = x[i] + y[i];
    }
  });
}

void scale(Context& ctx, const Tensor& x, float factor, const Tensor& out) {
  const std::int64_t n = x.dim(1);
  parallel(ctx, num_rows(x), n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const float* from = row<float>(x, t);
      float* to = row<float>(out, t);
      for (std::int64_t i = 0; i < n; ++i) to[i] = from[i] * factor;
    }
  });
}

void clamp(Context& ctx, const Tensor& x, float limit, const Tensor& out) {
  const std::int64_t n = x.dim(1);
  parallel(ctx, num_rows(x), n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const float* from = row<float>(x, t);
      float* to = row<float>(out, t);
      for (std::int64_t i = 0; i < n; ++i) to[i] = std::clamp(from[i], -limit, limit);
    }
  });
}

void softcap(Context& ctx, const Tensor& x, float cap, const Tensor& out) {
  parallel(ctx, num_rows(x), 8 * x.dim(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      kernels(ctx).softcap(row<float>(x, t), cap, row<float>(out, t), x.dim(1));
  });
}

void scale_queries(Context& ctx, const Tensor& positions, float beta, std::int64_t length,
                   std::int64_t offset, const Tensor& q) {
  const auto* position = positions.ptr<std::int32_t>();
  const std::int64_t heads = q.dim(1), d = q.dim(2);
  parallel(ctx, q.dim(0) * heads, d, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto turns = static_cast<float>((position[i / heads] + offset) / length);
      const float factor = 1 + beta * std::log(1 + turns);
      float* values = at<float>(q, i / heads, i % heads);
      for (std::int64_t j = 0; j < d; ++j) values[j] *= factor;
    }
  });
}

void convert(Context& ctx, const Tensor& x, const Tensor& out) {
  parallel(ctx, num_rows(x), x.dim(-1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) convert_one(x, t, out, t);
  });
}

void gather_rows(Context& ctx, const Tensor& x, const Tensor& rows, const Tensor& out) {
  const auto* index = rows.ptr<std::int32_t>();
  for (std::int64_t r = 0; r < rows.dim(0); ++r) check_range("row", r, index[r], x.dim(0));
  const auto bytes = static_cast<std::size_t>(x.dim(1) * dtype_size(x.dtype));
  parallel(ctx, num_rows(out), x.dim(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      std::memcpy(row_bytes(out, r), row_bytes(x, index[r]), bytes);
  });
}

void embedding(Context& ctx, const Tensor& ids, const Tensor& table, const Tensor& out) {
  const auto* id = ids.ptr<std::int32_t>();
  for (std::int64_t t = 0; t < ids.dim(0); ++t) check_range("token id", t, id[t], table.dim(0));
  parallel(ctx, num_rows(out), table.dim(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) convert_one(table, id[t], out, t);
  });
}

void embedding_tiles(Context& ctx, const Tensor& ids, const Weight& table, const Tensor& out) {
  const auto* id = ids.ptr<std::int32_t>();
  for (std::int64_t t = 0; t < ids.dim(0); ++t) check_range("token id", t, id[t], table.rows);
  const auto read_row = tile_kernels(ctx.cpu_isa, table.format).read_row;
  parallel(ctx, num_rows(out), 8 * table.columns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) read_row(table, id[t], row<float>(out, t));
  });
}

void kv_write(Context& ctx, const Tensor& src, const Tensor& slots, const KvPlane& plane) {
  const auto* slot = slots.ptr<std::int64_t>();
  for (std::int64_t t = 0; t < slots.dim(0); ++t)
    check_range("slot", t, slot[t], plane.data.dim(0));
  if (plane.panels()) return kv_write_panels(ctx, src, slot, plane);
  if (plane.scaled()) return kv_write_scaled(ctx, src, slot, plane);
  if (plane.data.dtype == DType::kI8) return kv_write_int8(ctx, src, slots, plane.data);
  if (plane.is_fp8()) return kv_write_e4m3(ctx, src, slot, plane);
  parallel(ctx, num_rows(src), src.dim(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) convert_one(src, t, plane.data, slot[t]);
  });
}

void kv_gather(Context& ctx, const Tensor& plane, const Tensor& slots, const Tensor& out) {
  const auto* slot = slots.ptr<std::int32_t>();
  for (std::int64_t i = 0; i < slots.dim(0); ++i) check_range("slot", i, slot[i], plane.dim(0));
  if (plane.dtype == DType::kI8) return kv_gather_int8(ctx, plane, slots, out);
  parallel(ctx, num_rows(out), out.dim(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) convert_one(plane, slot[i], out, i);
  });
}

void kv_move(Context& ctx, std::span<const KvPlane> planes, const Tensor& from_slots,
             const Tensor& to_slots) {
  const auto* from = from_slots.ptr<std::int64_t>();
  const auto* to = to_slots.ptr<std::int64_t>();
  for (const KvPlane& layered : planes) {
    const Tensor& plane = layered.data;
    for (std::int64_t i = 0; i < from_slots.dim(0); ++i) {
      check_range("slot to move from", i, from[i], plane.dim(0));
      check_range("slot to move to", i, to[i], plane.dim(0));
    }
    if (layered.panels()) {
      kv_move_panels(ctx, layered, from, to, from_slots.dim(0));
      continue;
    }
    if (layered.scaled()) {
      kv_move_scaled(layered, from, to, from_slots.dim(0));
      continue;
    }
    const auto bytes = static_cast<std::size_t>(plane.dim(1) * dtype_size(plane.dtype));
    parallel(ctx, from_slots.dim(0), plane.dim(1), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        if (from[i] != to[i])
          std::memcpy(row_bytes(plane, to[i]), row_bytes(plane, from[i]), bytes);
    });
  }
}

}  // namespace sluice::cpu
