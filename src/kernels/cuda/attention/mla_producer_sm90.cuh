// The producer warpgroup of mla_tiles_sm90.cu. It fills stages of shared memory with keys of
// bfloat16 in swizzled tiles, from rows of the latent plane in one of two forms:
//
//   Bf16Rows   bfloat16, copied as it is
//   CodeRows   e4m3 numbers and a power of two for 128 of them (kernels/types/latent_rows.h),
//              copied into the key's own row of the stage and widened there
#pragma once

#include "kernels/cuda/attention/latent_codes.cuh"
#include "kernels/cuda/attention/mla_plan.h"
#include "kernels/cuda/common/common.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/common/wgmma.cuh"
#include "kernels/types/latent_rows.h"

namespace sluice::cuda::mla {

inline constexpr int kRow = kMlaLatent + kMlaRope;
inline constexpr int kTiles = kRow / kSwizzleColumns;  // of 64 columns, side by side
inline constexpr int kPieces = kRow / 8;               // of 16 bytes
inline constexpr int kTileBytes = 64 * kSwizzleBytes;  // 64 rows
inline constexpr int kStageBytes = kTiles * kTileBytes;
inline constexpr int kGroupThreads = 4 * kWarp;
inline constexpr int kStages = 2;
inline constexpr int kKeysOfWarp = kMlaChunk / 4;  // of a step
static_assert(kMlaChunk == 64 && kTiles * kSwizzleColumns == kRow && kMlaChunk == kPageSize);

// Strides in elements. Without a list, `positions` gives the last key of each row.
struct TilesArgs {
  const float *q_latent, *q_rope;
  std::int64_t latent_token, latent_head, rope_token, rope_head;  // strides, in elements
  const void* plane;
  std::int64_t slot_stride, num_slots;
  float* out;
  std::int64_t out_token, out_head;
  const std::int32_t *page_table, *row_seq, *positions;  // positions: null with a list
  std::int64_t table_stride, num_seqs, max_pages;
  const std::int32_t* list;  // null: every key
  std::int64_t list_stride;
  int list_width, heads, splits;
  float scale_log2;
  float *partial, *partial_lse;  // [row, head, split]: [latent] and one
};

// The steps of a CTA.
struct Steps {
  std::int64_t seq, t;
  int first, count, length;  // of steps; keys of the row
};

struct Bf16Rows {
  // setmaxnreg: the producer needs few registers, a consumer holds 128 accumulators a thread.
  static constexpr int kCopyRegisters = 40, kMmaRegisters = 232;

  // Copies the keys of a warp. Lane k of the first 16 has the slot of key k.
  static __device__ void copy(const TilesArgs& a, int slot, std::uint32_t stage, int warp,
                              int lane) {
    constexpr int kTogether = 4,
                  kRounds = kTogether * kPieces / kWarp;  // four rows are nine rounds of a warp
    static_assert(kRounds * kWarp == kTogether * kPieces);
    const auto* plane = static_cast<const Bf16*>(a.plane);
#pragma unroll 1
    for (int round = 0; round < kRounds; ++round) {
      // Not unrolled, because the consumers have the registers.
      const int c = round * kWarp + lane, piece = c % kPieces;
      const std::uint32_t tile = stage + piece / 8 * kTileBytes;
#pragma unroll
      for (int q = 0; q < kKeysOfWarp / kTogether; ++q) {
        const int key = q * kTogether + c / kPieces;
        // Keys without a slot become zeros, because 0 * NaN would be NaN.
        const std::int64_t from = __shfl_sync(kAllLanes, slot, key);
        cp_async_16(tile + swizzled(warp * kKeysOfWarp + key, piece % 8),
                    plane + (from < 0 ? 0 : from * a.slot_stride + piece * 8), from >= 0);
      }
    }
  }
  static __device__ void widen(std::uint32_t, int, int) {}
};

// Copies 4 bytes, or writes zeros without reading if `is_inside` is false.
__device__ inline void cp_async_word(std::uint32_t to, const void* from, bool is_inside) {
  const int bytes = is_inside ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
__device__ inline std::uint32_t shared_word(std::uint32_t from) {
  std::uint32_t x;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(from) : "memory");
  return x;
}
__device__ inline uint2 shared_words(std::uint32_t from) {
  uint2 x;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(x.x), "=r"(x.y) : "r"(from) : "memory");
  return x;
}

struct CodeRows {
  // Codes of four keys are in registers at a time.
  static constexpr int kCopyRegisters = 72, kMmaRegisters = 216;
  static constexpr ops::LatentRow kLayout{kMlaLatent, kMlaRope};
  static constexpr int kRopeAt = kLayout.rope_at(), kExponentsAt = kLayout.exponents_at(),
                       kGroup = ops::kLatentGroup, kGroups = kLayout.groups();
  // Until they are widened, codes lie in the last tiles of the latent, a group in each, and the
  // exponents in the first tile.
  static constexpr int kCodeTile = kTiles - 1 - kGroups, kRopeTile = kTiles - 1;
  static_assert(kGroup == kSwizzleBytes && kGroups == 4 && kMlaRope * 2 == kSwizzleBytes &&
                kRopeAt == kMlaLatent && kExponentsAt % 4 == 0 && kCodeTile > 0);

