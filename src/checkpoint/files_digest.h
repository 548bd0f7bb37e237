// Tells the files of one model from those of another without reading them whole.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/files/checkpoint.h"

namespace sluice {

// Of the weights that Checkpoint takes from `path`, or of a GGUF file, and of config.json: sizes,
// and pieces at equal distances. It is equal where models are copies of each other; another
// training of the same shapes has another one. Error{kBadInput}: a file cannot be read.
std::uint64_t digest_of_files(const std::string& path, LoadFormat format);

}  // namespace sluice
