// Element-wise sums, conversions and copies of rows; embedding look-up; writes and reads of the KV
// pool.
#include "kernels/cuda/attention/index_bytes.h"
#include "kernels/cuda/attention/kv_e4m3.h"
#include "kernels/cuda/common/map.cuh"
#include "kernels/cuda/cuda.h"

namespace sluice::cuda {
namespace {

// Functions of map_elements() and map_pairs().
struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Scaled {
  float factor;
  __device__ float operator()(float x) const { return x * factor; }
};
// A NaN stays a NaN.
struct Clamped {
  float limit;
  __device__ float operator()(float x) const { return x < -limit ? -limit : x > limit ? limit : x; }
};
// cap * tanh(x / cap).
struct Capped {
  float cap, inverse;
  __device__ float operator()(float x) const { return cap * tanhf(x * inverse); }
};

// Attention temperature of Llama 4: the scale grows with the logarithm of the position. Grid:
// tokens, heads.
__global__ void scale_heads(const std::int32_t* positions, float beta, std::int64_t length,
                            std::int64_t offset, float* q, std::int64_t token_stride,
                            std::int64_t head_stride, std::int64_t n) {
  begin_dependent();
  // Integer division: the scale is constant within `length` positions.
  const auto turns = static_cast<float>((positions[blockIdx.x] + offset) / length);
  const float factor = 1 + beta * logf(1 + turns);
  float* head = q + blockIdx.x * token_stride + blockIdx.y * head_stride;
  for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) head[i] *= factor;
}

constexpr int kTogether = 4;  // elements of one load
// Four elements for one aligned load or store.
template <class T>
struct alignas(kTogether * sizeof(T)) Four {
  T element[kTogether];
};

// Converts this CTA's share of a row. Several CTAs share a row (grid y).
template <class From, class To>
__device__ void convert_row(const From* from, To* to, std::int64_t n) {
  // Equal types are copied bit by bit, NaN payloads included.
  const auto one = [](From x) {
    if constexpr (std::is_same_v<From, To>)
      return x;
    else
      return narrow<To>(widen(x));
  };
  const std::int64_t each = std::int64_t{gridDim.y} * blockDim.x * kTogether;
  // Vector loads need both rows aligned.
  const bool aligned = reinterpret_cast<std::uintptr_t>(from) % sizeof(Four<From>) == 0 &&
                       reinterpret_cast<std::uintptr_t>(to) % sizeof(Four<To>) == 0;
  for (std::int64_t i = (std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kTogether; i < n;
       i += each) {
    if (aligned && i + kTogether <= n) {
      const Four<From> x = *reinterpret_cast<const Four<From>*>(from + i);
      Four<To> y;
#pragma unroll
      for (int j = 0; j < kTogether; ++j) y.element[j] = one(x.element[j]);
      *reinterpret_cast<Four<To>*>(to + i) = y;
    } else {
      // The end of a row, or a row that is not aligned.
      for (std::int64_t j = i; j < n && j < i + kTogether; ++j) to[j] = one(from[j]);
    }
  }
}

// Row to_index[i] of out := row from_index[i] of x, for i = blockIdx.x. A null index is the
// identity. An index outside its limit traps: it would read or write another sequence's rows.
template <class From, class To, class FromIndex, class ToIndex>
__global__ void convert_rows(RowsOf<const From> x, const FromIndex* from_index,
                             std::int64_t from_limit, RowsOf<To> out, const ToIndex* to_index,
                             std::int64_t to_limit, std::int64_t n) {
  begin_dependent();
  std::int64_t from = blockIdx.x, to = blockIdx.x;
  if (from_index != nullptr) expect_below(from = from_index[blockIdx.x], from_limit);
  if (to_index != nullptr) expect_below(to = to_index[blockIdx.x], to_limit);
  convert_row(x.row(from), out.row(to), n);
}

// From any of f32, bf16 and f16 to any of them.
template <class FromIndex, class ToIndex>
void convert_indexed(Context& ctx, const char* what, std::int64_t rows, const Tensor& x,
                     const FromIndex* from_index, const Tensor& out, const ToIndex* to_index) {
  const std::int64_t n = out.dim(-1);
  if (rows == 0 || n == 0) return;
  with_float_type(x.dtype, [&](auto from) {
    with_float_type(out.dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      // Few rows are shared by several CTAs each.
      const RowShape shape = shape_of(n, kTogether);
      launch_dependent(ctx, what, convert_rows<From, To, FromIndex, ToIndex>,
                       dim3(static_cast<unsigned>(rows), shape.blocks), shape.threads, 0,
                       rows_of<const From>(x), from_index, num_rows(x), rows_of<To>(out), to_index,
                       num_rows(out), n);
    });
  });
}

// Copies listed rows unchanged; Unit is an integer of the size of an element.
template <class Unit>
__global__ void copy_rows(const Unit* from, std::int64_t from_stride, const std::int32_t* rows,
                          std::int64_t limit, Unit* to, std::int64_t to_stride, std::int64_t n) {
  begin_dependent();
  const std::int64_t row = rows[blockIdx.x];
  expect_below(row, limit);
  for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x)
    to[blockIdx.x * to_stride + i] = from[row * from_stride + i];
}

