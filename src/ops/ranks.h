// What the ranks that share a model exchange, beside the sums of row-parallel products
// (sum_over_ranks in ops/gemm.h).
#pragma once

#include <span>

#include "kernels/types/weight.h"
#include "ops/fused.h"
#include "tensor/context.h"

namespace sluice::ops {

// Sums sum.branch over the ranks, and adds it to the stream where their communicator does both at
// once and nothing keeps the branch; else it is pending. With sum.parts a rank may get its part
// only.
void add_over_ranks(Context& ctx, Residual& sum);

// out := the columns of all ranks side by side, in rank order.
void gather_columns(Context& ctx, const Tensor& x,  // [M, N] f32, dense
                    const Tensor& out);             // [M, ranks * N] f32, dense

// out := the rows of all groups of ranks, group by group. Consecutive ranks form a group and have
// the same rows; rows[g] are those of group g.
void gather_groups(Context& ctx, std::span<const std::int64_t> rows,
                   const Tensor& x,     // [rows[own group], N] f32 or bf16, dense
                   const Tensor& out);  // [sum of rows, N], as x

// Token embedding where `table` has the rows [first_row, first_row + V) of a larger one, of which
// each rank has some: ids outside give zeros, so that the sum over the ranks is the embedding. On a
// CPU.
void embedding_of_share(Context& ctx, const Tensor& ids,  // [T] int32
                        const Weight& table,              // [V, H] in any layout
                        std::int64_t first_row,
                        const Tensor& out);  // [T, H] f32

}  // namespace sluice::ops
