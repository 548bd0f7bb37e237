// Element-wise functions over strided rows.
#pragma once

#include "kernels/cuda/common/launch.cuh"

namespace sluice::cuda {

// Threads and CTAs of a row, with `each` elements a thread at a time. A long row is shared by up to
// 16 CTAs, so that few rows still fill the GPU.
struct RowShape {
  int threads;
  unsigned blocks;
};
inline RowShape shape_of(std::int64_t n, int each) {
  const int threads = block_for((n + each - 1) / each);
  return {threads, std::min(blocks_for(n, threads * each), 16u)};
}

// Grid: rows, parts of a row. out may be x: a thread writes only elements that it read.
template <class Out, class Map>
__global__ void map_rows(RowsOf<const float> x, RowsOf<Out> out, std::int64_t n,
                         const __grid_constant__ Map map) {
  begin_dependent();
  const float* from = x.row(blockIdx.x);
  Out* to = out.row(blockIdx.x);
  const std::int64_t step = std::int64_t{gridDim.y} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x; i < n; i += step)
    to[i] = narrow<Out>(map(from[i]));
}

// out = map(x); x f32, out f32 or bf16, rank 1 to 3.
template <class Map>
void map_elements(Context& ctx, const char* what, const Tensor& x, const Tensor& out,
                  const Map& map) {
  if (out.numel() == 0) return;
  // One launch for all rows.
  const RowShape shape = shape_of(out.dim(-1), 1);
  with_plane_type(out.dtype, [&](auto to) {
    using Out = decltype(to);
    launch_dependent(ctx, what, map_rows<Out, Map>,
                     dim3(static_cast<unsigned>(num_rows(out)), shape.blocks), shape.threads, 0,
                     rows_of<const float>(x), rows_of<Out>(out), out.dim(-1), map);
  });
}

// The same for two inputs of one shape, into f32. out may be either input.
template <class Map>
__global__ void map_two_rows(RowsOf<const float> x, RowsOf<const float> y, RowsOf<float> out,
                             std::int64_t n, const __grid_constant__ Map map) {
  begin_dependent();
  const float *a = x.row(blockIdx.x), *b = y.row(blockIdx.x);
  float* to = out.row(blockIdx.x);
  const std::int64_t step = std::int64_t{gridDim.y} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.y} * blockDim.x + threadIdx.x; i < n; i += step)
    to[i] = map(a[i], b[i]);
}

// out = map(x, y).
template <class Map>
void map_pairs(Context& ctx, const char* what, const Tensor& x, const Tensor& y, const Tensor& out,
               const Map& map) {
  if (out.numel() == 0) return;
  const RowShape shape = shape_of(out.dim(-1), 1);
  launch_dependent(ctx, what, map_two_rows<Map>,
                   dim3(static_cast<unsigned>(num_rows(out)), shape.blocks), shape.threads, 0,
                   rows_of<const float>(x), rows_of<const float>(y), rows_of<float>(out),
                   out.dim(-1), map);
}

}  // namespace sluice::cuda
