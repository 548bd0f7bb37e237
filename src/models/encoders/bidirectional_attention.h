// Attention of packed texts in which every token sees every other one of its text, on a CPU.
//
// A row's sums run over its own text alone, in the order of positions: neither the texts beside it
// nor the number of threads change a bit. Everything is float32. Any thread that owns `ctx`.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace sluice {

// Rotations of the halves of a head, by position: RoFormer (arXiv 2104.09864) as in Llama.
class RotationTable {
 public:
  RotationTable() = default;
  RotationTable(double theta, int head_dim, int num_positions);
  bool defined() const { return !cos_.empty(); }
  // x [head_dim] := rotated for the position.
  void rotate(int position, float* x) const;

 private:
  int half_ = 0;
  std::vector<float> cos_, sin_;  // [positions, half]
};

struct BidirectionalAttentionShape {
  int num_heads = 1;
  int num_kv_heads = 1;  // shared by equally many heads of queries
  int head_dim = 1;
  float scale = 1;  // of the products of queries and keys
};

// qkv [T, (heads + 2 kv_heads) d] f32: queries, keys and values of all heads. `starts`: the first
// row of each text, and T. A row sees those of its text that are at most `window` away; 0: all. out
// [T, heads * d] f32.
void attend_both_ways(Context& ctx, const BidirectionalAttentionShape& shape,
                      std::span<const std::int32_t> starts, const Tensor& qkv,
                      const RotationTable& rotation, int window, const Tensor& out);

}  // namespace sluice
