// The metadata of a GGUF file as the config.json that transformers would have, so that one reader
// checks and resolves both (model_config.h). Private to checkpoint/.
//
// Sources: llama.cpp's gguf-py, `constants.py`; convert_hf_to_gguf.py, which wrote the file from a
// config.json.
#pragma once

#include "base/json.h"
#include "checkpoint/gguf/gguf_file.h"

namespace sluice {

// Error{kBadInput}: an architecture or a rotation that is not supported, or a key that is missing
// or of another type.
Json gguf_config(const GgufFile& file);

}  // namespace sluice
