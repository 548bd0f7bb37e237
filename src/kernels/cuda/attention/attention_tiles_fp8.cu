// Attention of tiles over pages of e4m3 (attention_tiles_kernel.cuh).
#include "kernels/cuda/attention/attention_tiles_kernel.cuh"

namespace sluice::cuda::general {

void launch_fp8(Context& ctx, const TileArgs& a, std::int64_t kv_heads, std::int64_t dim) {
  switch (dim) {
    case 64:
      return launch<64, 64, 64, E4m3Pages>(ctx, a, kv_heads);
    case 96:
      return launch<96, 96, 64, E4m3Pages>(ctx, a, kv_heads);
    case 128:
      return launch<128, 128, 64, E4m3Pages>(ctx, a, kv_heads);
    case 192:
      return launch<192, 128, 64, E4m3Pages>(ctx, a, kv_heads);
    default:
      return launch<256, 256, 32, E4m3Pages>(ctx, a, kv_heads);
  }
}

}  // namespace sluice::cuda::general
