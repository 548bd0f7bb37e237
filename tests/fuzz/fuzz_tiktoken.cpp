// text/tokenizer/files/tokenizer_files.h: an untrusted rank file.
#include "base/error.h"
#include "fuzz_support.h"
#include "fuzz_target.h"
#include "text/tokenizer/files/tokenizer_files.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice::fuzz {

void run_one(std::string_view input) {
  static const Json settings = {{"pat_str", "\\p{L}+|\\p{N}|[^\\p{L}\\p{N}]+"},
                                {"special_tokens", {{"<|end|>", 100000}}}};
  try {
    const Tokenizer tokenizer(tiktoken_parts(input, "x.tiktoken", settings, {}));
    const std::string text = " Hello,  w\xC3\xB6rld 123!\n<|end|> \xF0\x9F\x98\x80 it's";
    const std::vector<std::int32_t> ids = tokenizer.encode(text);
    must_hold(tokenizer.decode(ids, false) == text, "decoding gives the text back");
  } catch (const Error& error) {
    must_hold(error.kind() == sluice::ErrorKind::kBadInput, error.what());
  }
}

std::vector<std::string> seeds() {
  return golden_texts("tokenizers", "tokenizer.tiktoken", 64 << 10);
}

}  // namespace sluice::fuzz
