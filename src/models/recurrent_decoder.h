// Decoders in which some or all layers keep a recurrent state instead of keys and values:
// Qwen3-Next and Qwen3.5 (gated delta rule and gated attention), Kimi-Linear (KDA and latent
// attention without rotation), Mamba-2, LFM2 (short convolutions and attention).
#pragma once

#include <memory>
#include <span>

#include "models/decoder_spec.h"
#include "models/registry.h"

namespace sluice {

// A family: the names and norms of an ordinary decoder, and those of its recurrent layers.
struct RecurrentSpec {
  DecoderSpec decoder;         // `attention` is the name in layers that attend
  std::string_view recurrent;  // name in recurrent layers
  bool has_mlp = true;
};

std::span<const RecurrentSpec> recurrent_table();

// The page groups of a model with recurrent layers. First come keys and values (or latents) of the
// layers that attend, in `dtype`, whose heads `num_ranks` share. Last comes the group of the
// recurrent states, in float32.
std::vector<PageGroupSpec> recurrent_page_groups(const ModelConfig& config, int num_ranks,
                                                 DType dtype);

// Error{kBadInput}: the checkpoint lacks a tensor or has it in another shape.
std::unique_ptr<Model> load_recurrent_decoder(WeightLoader& loader, const ModelConfig& config,
                                              const ModelOptions& options, const MoeNames& names);

}  // namespace sluice
