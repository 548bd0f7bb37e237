// What is understood of a model's files, for `plan` and `show`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/models/block_bits.h"
#include "cli/models/model_size.h"
#include "config/model_config.h"
#include "engine/options.h"
#include "engine/serving_plan.h"
#include "layers/weights/matrix_forms.h"

namespace sluice {

// Tensors of one type in the files.
struct StoredType {
  std::string dtype;  // "bfloat16", "Q8_0"
  std::int64_t num_tensors = 0;
  std::int64_t bytes = 0;
};

// By bytes, descending; empty where the directory holds no weights. Error{kBadInput}: it holds
// some, and they are damaged or not all there. Of a repository of the hub (`is_at_hub`) those are
// weights that are not fetched yet, so they count as none.
std::vector<StoredType> stored_types(const std::string& model, bool is_at_hub = false);

// In which form a CPU computes each quantised matrix under the options (layers/weights). Reads the
// scales, and takes no memory for the matrices. Error{kBadInput}: options or scales are refused.
std::vector<MatrixForm> forms_on_cpu(const Options& options, const ModelConfig& config,
                                     const std::string& model);

// Error{kBadInput}: a start would refuse the weights on any device, because tensors are missing or
// do not fit the configuration. With dummy weights there is nothing to refuse.
void require_weights(const ServingPlan& plan, const ModelConfig& config, const std::string& model);

// How the weights will lie in memory under a plan, about (layers/weights/weights.h says exactly
// how).
struct WeightForm {
  std::string products;             // of linear layers and experts: "int4 in groups of 32"
  std::string others;               // of all others: "bfloat16"
  double product_bits = 0;          // of one element of products, scales included
  double embedding_bits = 0;        // of an embedding that is not the head
  double head_bits = 0;             // of a head, or of the embedding that is one
  double linear_bits = 0;           // of linear layers besides experts and the head
  double expert_bits = 0;           // of routed experts that are stored one by one
  double plain_bits = 0;            // of matrices that stay plain
  bool expands = false;             // some of these lie in memory twice (WeightCount::expanded)
  std::optional<BlockBits> blocks;  // of a GGUF file, where any stay; no other form is there

  // "NVFP4 in linear layers and experts, bfloat16 in others"; of blocks as BlockBits::describe().
  std::string describe(const ModelSize& size) const;
  std::int64_t bytes(const WeightCount& part, bool tied) const;
  std::int64_t bytes(const ModelSize& size, bool tied) const;
};
// What tells the matrices that stay plain under the plan: the files of the model, or without any
// its configuration. Nothing where the checkpoint is not quantised, or all is rounded anew.
std::optional<StoredMatrices> stored_matrices(const ServingPlan& plan, const ModelConfig& config,
                                              const std::string& model);
ModelSize size_of_model(const ServingPlan& plan, const ModelConfig& config,
                        const std::string& model);
// `model` is resolved (hub/resolve.h).
WeightForm weight_form(const ServingPlan& plan, const ModelConfig& config,
                       const std::string& model);
// Their bytes, by name of the model; 0 where the weights go to a GPU, and where the configuration
// cannot be read, which whoever loads the model will say better. For progress.
std::int64_t expected_weight_bytes(const Options& options);

}  // namespace sluice
