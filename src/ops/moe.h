// Mixture of experts: routing, and the experts' MLPs.
#pragma once

#include "kernels/types/op_params.h"
#include "kernels/types/weight.h"
#include "ops/packing.h"
#include "tensor/context.h"

namespace sluice::ops {

// Selects the top_k experts of each token. Groups that are not kept count as -inf. Ties go to the
// lower id. Experts are listed in ascending id. Sources: transformers MixtralSparseMoeBlock,
// Qwen3MoeSparseMoeBlock, DeepseekV3TopkRouter, and those of the settings in
// kernels/types/op_params.h.
void route(Context& ctx, const Tensor& logits,  // [T, E] f32, strided rows
           const Tensor& correction_bias,       // [E] f32, for kNoauxTc; else undefined
           const RouterParams& params,
           const Tensor& weights,  // [T, top_k] f32
           const Tensor& ids);     // [T, top_k] int32

// ids[t, j] := places[ids[t, j]]: from numbers of the layer's experts to places among those of this
// rank; -1: the expert is at another rank. Places ascend with the numbers, so ids still ascend.
void place_experts(Context& ctx, const Tensor& places,  // [E] int32
                   const Tensor& ids);                  // [T, top_k] int32

// choices[e] += the number of pairs whose expert is e. On a CPU.
void count_choices(Context& ctx, const Tensor& ids,  // [T, top_k] int32: numbers in the layer
                   const Tensor& choices);           // [E] int64

// Workspace size of fused_experts. Many tokens are processed in blocks, so the size is bounded.
struct MoeWorkspaceShape {
  std::int64_t pairs = 0;  // (token, expert) pairs of a block
  std::int64_t order = 0;  // entries of MoeWorkspace::order
};
MoeWorkspaceShape fused_experts_workspace(std::int64_t tokens, std::int64_t top_k,
                                          std::int64_t experts,
                                          DeviceKind device = DeviceKind::kCpu);

// Takes the workspace from `arena` (give it back with a Scope). `inner`: how w2 reads its rows,
// prepared_shape(w2).
MoeWorkspace take_moe_workspace(Arena& arena, std::int64_t tokens, std::int64_t top_k,
                                std::int64_t experts, std::int64_t hidden,
                                std::int64_t intermediate, PreparedRows inner);

// Both weights have one layout; x is as prepared_shape(w13) says, and workspace.hidden as
// prepared_shape(w2) does.
//
// out[t] = sum over j of weights[t, j] * W2_e (act(G_e x[t]) * U_e x[t]), e = ids[t, j], in
// ascending order of e. G_e and U_e are the first and last I rows of w13[e]. ExpertParams lists
// variations. If x is bf16, act(.) * (.) is rounded to bf16 before W2. Tokens are grouped by
// expert, so that a block of tokens reads the weights of each selected expert once. A pair with id
// -1 (an expert of another rank) adds nothing. ids ascend within a token; -1 may occur anywhere.
// out and x do not overlap.
void fused_experts(Context& ctx, const Tensor& x,  // [T, H] f32 or bf16, strided rows
                   const Weight& w13,              // [E, 2 I, H], dense
                   const Weight& w2,               // [E, H, I], dense; in rows: w13's dtype
                   const Tensor& weights,          // [T, top_k] f32
                   const Tensor& ids,              // [T, top_k] int32
                   const ExpertParams& params,     // an Activation, or its variations
                   const MoeWorkspace& workspace,
                   const Tensor& out);  // [T, H] f32, strided rows

// The places of a layer's experts, in groups of ranks with equally many places.
struct ExpertPlaces {
  Tensor replicas;               // [E, 1 + R] int32: how many places an expert has, and these
  Tensor choices;                // [E] int64: gets the number of tokens that chose each expert
  Tensor group_choices;          // [groups] int64: gets the number of choices of each group
  std::int64_t num_places = 0;   // of all groups
  std::int64_t first_place = 0;  // of this rank
};

// ids[t, j] := the place of expert ids[t, j] among those of this rank; -1: another group computes
// the pair. Of several places a hash of the token's ids and weights takes one, so the choice
// depends on the token alone and is the same at all ranks. Places need not ascend.
void place_replicas(Context& ctx, const ExpertPlaces& places,
                    const Tensor& weights,  // [T, top_k] f32
                    const Tensor& ids);     // [T, top_k] int32, in and out

// out[t] = sum over the pairs of t of what their experts give, in the order of j. Each pair is
// summed over the ranks alone, where all but one group add zeros. So the bits do not depend on the
// group that computes a pair; they do on the number of ranks in a group. `ids` are places of this
// rank in any order, or -1. Costs top_k times the bytes of a sum of the tokens.
void sum_pairs(Context& ctx, const Tensor& x,             // as of fused_experts()
               const Weight& w13,                         // [places, 2 I, K]
               const Weight& w2,                          // [places, K, I]
               const Tensor& weights, const Tensor& ids,  // [T, top_k]
               const ExpertParams& params,
               const Tensor& out);  // [T, K] f32, dense

// Argument checks, for ops that contain these.
void expect_route(const Context& ctx, const Tensor& logits, const Tensor& correction_bias,
                  const RouterParams& params, const Tensor& weights, const Tensor& ids);
void expect_fused_experts(const Context& ctx, const Tensor& x, const Weight& w13, const Weight& w2,
                          const Tensor& weights, const Tensor& ids, const ExpertParams& params,
                          const MoeWorkspace& workspace, const Tensor& out);

}  // namespace sluice::ops