  // Rows begin on 4 bytes only, so a lane copies a word of each group and of the rotated key.
  static __device__ void copy(const TilesArgs& a, int slot, std::uint32_t stage, int warp,
                              int lane) {
    const auto* plane = static_cast<const unsigned char*>(a.plane);
#pragma unroll 4
    for (int key = 0; key < kKeysOfWarp; ++key) {
      // Keys without a slot become zeros, with a scale of zero.
      const std::int64_t from = __shfl_sync(kAllLanes, slot, key);
      const int row = warp * kKeysOfWarp + key;
      const unsigned char* source = plane + (from < 0 ? 0 : from * a.slot_stride) + lane * 4;
      const std::uint32_t to = stage + row * kSwizzleBytes + lane * 4;
#pragma unroll
      for (int g = 0; g < kGroups; ++g)
        cp_async_word(to + (kCodeTile + g) * kTileBytes, source + g * kGroup, from >= 0);
      cp_async_word(stage + kRopeTile * kTileBytes + swizzled(row, lane / 4) + lane % 4 * 4,
                    source + kRopeAt, from >= 0);
    }
    if (lane < kKeysOfWarp)
      cp_async_word(stage + (warp * kKeysOfWarp + lane) * kSwizzleBytes,
                    plane + (slot < 0 ? 0 : slot * a.slot_stride) + kExponentsAt, slot >= 0);
  }

  // Widens the warp's keys, whose copies are complete. A lane has 8 numbers of each half of a row.
  static __device__ void widen(std::uint32_t stage, int warp, int lane) {
    constexpr int kTogether = 4, kHalves = 2;
    __syncwarp();  // other lanes have copied, too
#pragma unroll 1
    for (int first = 0; first < kKeysOfWarp; first += kTogether) {
      const int row0 = warp * kKeysOfWarp + first;
      uint2 codes[kTogether][kHalves];
      std::uint32_t exponents[kTogether];
#pragma unroll
      for (int q = 0; q < kTogether; ++q) {
        const std::uint32_t row = stage + (row0 + q) * kSwizzleBytes;
        exponents[q] = shared_word(row);
#pragma unroll
        for (int half = 0; half < kHalves; ++half)
          codes[q][half] =
              shared_words(row + (kCodeTile + half * 2 + lane / 16) * kTileBytes + lane % 16 * 8);
      }
      // Hazard: widened numbers go over the codes of other lanes.
      __syncwarp();
#pragma unroll
      for (int q = 0; q < kTogether; ++q)
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
          const std::uint32_t scale =
              latent_scale_pair(exponents[q] >> (half * 16 + lane / 16 * 8) & 0xFFu);
          const uint2 c = codes[q][half];
          store_piece(stage + (half * 4 + lane / 8) * kTileBytes + swizzled(row0 + q, lane % 8),
                      {widen_pair(__byte_perm(c.x, 0, 0x1404), scale),
                       widen_pair(__byte_perm(c.x, 0, 0x3424), scale),
                       widen_pair(__byte_perm(c.y, 0, 0x1404), scale),
                       widen_pair(__byte_perm(c.y, 0, 0x3424), scale)});
        }
    }
  }
};

// 1. Fills the stages, step after step. A warp copies 16 keys of each.
template <class Rows>
__device__ void copy_steps(const TilesArgs& a, const Steps& steps, std::uint32_t stages,
                           std::uint32_t full, std::uint32_t empty) {
  const int warp = threadIdx.x % kGroupThreads / kWarp, lane = threadIdx.x % kWarp;
  // Positions load two steps ahead and page numbers one step ahead: no copy waits for them.
  // Without a list, position = key number. A negative value means "no key".
  const auto position_of = [&](int i) {
    const int key = (steps.first + i) * kMlaChunk + warp * kKeysOfWarp + lane % kKeysOfWarp;
    if (i >= steps.count || key >= steps.length) return -1;
    return a.list == nullptr ? key : a.list[steps.t * a.list_stride + key];
  };
  // Both bounds are checked: a corrupt list or table must not become a read outside the plane.
  const auto page_of = [&](int position) {
    if (position < 0) return -1;
    expect_below(position / kPageSize, a.max_pages);
    return a.page_table[steps.seq * a.table_stride + position / kPageSize];
  };
  const auto slot_of = [&](int position, int page) {
    if (position < 0) return -1;
    const std::int64_t slot = std::int64_t{page} * kPageSize + position % kPageSize;
    expect_below(slot, a.num_slots);
    return static_cast<int>(slot);
  };
  // Every producer thread arrives, because every thread made its own keys visible.
  const auto announce = [&](int i) {
    Rows::widen(stages + i % kStages * kStageBytes, warp, lane);
    fence_async_proxy();
    mbarrier_arrive(full + i % kStages * 8);
  };
  int position = position_of(0), page = page_of(position), next = position_of(1);
  for (int i = 0; i < steps.count; ++i) {
    const int slot = slot_of(position, page);
    position = next;
    page = page_of(position);
    next = position_of(i + 2);
    if (i >= kStages) {
      cp_async_wait<0>();
      // Hazard: the copies of step i - 1 are complete, but wgmma reads them by the async proxy.
      announce(i - 1);
      // The stage is free when both consumers have released step i - kStages.
      mbarrier_wait(empty + i % kStages * 8, (i / kStages - 1) % 2);
    }
    Rows::copy(a, slot, stages + i % kStages * kStageBytes, warp, lane);
    cp_async_commit();
    // The first step is announced as soon as it is complete, without waiting for the second.
    if (i + 1 == kStages) {
      cp_async_wait<1>();
      announce(0);
    }
  }
  cp_async_wait<0>();
  if (steps.count > 0) announce(steps.count - 1);
}

}  // namespace sluice::cuda::mla
