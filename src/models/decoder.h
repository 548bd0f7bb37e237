// Decoders of attention and MLP layers. Their differences are data: decoder_spec.h and ModelConfig.
#pragma once

#include <memory>

#include "models/decoder_spec.h"
#include "models/registry.h"

namespace sluice {

// Error{kBadInput}: the checkpoint lacks a tensor, or a tensor has another shape.
std::unique_ptr<Model> load_decoder(WeightLoader& loader, const ModelConfig& config,
                                    const ModelOptions& options, const MoeNames& names);

}  // namespace sluice
