// TMA loads of boxes of a matrix to shared memory: one thread issues them, an mbarrier counts the
// bytes that have arrived. Hopper only: elsewhere they stop the kernel.
//
// Source: PTX ISA, "Data movement and conversion instructions: tensor copy". Maps are made in
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

// The copy engine sees barriers that this thread made.
__device__ inline void fence_mbarrier_init() {
  SLUICE_HOPPER("fence.mbarrier_init.release.cluster;" :: : "memory");
}

// Arrives, and the barrier opens when `bytes` more have come.
__device__ inline void mbarrier_arrive_expect_tx(std::uint32_t barrier, int bytes) {
  SLUICE_HOPPER(
      "{\n.reg .b64 state;\nmbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;\n}" ::"r"(
          barrier),
      "r"(bytes) : "memory");
}

// The copy engine reads the map now, not when it is first asked for a box.
__device__ inline void prefetch_tensor_map(const CUtensorMap& map) {
  SLUICE_HOPPER("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// The box at the column and row, to `to`, which is on 1024 bytes. Nothing outside of the matrix is
// read: zeros come.
__device__ inline void tma_load(const CUtensorMap& map, int column, int row, std::uint32_t to,
                                std::uint32_t barrier) {
  SLUICE_HOPPER(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%3, %4}], [%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(column), "r"(row) : "memory");
}

// A policy of the L2 cache for what passes through it: it is the first to go.
__device__ inline std::uint64_t l2_evict_first() {
  std::uint64_t policy = 0;
  SLUICE_HOPPER("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// The same to every block of the cluster that `blocks` has a bit of, at the same address in each;
// each one's barrier counts what comes to it.
__device__ inline void tma_load_multicast(const CUtensorMap& map, int column, int row,
                                          std::uint32_t to, std::uint32_t barrier,
                                          std::uint16_t blocks, std::uint64_t policy) {
  SLUICE_HOPPER(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::"
      "cluster.L2::cache_hint "
      "[%0], [%1, {%3, %4}], [%2], %5, %6;" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(column), "r"(row), "h"(blocks), "l"(policy) : "memory");
}

// The other way: a box from `from`, on 1024 bytes, to the column and row; what lies outside of the
// matrix is left out. Writes to shared memory must have been published. Stores of a thread are
// committed together, and awaited until their boxes were read.
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

// `bytes` in a row, a multiple of 16; both sides begin on 16 bytes.
__device__ inline void tma_load_bytes(const void* from, int bytes, std::uint32_t to,
                                      std::uint32_t barrier) {
  SLUICE_HOPPER(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

#undef SLUICE_HOPPER

}  // namespace sluice::cuda
