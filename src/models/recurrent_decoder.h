// Decoders whose layers, or some of them, keep a recurrent state instead of keys and values:
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
  DecoderSpec decoder;         // `attention` is below layers that attend
  std::string_view recurrent;  // where the others keep theirs
  bool has_mlp = true;
};

std::span<const RecurrentSpec> recurrent_table();

// What a model with recurrent layers keeps: keys and values (or latents) of the layers that attend,
// in `dtype`, and last the states of the others, in float32.
std::vector<PageGroupSpec> recurrent_page_groups(const ModelConfig& config, DType dtype);

// Error{kBadInput}: several ranks, or what the checkpoint lacks or has in another shape.
std::unique_ptr<Model> load_recurrent_decoder(WeightLoader& loader, const ModelConfig& config,
                                              const ModelOptions& options, const MoeNames& names);

}  // namespace sluice
