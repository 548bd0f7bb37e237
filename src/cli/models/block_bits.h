// What the matrices of a GGUF file take in memory where its blocks keep their form, by kind.
//
//   const BlockBits blocks = block_bits(source, config, numerics, forms);
//   blocks.linear.bits        // of an element of a linear layer, in the mean
//   blocks.describe("bfloat16")
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/weight_source.h"
#include "config/model_config.h"
#include "layers/weights/matrix_forms.h"
#include "layers/weights/numerics.h"

namespace sluice {

struct BlockBits {
  // Matrices of one kind that the model reads.
  struct Kind {
    double bits = 0;  // of an element, with padding of tiles or units
    std::int64_t matrices = 0;
    std::int64_t in_blocks = 0;  // of these
  };
  // A head that is tied to the embedding is the embedding. Matrices that stay plain by their use
  // (routers, kv_b_proj, positions) have no kind.
  Kind embedding, head, linear, experts;
  std::vector<std::string> types;  // of blocks that stay; the one of most elements comes first

  bool stays() const { return !types.empty(); }
  // "Q4_K, Q6_K blocks as in the file in linear layers, bfloat16 in others".
  std::string describe(std::string_view plain) const;
};

// `forms`: of all matrices in blocks, under the numerics (models/registry.h). Numbers and widened
// blocks have the compute type.
BlockBits block_bits(const WeightSource& source, const ModelConfig& config,
                     const Numerics& numerics, const std::vector<MatrixForm>& forms);

}  // namespace sluice
