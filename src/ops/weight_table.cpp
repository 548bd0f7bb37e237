#include "ops/weight_table.h"

#include <array>

#include "base/build.h"
#include "base/error.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa/tiles.h"
#include "kernels/cuda/cuda.h"
#include "kernels/types/fp4.h"
#include "kernels/types/int_fragments.h"
#include "kernels/types/super_formats.h"

namespace sluice::ops {
namespace {

std::string_view any(const Weight&) {
  return {};
}
std::string_view reads_bf16(const Weight& w) {
  return w.input == DType::kBF16 ? "" : "tiles of bfloat16 multiply rows of bfloat16";
}
std::string_view reads_f32(const Weight& w) {
  return w.input == DType::kF32 ? "" : "tiles of float32 multiply rows of float32";
}
std::string_view in_blocks(const Weight& w) {
  return w.group == 0 || w.group == kFp8Group ? "" : "FP8 has groups of 128 columns, or of a row";
}
std::string_view in_rows(const Weight& w) {
  if (w.input != DType::kBF16) return "int8 in rows multiplies rows of bfloat16 as int8";
  return w.group == 0 ? "" : "int8 in rows has a scale for each row";
}
std::string_view in_groups(const Weight& w) {
  return w.group == 32 || w.group == 128 ? "" : "integers have groups of 32 or 128 columns";
}
std::string_view in_blocks_of_file(const Weight& w) {
  return w.group == 32 ? "" : "blocks have groups of 32 columns";
}

std::string_view in_blocks_of_fragments(const Weight& w) {
  if (w.input != DType::kBF16) return "fragments multiply rows of bfloat16";
  return in_blocks_of_file(w);
}
std::string_view in_fragments(const Weight& w) {
  if (w.input != DType::kBF16) return "fragments multiply rows of bfloat16";
  if (w.format == Format::kFp8 && w.group != kFragmentColumns)
    return "FP8 in fragments has groups of 128 columns";
  if (w.format == Format::kMxFp4 && w.group != kMxGroup) return "MXFP4 has groups of 32 columns";
  if (w.format == Format::kNvFp4)
    return w.group == kNvGroup ? "" : "NVFP4 has groups of 16 columns";
  return w.group == 32 || w.group == 64 || w.group == kFragmentColumns
             ? ""
             : "fragments have groups of 32, 64 or 128 columns";
}

// Bodies that read numbers in rows, as entries of the table.
template <auto kBody>
void linear_rows(Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                 const Tensor& out) {
  kBody(ctx, x, w.data, bias, out);
}
template <auto kBody>
void embed_rows(Context& ctx, const Tensor& ids, const Weight& table, const Tensor& out) {
  kBody(ctx, ids, table.data, out);
}
template <auto kBody>
void experts_rows(Context& ctx, const Tensor& x, const Weight& w13, const Weight& w2,
                  const Tensor& weights, const Tensor& ids, const ExpertParams& params,
                  const MoeWorkspace& workspace, const Tensor& out) {
  kBody(ctx, x, w13.data, w2.data, weights, ids, params, workspace, out);
}

constexpr WeightOps cpu_rows(Format format, std::string_view name) {
  return {.device = DeviceKind::kCpu,
          .format = format,
          .layout = Layout::kRows,
          .name = name,
          .accepts = any,
          .linear = linear_rows<cpu::linear>,
          .embed = embed_rows<cpu::embedding>,
          .experts = experts_rows<cpu::fused_experts>};
}

const cpu::TileKernels& tiles(const Context& ctx, const Weight& w) {
  return cpu::tile_kernels(ctx.cpu_isa, w.format);
}

constexpr WeightOps cpu_tiles(Format format, std::string_view name,
                              std::string_view (*accepts)(const Weight&)) {
  return {.device = DeviceKind::kCpu,
          .format = format,
          .layout = Layout::kTiles,
          .name = name,
          .accepts = accepts,
          .packed_bytes = [](const Context& ctx,
                             const Weight& w) { return tiles(ctx, w).matrix_bytes(w); },
          .block_row_bytes = [](const Context& ctx,
                                const Weight& w) { return tiles(ctx, w).block_row_bytes(w); },
          .pack = [](const Context& ctx, const Tensor& from, const Weight& w, std::int64_t index,
                     std::int64_t first) { tiles(ctx, w).pack(from, w, index, first); },
          .tile_rows = cpu::kTileWeightRows,
          .panel_rows = cpu::kPanelWeightRows,
          .prepared_shape =
              [](const Context& ctx, const Weight& w, std::int64_t) {
                const DType type = tiles(ctx, w).input;
                return PreparedRows{type, tiles(ctx, w).input_bytes(w) / dtype_size(type)};
              },
          .prepare = cpu::prepare_rows,
          .linear = cpu::linear_tiles,
          .embed = cpu::embedding_tiles,
          .experts = cpu::fused_experts_tiles,
          .gate_up = cpu::gated_linear};
}

constexpr WeightOps cpu_fp8() {
  return {.device = DeviceKind::kCpu,
          .format = Format::kFp8,
          .layout = Layout::kRows,
          .name = "FP8",
          .accepts = in_blocks,
          .linear = cpu::linear_fp8};
}

constexpr WeightOps cpu_int8_rows() {
  return {.device = DeviceKind::kCpu,
          .format = Format::kInt8,
          .layout = Layout::kRows,
          .name = "int8 in rows",
          .accepts = in_rows,
          .linear = cpu::linear_int8};
}

constexpr WeightOps fragments(DeviceKind device, Format format, std::string_view name) {
  return {.device = device,
          .format = format,
          .layout = Layout::kFragments,
          .name = name,
          .accepts = in_fragments,
          .packed_bytes = [](const Context&, const Weight& w) { return fragment_bytes(w); },
          .tile_rows = kFragmentRows,
          .panel_rows = kFragmentRows,
          .linear = cpu::linear_fragments,
          .embed = device == DeviceKind::kCpu ? cpu::embedding_fragments : nullptr,
          .experts = cpu::fused_experts_fragments};
}
constexpr WeightOps cpu_fragments(Format format, std::string_view name) {
  return fragments(DeviceKind::kCpu, format, name);
}
constexpr WeightOps cpu_block_fragments(Format format, std::string_view name) {
  WeightOps row = cpu_fragments(format, name);
  row.accepts = in_blocks_of_fragments;
  return row;
}

// Tiles come before rows: of two layouts that hold a weight, the first is taken.
constexpr std::array kCpuRows = {cpu_tiles(Format::kF32, "float32 tiles", reads_f32),
                                 cpu_rows(Format::kF32, "float32"),
                                 cpu_tiles(Format::kBf16, "bfloat16 tiles", reads_bf16),
                                 cpu_rows(Format::kBf16, "bfloat16"),
                                 cpu_rows(Format::kF16, "float16"),
                                 cpu_fp8(),
                                 cpu_int8_rows(),
                                 cpu_tiles(Format::kInt8, "int8 tiles", in_groups),
                                 cpu_tiles(Format::kInt4, "int4 tiles", in_groups),
                                 cpu_tiles(Format::kInt4Min, "int4 tiles with minima", in_groups),
                                 cpu_tiles(kQ2K, "Q2_K tiles", in_blocks_of_file),
                                 cpu_tiles(kQ3K, "Q3_K tiles", in_blocks_of_file),
                                 cpu_tiles(kQ4K, "Q4_K tiles", in_blocks_of_file),
                                 cpu_tiles(kQ5K, "Q5_K tiles", in_blocks_of_file),
                                 cpu_tiles(kQ6K, "Q6_K tiles", in_blocks_of_file),
                                 cpu_tiles(kIQ4XS, "IQ4_XS tiles", in_blocks_of_file),
                                 cpu_tiles(kQ50, "Q5_0 tiles", in_blocks_of_file),
                                 cpu_tiles(kQ51, "Q5_1 tiles", in_blocks_of_file),
                                 cpu_tiles(kIQ4NL, "IQ4_NL tiles", in_blocks_of_file),
                                 cpu_tiles(Format::kMxFp4, "MXFP4 tiles", in_blocks_of_file),
                                 cpu_fragments(Format::kFp8, "FP8 fragments"),
                                 cpu_fragments(Format::kInt8, "int8 fragments"),
                                 cpu_fragments(Format::kInt4, "int4 fragments"),
                                 cpu_fragments(Format::kInt4Zero, "int4 fragments with zeros"),
                                 cpu_fragments(Format::kMxFp4, "MXFP4 fragments"),
                                 cpu_fragments(Format::kNvFp4, "NVFP4 fragments"),
                                 cpu_block_fragments(kQ2K, "Q2_K fragments"),
                                 cpu_block_fragments(kQ3K, "Q3_K fragments"),
                                 cpu_block_fragments(kQ4K, "Q4_K fragments"),
                                 cpu_block_fragments(kQ5K, "Q5_K fragments"),
                                 cpu_block_fragments(kQ6K, "Q6_K fragments"),
                                 cpu_block_fragments(Format::kInt4Min, "Q4_1 fragments"),
                                 cpu_block_fragments(kQ50, "Q5_0 fragments"),
                                 cpu_block_fragments(kQ51, "Q5_1 fragments"),
                                 cpu_block_fragments(kIQ4XS, "IQ4_XS fragments"),
                                 cpu_block_fragments(kIQ4NL, "IQ4_NL fragments")};

// Templates, so that a build without CUDA makes none of these.
template <bool kBuilt>
constexpr WeightOps cuda_rows(Format format, std::string_view name) {
  return {.device = DeviceKind::kCuda,
          .format = format,
          .layout = Layout::kRows,
          .name = name,
          .accepts = any,
          .linear = linear_rows<cuda::linear>,
          .embed = embed_rows<cuda::embedding>,
          .experts = experts_rows<cuda::fused_experts>};
}

template <bool kBuilt>
constexpr WeightOps cuda_bf16_rows() {
  WeightOps row = cuda_rows<kBuilt>(Format::kBf16, "bfloat16");
  row.norm_linear = [](Context& ctx, const Tensor& x, const RowNorm& norm, const Weight& w,
                       const Tensor& bias, const Tensor& normed, const Tensor& out) {
    cuda::norm_linear(ctx, x, norm, w.data, bias, normed, out);
  };
  row.linear_add = [](Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                      const Tensor& branch,
                      const Tensor& sum) { cuda::linear_add(ctx, x, w.data, bias, branch, sum); };
  row.norm_gate_up = [](Context& ctx, const Tensor& x, const RowNorm& norm, const Weight& w,
                        const Tensor& bias, Activation activation, const Tensor& normed,
                        const Tensor& both, const Weight&, const Tensor& out) {
    cuda::norm_gate_up(ctx, x, norm, w.data, bias, activation, normed, both, out);
  };
  row.gate_up = [](Context& ctx, const Tensor& x, const Weight& w, const Tensor& bias,
                   Activation activation, const Tensor& both, const Weight&, const Tensor& out) {
    cuda::norm_gate_up(ctx, x, {}, w.data, bias, activation, {}, both, out);
  };
  row.experts_add = [](Context& ctx, const Tensor& x, const Weight& w13, const Weight& w2,
                       const Tensor& weights, const Tensor& ids, const ExpertParams& params,
                       const MoeWorkspace& workspace, const Tensor& branch, const Tensor& sum) {
    cuda::experts_add(ctx, x, w13.data, w2.data, weights, ids, params.activation, workspace, branch,
                      sum);
  };
  return row;
}

// Routers are float32.
template <bool kBuilt>
constexpr WeightOps cuda_f32_rows() {
  WeightOps row = cuda_rows<kBuilt>(Format::kF32, "float32");
  row.norm_route = [](Context& ctx, const Tensor& x, const RowNorm& norm, const Weight& router,
                      const Tensor& router_bias, const Tensor& correction_bias,
                      const RouterParams& params, const Tensor& normed, const Tensor& logits,
                      const Tensor& rounded, const Tensor& weights, const Tensor& ids) {
    cuda::norm_route(ctx, x, norm, router.data, router_bias, correction_bias, params, normed,
                     logits, rounded, weights, ids);
  };
  return row;
}

// FP8, or int8 with a scale for each row.
template <bool kBuilt>
constexpr WeightOps cuda_codes(Format format, std::string_view name,
                               std::string_view (*accepts)(const Weight&)) {
  WeightOps row{.device = DeviceKind::kCuda,
                .format = format,
                .layout = Layout::kRows,
                .name = name,
                .accepts = accepts,
                .linear = cuda::linear_fp8};
  row.prepared_shape = [](const Context& ctx, const Weight& w, std::int64_t rows) {
    if (cuda::reads_plain_rows(ctx, w, rows)) return PreparedRows{w.input, w.columns};
    // TMA reads 128 bytes of a row at a time: those of one cache line.
    constexpr std::int64_t kLine = 128;
    return PreparedRows{DType::kU8,
                        (fp8_row_bytes(w.columns, w.group) + kLine - 1) / kLine * kLine};
  };
  row.prepare = cuda::prepare_fp8;
  row.norm_linear = cuda::norm_linear_fp8;
  row.linear_add = cuda::linear_add_fp8;
  row.norm_gate_up = cuda::norm_gate_up_fp8;
  row.gate_up = cuda::gate_up_fp8;
  return row;
}

// Of experts alone: linear layers keep rows of e4m3.
template <bool kBuilt>
constexpr WeightOps cuda_expert_fragments(Format format, std::string_view name) {
  WeightOps row = fragments(DeviceKind::kCuda, format, name);
  row.linear = nullptr;
  row.experts = cuda::fused_experts_fragments;
  row.experts_add = cuda::experts_add_fragments;
  row.adds_every_expert = true;
  return row;
}

template <bool kBuilt>
constexpr WeightOps with_linear_fragments(WeightOps row) {
  row.linear = cuda::linear_fragments;
  row.embed = cuda::embedding_fragments;
  row.norm_linear = cuda::norm_linear_fragments;
  row.linear_add = cuda::linear_add_fragments;
  row.norm_gate_up = cuda::norm_gate_up_fragments;
  row.gate_up = cuda::gate_up_fragments;
  return row;
}
template <bool kBuilt>
constexpr WeightOps cuda_fragments(Format format, std::string_view name) {
  return with_linear_fragments<kBuilt>(cuda_expert_fragments<kBuilt>(format, name));
}
template <bool kBuilt>
constexpr WeightOps cuda_block_fragments(Format format, std::string_view name) {
  WeightOps row = cuda_fragments<kBuilt>(format, name);
  row.accepts = in_blocks_of_fragments;
  return row;
}

template <bool kBuilt>
std::span<const WeightOps> cuda_table() {
  if constexpr (kBuilt) {
    static constexpr std::array kRows = {
        cuda_f32_rows<kBuilt>(),
        cuda_bf16_rows<kBuilt>(),
        cuda_rows<kBuilt>(Format::kF16, "float16"),
        cuda_codes<kBuilt>(Format::kFp8, "FP8", in_blocks),
        cuda_codes<kBuilt>(Format::kInt8, "int8 in rows", in_rows),
        cuda_expert_fragments<kBuilt>(Format::kFp8, "FP8 fragments"),
        cuda_fragments<kBuilt>(Format::kInt8, "int8"),
        cuda_fragments<kBuilt>(Format::kInt4, "int4"),
        cuda_fragments<kBuilt>(Format::kInt4Zero, "int4 with zeros"),
        cuda_fragments<kBuilt>(Format::kMxFp4, "MXFP4"),
        cuda_fragments<kBuilt>(Format::kNvFp4, "NVFP4"),
        cuda_block_fragments<kBuilt>(kQ2K, "Q2_K"),
        cuda_block_fragments<kBuilt>(kQ3K, "Q3_K"),
        cuda_block_fragments<kBuilt>(kQ4K, "Q4_K"),
        cuda_block_fragments<kBuilt>(kQ5K, "Q5_K"),
        cuda_block_fragments<kBuilt>(kQ6K, "Q6_K"),
        cuda_block_fragments<kBuilt>(Format::kInt4Min, "Q4_1"),
        cuda_block_fragments<kBuilt>(kQ50, "Q5_0"),
        cuda_block_fragments<kBuilt>(kQ51, "Q5_1"),
        cuda_block_fragments<kBuilt>(kIQ4XS, "IQ4_XS"),
        cuda_block_fragments<kBuilt>(kIQ4NL, "IQ4_NL")};
    return kRows;
  }
  fail(ErrorKind::kBug, "this build has no kernels for a GPU");
}

}  // namespace

std::span<const WeightOps> weight_rows(DeviceKind device) {
  if (device == DeviceKind::kCpu) return kCpuRows;
  return cuda_table<kHasCuda>();
}

const WeightOps& weight_ops(const Context& ctx, const Weight& w) {
  for (const WeightOps& row : weight_rows(ctx.device.kind))
    if (row.format == w.format && row.layout == w.layout) return row;
  fail(ErrorKind::kBug, "no row for a weight of format {} in layout {}", static_cast<int>(w.format),
       static_cast<int>(w.layout));
}

}  // namespace sluice::ops
