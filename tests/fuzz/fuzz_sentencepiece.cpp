// text/tokenizer/files/tokenizer_files.h: an untrusted tokenizer.model with its character map. An
// accepted tokenizer can encode and decode, and its stream equals the decoded text.
#include "base/error.h"
#include "fuzz_support.h"
#include "fuzz_target.h"
#include "small_tokenizers.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/files/tokenizer_files.h"

namespace sluice::fuzz {

void run_one(std::string_view input) {
  try {
    const Tokenizer tokenizer(sentencepiece_parts(input, "tokenizer.model", {}));
    const std::vector<std::int32_t> ids = tokenizer.encode(
        " Hello,  w\xC3\xB6rld 123!\n<s> \xE2\x91\xA0\xEF\xBC\xA1 \xE2\x96\x81\xF0\x9F\x98\x80 "
        "it's\xFF  ");
    for (const std::int32_t id : ids) must_hold(tokenizer.is_token(id), "every id is a token");
    const std::string text = tokenizer.decode(ids, false);
    Detokenizer detokenizer(tokenizer, false);
    std::string joined;
    for (const std::int32_t id : ids) joined += detokenizer.push(id);
    must_hold(joined + detokenizer.finish() == text,
              "the pieces of a stream join to the decoded text");
  } catch (const Error& error) {
    must_hold(error.kind() == sluice::ErrorKind::kBadInput, error.what());
  }
}

std::vector<std::string> seeds() {
  std::vector<std::string> all = small_sentencepiece_models();
  for (const std::string& seed : all)
    sentencepiece_parts(seed, "seed", {});  // ends the program if a seed is no tokenizer
  return all;
}

}  // namespace sluice::fuzz
