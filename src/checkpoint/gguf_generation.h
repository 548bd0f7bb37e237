// What a GGUF file says about the end of a generation and about sampling, as llama.cpp reads it.
//
// End tokens are those of the keys tokenizer.ggml.{eos,eot,eom}_token_id, and every token whose
// text is a known end (`<|im_end|>`, `<|eot_id|>`, `<end_of_turn>` and others). Defaults of a
// request are the keys general.sampling.*. Source: llama-vocab.cpp (the set of end-of-generation
// tokens) and its keys of sampling defaults.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/gguf/gguf_file.h"
#include "config/generation_config.h"

namespace sluice {

// `model` is the configuration of the same file.
GenerationConfig gguf_generation_config(const GgufFile& file, const ModelConfig& model);

// The keys of the file that change nothing, ascending. Keys that only describe the file (its name,
// its author, its sources) are left out where `functional_only`.
std::vector<std::string> gguf_ignored_keys(const std::string& path, bool functional_only);

}  // namespace sluice
