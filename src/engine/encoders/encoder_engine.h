// The engine of an encoder: requests of vectors and scores in, one packed batch after the other.
//
//   if (std::optional<EncoderConfig> config = find_encoder(options, directory))
//     engine = create_encoder_engine(options, *config, directory, progress);
//
// Texts go in the order in which they came, as many at a time as a budget of tokens holds. There is
// no KV cache: a text is computed whole, in one step. Runs on the CPU.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "models/encoders/encoder_config.h"

namespace sluice {

// The configuration of the model in `directory`, if its class is an encoder's. Error{kBadInput}.
std::optional<EncoderConfig> find_encoder(const Options& options, const std::string& directory);

// Loads the model and starts the engine's thread. Error: bad input, no resources. Options that mean
// nothing to an encoder are named in the log; those that ask for what it has not are refused.
// submit() takes requests with Request::pooling alone: 400 unsupported_task for others.
std::unique_ptr<Engine> create_encoder_engine(
    const Options& options, EncoderConfig config, const std::string& directory,
    std::function<void(const std::string&, double)> progress);

}  // namespace sluice
