// Decoders of attention and MLP layers whose differences are data: decoder_spec.h and ModelConfig.
#pragma once

#include <memory>

#include "models/decoder_spec.h"
#include "models/registry.h"

namespace sluice {

// Error{kBadInput}: the architecture has no row, or the device lacks an operation that the model needs.
std::unique_ptr<Model> load_decoder(WeightLoader& loader, const ModelConfig& config, const ModelOptions& options,
                                    const MoeNames& names);

// What the model needs and a GPU has no kernel for yet, as a phrase; empty: nothing.
std::string_view needs_cpu(const ModelConfig& config, const DecoderSpec& spec);

}  // namespace sluice
