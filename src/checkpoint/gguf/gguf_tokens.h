// Tokens that a GGUF file names by id, and those that llama.cpp knows by text. Private to
// checkpoint/.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "checkpoint/gguf/gguf_file.h"

namespace sluice {

// The token of tokenizer.ggml.`name`. Nothing if the key is missing, or if its value is no id of
// `num_tokens` tokens. In the second case llama.cpp warns and takes its default.
std::optional<std::int64_t> gguf_token_id(const GgufFile& file, std::string_view name,
                                          std::int64_t num_tokens);

// Whether a token with this text ends a generation, whatever its type. Such a token is a control
// token even where the file says otherwise. Source: llama-vocab.cpp of llama.cpp.
bool is_gguf_end_text(std::string_view text);

}  // namespace sluice
