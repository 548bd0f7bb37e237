#include "cost/kernel_cost.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice {
namespace {

constexpr double kTile = 128;               // rows and columns of a tile of a product of many rows
constexpr double kMinExpertRowsInFp8 = 64;  // fewer rows of an expert are multiplied in bfloat16
// Rows for which a kernel converts a weight once: of few rows, and of many.
constexpr double kFewRows = 64, kRowsOfFew = 32;
// The kernel of the fewest rows has no tiles to fill: it converts twice as fast.
constexpr double kSkinnyConversion = 0.5;
// Of e4m3, of which one instruction converts two: experts of few tokens take 144 instructions for a
// unit, with 4 bits 171.
constexpr double kFp8Conversion = 144.0 / 171;
constexpr double kMiB = 1 << 20;
constexpr double kPeerGatherBytes = kMiB;  // of one GPU; kernels gather no more

// Share of the SMs that have a tile, in the mean of all waves. Products of few rows also cut their
// depth, so they have tiles for all.
double wave_share(const KernelWork& work, const GpuMachine& machine) {
  if (work.rows <= kTile) return 1;
  const double tiles = std::ceil(work.rows / kTile) * std::ceil(work.columns / kTile);
  const double waves = std::ceil(tiles / machine.num_sms);
  return tiles / (waves * machine.num_sms);
}

// How often a kernel converts a weight, in units of converted_per_s.
double conversions_of(double rows, bool is_experts) {
  if (!is_experts && rows <= kSkinnyRows) return kSkinnyConversion;
  return std::ceil(rows / (rows <= kFewRows ? kRowsOfFew : kTile));
}

double product_seconds(const KernelWork& work, const GpuMachine& machine,
                       const CostConstants& constants) {
  const bool is_experts = work.kind == KernelKind::kExperts;
  const double share =
      is_experts || work.rows <= kSkinnyRows ? constants.stream_share : constants.rows_share;
  const double read_s = (work.weight_bytes + work.bytes) / (machine.copy_bytes_per_s * share);
  const bool in_fp8 = work.is_fp8 && (!is_experts || work.rows >= kMinExpertRowsInFp8);
  const double conversions =
      in_fp8 ? 0 : conversions_of(work.rows, is_experts) * (work.is_fp8 ? kFp8Conversion : 1);
  const double convert_s = conversions * work.converted / (constants.converted_per_s * share);
  const double peak = in_fp8 ? machine.fp8_flops : machine.bf16_flops;
  const double matrix_share =
      is_experts ? constants.expert_gemm_share : constants.gemm_share * wave_share(work, machine);
  // Conversion hides reads in part only.
  return std::max(std::hypot(read_s, convert_s), work.operations / (peak * matrix_share));
}

double attention_seconds(const KernelWork& work, const GpuMachine& machine,
                         const CostConstants& constants) {
  const double read_s = work.bytes / (machine.copy_bytes_per_s * constants.stream_share);
  const double multiply_s =
      work.operations / (machine.bf16_flops * constants.prefill_attention_share);
  return std::max(read_s, multiply_s);
}

// `parts`: how often the tensor leaves a GPU.
double message_seconds(double latency_s, double parts, const KernelWork& work,
                       const GpuMachine& machine, const CostConstants& constants) {
  return latency_s + (work.ranks - 2) * constants.peer_s +
         parts * work.message_bytes / (machine.link_bytes_per_s * constants.link_share);
}

double collective_seconds(const KernelWork& work, const GpuMachine& machine,
                          const CostConstants& constants) {
  if (work.ranks == 1) return 0;
  const double others = work.ranks - 1, rest = others / work.ranks;
  switch (work.kind) {
    case KernelKind::kSum:
      // One shot sends the whole tensor to every other GPU, in bfloat16; a ring sends each part
      // twice, in float32.
      return work.message_bytes <= peer_sum_bytes(work.ranks)
                 ? message_seconds(constants.sum_s, others / 2, work, machine, constants)
                 : message_seconds(constants.nccl_s, 2 * rest, work, machine, constants);
    case KernelKind::kGather:
      return message_seconds(
          work.message_bytes <= work.ranks * kPeerGatherBytes ? constants.sum_s : constants.nccl_s,
          rest, work, machine, constants);
    default:
      return message_seconds(constants.nccl_s, 1, work, machine, constants);
  }
}

}  // namespace

double peer_sum_bytes(int ranks) {
  return ranks <= 2 ? std::numeric_limits<double>::infinity() : ranks <= 4 ? 2 * kMiB : kMiB;
}

double kernel_seconds(const KernelWork& work, const GpuMachine& machine,
                      const CostConstants& constants) {
  switch (work.kind) {
    case KernelKind::kSum:
    case KernelKind::kGather:
    case KernelKind::kSend:
      return collective_seconds(work, machine, constants);
    case KernelKind::kProduct:
    case KernelKind::kExperts:
      return work.launches * constants.launch_s + product_seconds(work, machine, constants);
    case KernelKind::kAttention:
      return work.launches * constants.launch_s + attention_seconds(work, machine, constants);
    case KernelKind::kElementwise:
      break;
  }
  return work.launches * constants.launch_s + work.bytes / machine.copy_bytes_per_s;
}

}  // namespace sluice
