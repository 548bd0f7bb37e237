// PTX wrappers of TMA, the tensor memory accelerator: one thread issues the copy of a box of a
// matrix, and an mbarrier in shared memory counts the bytes that have arrived. Hopper only: other
// GPUs trap.
//
// Source: PTX ISA, "Data movement and conversion instructions: tensor copy". Tensor maps come from
// kernels/cuda/common/tensor_map.h.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace sluice::cuda {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define SLUICE_HOPPER(...) asm volatile(__VA_ARGS__)
#else
#define SLUICE_HOPPER(...) __trap()
#endif

// TMA sees mbarriers that this thread initialised before.
__device__ inline void fence_mbarrier_init() {
  SLUICE_HOPPER("fence.mbarrier_init.release.cluster;" :: : "memory");
}

// Arrives. The phase completes when `bytes` more bytes have arrived.
__device__ inline void mbarrier_arrive_expect_tx(std::uint32_t barrier, int bytes) {
  SLUICE_HOPPER(
      "{\n.reg .b64 state;\nmbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;\n}" ::"r"(
          barrier),
      "r"(bytes) : "memory");
}

// Prefetches the tensor map, so that the first TMA does not wait for it.
__device__ inline void prefetch_tensor_map(const CUtensorMap& map) {
  SLUICE_HOPPER("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Loads the box at the column and row to `to`, on 1024 bytes. Elements outside the matrix become
// zeros.
__device__ inline void tma_load(const CUtensorMap& map, int column, int row, std::uint32_t to,
                                std::uint32_t barrier) {
  SLUICE_HOPPER(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%3, %4}], [%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(column), "r"(row) : "memory");
}

// Loads the box of runs of bytes (map_of_runs()) that begins at a run of a row of an item to `to`,
// on 128 bytes. Runs outside become zeros, which count as bytes that arrive.
__device__ inline void tma_load_runs(const CUtensorMap& map, int run, int row, int item,
                                     std::uint32_t to, std::uint32_t barrier) {
  SLUICE_HOPPER(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(0), "r"(run), "r"(row), "r"(item) : "memory");
}

// L2 policy for data that is used once: evicted first.
__device__ inline std::uint64_t l2_evict_first() {
  std::uint64_t policy = 0;
  SLUICE_HOPPER("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// The same to every CTA of the cluster with a bit in `ctas`, at the same address in each. The
// mbarrier of each CTA counts the bytes that arrive in that CTA.
__device__ inline void tma_load_multicast(const CUtensorMap& map, int column, int row,
                                          std::uint32_t to, std::uint32_t barrier,
                                          std::uint16_t ctas, std::uint64_t policy) {
  SLUICE_HOPPER(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::"
      "cluster.L2::cache_hint "
      "[%0], [%1, {%3, %4}], [%2], %5, %6;" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(column), "r"(row), "h"(ctas), "l"(policy) : "memory");
}

// Stores a box from `from`, on 1024 bytes, to the column and row. Elements outside the matrix are
// left out. Writes to the box need fence_async_proxy() and a barrier before. A thread commits its
// stores as a group; tma_store_wait_read() waits until the boxes have been read and may be
// overwritten.
__device__ inline void tma_store(const CUtensorMap& map, int column, int row, std::uint32_t from,
                                 std::uint64_t policy) {
  SLUICE_HOPPER(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.L2::cache_hint [%0, {%2, %3}], "
      "[%1], %4;" ::"l"(&map),
      "r"(from), "r"(column), "r"(row), "l"(policy) : "memory");
}
__device__ inline void tma_store_commit() {
  SLUICE_HOPPER("cp.async.bulk.commit_group;" :: : "memory");
}
__device__ inline void tma_store_wait_read() {
  SLUICE_HOPPER("cp.async.bulk.wait_group.read 0;" :: : "memory");
}

// Loads contiguous bytes, a multiple of 16. Both sides begin on 16 bytes.
__device__ inline void tma_load_bytes(const void* from, int bytes, std::uint32_t to,
                                      std::uint32_t barrier) {
  SLUICE_HOPPER(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

#undef SLUICE_HOPPER

}  // namespace sluice::cuda
