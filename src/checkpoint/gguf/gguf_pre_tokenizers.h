// The names of tokenizer.ggml.pre, and the tokenizer.json steps of each name. Private to
// checkpoint/gguf/.
//
// Sources: the tokenizer.json files of the models that llama.cpp's convert_hf_to_gguf_update.py
// names. llama-vocab.cpp for `default`, and for which models begin with a bos token if the file has
// no key for it.
#pragma once

#include <string_view>

#include "base/json.h"

namespace sluice {

struct GgufPreTokenizer {
  Json normalizer;  // null: none
  Json pre_tokenizer;
  // a piece that equals a token becomes that token, whatever the merges yield
  bool ignore_merges = false;
  bool adds_bos = false;  // the default of tokenizer.ggml.add_bos_token
};

// `name` may be empty: files from before 2024-05 have none. Error{kBadInput}, naming `what`, for an
// unknown name.
GgufPreTokenizer gguf_pre_tokenizer(std::string_view name, std::string_view what);

}  // namespace sluice
