// Requests of random tokens, for measurements.
#pragma once

#include <cstdint>

#include "engine/engine.h"

namespace sluice {

// `length` random tokens and exactly `output` generated ones, greedy. No two seeds share a cached
// prefix, or what is pretended of drafts.
Request random_request(int vocab_size, int length, int output, std::uint64_t seed);

// Sets what a measurement of `batch` requests of so many tokens needs and the user left open: one
// batch, a KV cache that holds it twice, and the log quiet.
void fit_options(Options& options, int batch, std::int64_t tokens_each, bool log_level_given);

}  // namespace sluice
