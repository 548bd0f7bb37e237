// The names of tokenizer.ggml.pre, and the steps of a tokenizer.json that each stands for. Private
// to hub.
//
// Sources: the tokenizer.json files of the models that llama.cpp's convert_hf_to_gguf_update.py
// names; llama-vocab.cpp for `default`, and for which models begin with a bos token where the file
// does not say.
#pragma once

#include <string_view>

#include "base/json.h"

namespace sluice {

struct GgufPreTokenizer {
  Json normalizer;  // null: none
  Json pre_tokenizer;
  bool ignore_merges = false;  // a piece that is a token is that token, whatever the merges say
  bool adds_bos = false;       // where tokenizer.ggml.add_bos_token is missing
};

// `name` may be empty: files from before 2024-05 have none. Error{kBadInput}, naming `what`, for a
// name that is not known.
GgufPreTokenizer gguf_pre_tokenizer(std::string_view name, std::string_view what);

}  // namespace sluice
