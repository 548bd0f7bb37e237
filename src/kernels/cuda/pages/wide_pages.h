// Pages of e4m3 of the KV pool as bfloat16, in the memory of one prefill step. bfloat16 holds every
// number of e4m3, so nothing is rounded; scales stay with the reader.
#pragma once

#include <cstdint>

#include "kernels/cuda/pages/wide_plan.h"
#include "kernels/types/kv_plane.h"
#include "tensor/context.h"

namespace sluice::cuda {

// The widening of a step. Heads 0: the step cannot or should not widen its pages.
WidePlan wide_pages_of(const Context& ctx, const Tensor& q, const ops::KvPlane& k_plane,
                       const ops::KvPlane& v_plane, std::int64_t kv_heads,
                       const ops::PagedRows& rows);

// As ops::prefill_bytes().
std::int64_t wide_pages_bytes(const Context& ctx, const Tensor& q, const ops::KvPlane& k_plane,
                              const ops::KvPlane& v_plane, std::int64_t kv_heads,
                              const ops::PagedRows& rows);

// Device addresses in the step's memory.
struct WidePages {
  std::int32_t* runs = nullptr;   // [seqs, 3]: first page, end of the pages, place of the first
  std::int32_t* count = nullptr;  // [1]: pages of all runs
  std::int32_t* pages = nullptr;  // [run_pages]: their pages in the pool; -1: none
  std::int32_t* table = nullptr;  // [seqs, max_pages]: places of the pages that a run sees
  void *k = nullptr, *v = nullptr;

  WidePages(const WidePlan& plan, const ops::PagedRows& rows);
};

// Gives a place to each page that rows with neighbours of their sequence see.
void place_wide_pages(Context& ctx, const WidePages& wide, const ops::PagedRows& rows,
                      std::int64_t window);

// Writes heads [first, first + heads) of `dim` elements of the placed pages.
void widen_pages(Context& ctx, const WidePages& wide, const ops::KvPlane& k_plane,
                 const ops::KvPlane& v_plane, const ops::PagedRows& rows, std::int64_t first,
                 std::int64_t heads, std::int64_t dim);

}  // namespace sluice::cuda
