// Reads --init-expert-location: where experts are at the start.
//
//   place_by_location(location, config, groups, maps);
//
// A JSON file, or the JSON itself, with one of
//   {"physical_to_logical_map": [layers][places]}    the expert of each place
//   {"logical_count": [layers][experts]}             choices of each expert, or [steps] of these
// as SGLang reads it. There is a row for each decoder layer; those of layers without experts are
// not read.
#pragma once

#include <string>

#include "config/model_config.h"
#include "layers/weights/weights.h"

namespace sluice {

// Replaces the maps, which have places for the layers with experts, unless `location` is "trivial".
// `groups`: of ranks. Error{kBadInput}: what is wrong, and where.
void place_by_location(const std::string& location, const ModelConfig& config, int groups,
                       ExpertMaps& maps);

}  // namespace sluice
