// text/tokenizer/tokenizer.h: an untrusted tokenizer.json. An accepted tokenizer can encode and
// decode.
#include "base/error.h"
#include "fuzz_support.h"
#include "fuzz_target.h"
#include "small_tokenizers.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice::fuzz {

void run_one(std::string_view input) {
  try {
    const auto tokenizer = Tokenizer::from_json(input, "tokenizer.json");
    const std::vector<std::int32_t> ids =
        tokenizer->encode(" Hello,  w\xC3\xB6rld 123!\n<s> <|im_start|>\xF0\x9F\x98\x80 it's\xFF");
    for (const std::int32_t id : ids)
      must_hold(id >= 0 && id < tokenizer->size(), "ids lie below size()");
    tokenizer->decode(ids, true);
    tokenizer->decode(ids, false);
  } catch (const Error& error) {
    must_hold(error.kind() == sluice::ErrorKind::kBadInput, error.what());
  }
}

std::vector<std::string> seeds() {
  std::vector<std::string> all = small_tokenizer_jsons();
  for (const std::string& seed : all)
    Tokenizer::from_json(seed, "seed");  // ends the program if a seed is not a tokenizer
  return all;
}

}  // namespace sluice::fuzz