// Planes whose rows have one size.
constexpr std::size_t kPlanesTogether = 8;
struct LikePlanes {
  void* data[kPlanesTogether];
};

// Moves rows of the pool. Grid: rows; parts of a row, because the state of a recurrent layer is a
// row of megabytes; planes.
template <class Unit>
__global__ void move_rows(const __grid_constant__ LikePlanes planes, std::int64_t stride,
                          std::int64_t limit, const std::int64_t* from, const std::int64_t* to,
                          std::int64_t n) {
  begin_dependent();
  auto* plane = static_cast<Unit*>(planes.data[blockIdx.z]);
  const std::int64_t source = from[blockIdx.x], target = to[blockIdx.x];
  expect_below(source, limit);
  expect_below(target, limit);
  // A row may stay in its place.
  if (source == target) return;
  const std::int64_t step = std::int64_t{gridDim.y} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x; i < n; i += step)
    plane[target * stride + i] = plane[source * stride + i];
}

// Calls body with an unsigned integer of the size of an element, so that copies need no type.
template <class Body>
void with_unit(DType dtype, Body&& body) {
  switch (dtype_size(dtype)) {
    case 1:
      return body(std::uint8_t{});
    case 2:
      return body(std::uint16_t{});
    case 8:
      return body(std::uint64_t{});
    default:
      return body(std::uint32_t{});
  }
}

}  // namespace

void add(Context& ctx, const Tensor& a, const Tensor& b, const Tensor& out) {
  map_pairs(ctx, "add", a, b, out, Sum{});
}

void scale(Context& ctx, const Tensor& x, float factor, const Tensor& out) {
  map_elements(ctx, "scale", x, out, Scaled{factor});
}

void clamp(Context& ctx, const Tensor& x, float limit, const Tensor& out) {
  map_elements(ctx, "clamp", x, out, Clamped{limit});
}

void softcap(Context& ctx, const Tensor& x, float cap, const Tensor& out) {
  map_elements(ctx, "softcap", x, out, Capped{cap, 1.0f / cap});
}

void scale_queries(Context& ctx, const Tensor& positions, float beta, std::int64_t length,
                   std::int64_t offset, const Tensor& q) {
  if (q.numel() == 0) return;
  const dim3 grid(static_cast<unsigned>(q.dim(0)), static_cast<unsigned>(q.dim(1)));
  launch_dependent(ctx, "scale_queries", scale_heads, grid, block_for(q.dim(2)), 0,
                   positions.ptr<std::int32_t>(), beta, length, offset, q.ptr<float>(), q.stride[0],
                   q.stride[1], q.dim(2));
}

