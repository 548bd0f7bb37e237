// What `sluice doctor` checks: the operations of a model, at its shapes, against plain loops in
// float64.
#pragma once

#include <string>
#include <vector>

#include "cli/doctor/kernel_check.h"
#include "config/model_config.h"

namespace sluice {

// A family of operations; `run` does nothing where the model has none of them.
struct KernelFamily {
  std::string_view name;
  void (*run)(KernelCheck& check, const ModelConfig& config);
};
const std::vector<KernelFamily>& kernel_families();

// The shapes that stand for a model when none is named: a Llama of 2,048 columns.
ModelConfig usual_shapes();

// The families, a file each beside kernel_cases.cpp.
void check_attention_kernels(KernelCheck& check, const ModelConfig& config);
void check_latent_kernels(KernelCheck& check, const ModelConfig& config);
void check_indexer(KernelCheck& check, const ModelConfig& config);
void check_stored_products(KernelCheck& check, const ModelConfig& config);
void check_stored_experts(KernelCheck& check, const ModelConfig& config);
void check_recurrent_kernels(KernelCheck& check, const ModelConfig& config);
void check_masks(KernelCheck& check, const ModelConfig& config);

}  // namespace sluice