void convert(Context& ctx, const Tensor& x, const Tensor& out) {
  // Rows in order, without indices.
  constexpr const std::int32_t* kEach = nullptr;
  convert_indexed(ctx, "convert", num_rows(out), x, kEach, out, kEach);
}

void embedding(Context& ctx, const Tensor& ids, const Tensor& table, const Tensor& out) {
  constexpr const std::int32_t* kEach = nullptr;
  convert_indexed(ctx, "embedding", ids.dim(0), table, ids.ptr<std::int32_t>(), out, kEach);
}

void kv_write(Context& ctx, const Tensor& src, const Tensor& slots, const KvPlane& plane) {
  // Eight-bit index keys have a scale beside each key.
  if (plane.data.dtype == DType::kU8) return write_scaled_keys(ctx, src, slots, plane.data);
  if (plane.is_fp8()) return write_e4m3_rows(ctx, src, slots, plane);
  constexpr const std::int32_t* kEach = nullptr;
  convert_indexed(ctx, "kv_write", src.dim(0), src, kEach, plane.data, slots.ptr<std::int64_t>());
}

void kv_gather(Context& ctx, const Tensor& plane, const Tensor& slots, const Tensor& out) {
  constexpr const std::int32_t* kEach = nullptr;
  convert_indexed(ctx, "kv_gather", slots.dim(0), plane, slots.ptr<std::int32_t>(), out, kEach);
}

void gather_rows(Context& ctx, const Tensor& x, const Tensor& rows, const Tensor& out) {
  if (out.numel() == 0) return;
  with_unit(x.dtype, [&](auto unit) {
    using Unit = decltype(unit);
    launch_dependent(ctx, "gather_rows", copy_rows<Unit>, static_cast<unsigned>(rows.dim(0)),
                     block_for(x.dim(1)), 0, static_cast<const Unit*>(x.data), x.stride[0],
                     rows.ptr<std::int32_t>(), x.dim(0), static_cast<Unit*>(out.data),
                     out.stride[0], x.dim(1));
  });
}

void kv_move(Context& ctx, std::span<const KvPlane> planes, const Tensor& from_slots,
             const Tensor& to_slots) {
  if (from_slots.dim(0) == 0) return;
  while (!planes.empty()) {
    const Tensor plane = planes.front().data;
    // Eight-bit index keys move together with their scales.
    if (plane.dtype == DType::kU8) {
      move_scaled_keys(ctx, plane, from_slots, to_slots);
      planes = planes.subspan(1);
      continue;
    }
    // Neighbours with equal rows go in one launch.
    LikePlanes together{};
    std::size_t count = 0;
    const auto is_like = [&](const Tensor& next) {
      return next.dtype == plane.dtype && next.dim(0) == plane.dim(0) &&
             next.dim(1) == plane.dim(1) && next.stride[0] == plane.stride[0];
    };
    while (count < std::min(kPlanesTogether, planes.size()) && is_like(planes[count].data)) {
      together.data[count] = planes[count].data.data;
      ++count;
    }
    planes = planes.subspan(count);
    // Planes of any type move as integers.
    with_unit(plane.dtype, [&](auto unit) {
      using Unit = decltype(unit);
      constexpr int kEach = 4;  // elements of a thread
      const int threads = block_for((plane.dim(1) + kEach - 1) / kEach);
      // Long rows are shared by several CTAs.
      const dim3 grid(static_cast<unsigned>(from_slots.dim(0)),
                      std::min(blocks_for(plane.dim(1), threads * kEach), 1024u),
                      static_cast<unsigned>(count));
      launch_dependent(ctx, "kv_move", move_rows<Unit>, grid, threads, 0, together, plane.stride[0],
                       plane.dim(0), from_slots.ptr<std::int64_t>(), to_slots.ptr<std::int64_t>(),
                       plane.dim(1));
    });
  }
}

}  // namespace sluice::cuda
