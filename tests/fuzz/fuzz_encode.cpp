// text/tokenizer/tokenizer.h and text/tokenizer/detokenizer.h: any bytes as text. The first byte
// selects a tokenizer of the fixtures.
#include <memory>

#include "base/error.h"
#include "base/testing/source_dir.h"
#include "fuzz_support.h"
#include "fuzz_target.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice::fuzz {
namespace {

struct Fixture {
  std::string_view name;
  bool exact;  // decoding gives the text back: no normalizer, no added tokens that take spaces with
               // them
};
constexpr Fixture kFixtures[] = {{"gpt2-bytelevel", true},
                                 {"llama3-with-merges", true},
                                 {"deepseek-v3-3step", true},
                                 {"o200k", true},
                                 {"kimi-han", true},
                                 {"starcoder-digits", true},
                                 {"falcon-punct", false},
                                 {"qwen2-nfc", false},
                                 {"added-token-flags", false},
                                 {"neox-prefix-space", false},
                                 {"gemma-split", false},
                                 {"llama2-prepend", false},
                                 {"mistral-metaspace", false},
                                 {"glm4-gmask", false},
                                 {"llama3-ignore-merges", true},
                                 {"t5-unigram", false},
                                 {"xlmr-unigram", false},
                                 {"bert-wordpiece", false},
                                 {"spm-bpe-llama2", false},
                                 {"spm-bpe-gemma", false},
                                 {"spm-unigram-t5", false},
                                 {"tiktoken-o200k", true}};

const Tokenizer& tokenizer(std::size_t i) {
  static const std::vector<std::unique_ptr<Tokenizer>> all = [] {
    std::vector<std::unique_ptr<Tokenizer>> made;
    for (const Fixture& fixture : kFixtures) {
      made.push_back(
          Tokenizer::load(source_dir() + "/tests/golden/tokenizers/" + std::string(fixture.name)));
    }
    return made;
  }();
  return *all[i];
}

bool is_ascii(std::string_view text) {
  for (const char c : text)
    if ((c & 0x80) != 0) return false;
  return true;
}

}  // namespace

void run_one(std::string_view input) {
  if (input.empty()) return;
  const std::size_t which = static_cast<unsigned char>(input[0]) % std::size(kFixtures);
  const Tokenizer& with = tokenizer(which);
  const std::string_view text = input.substr(1);
  try {
    const std::vector<std::int32_t> ids =
        with.encode(text, {.add_special_tokens = false, .parse_special = true});
    for (const std::int32_t id : ids) must_hold(with.is_token(id), "every id is a token");
    const std::string decoded = with.decode(ids, false);
    if (kFixtures[which].exact && is_ascii(text))
      must_hold(decoded == text, "decoding gives the text back");
    Detokenizer detokenizer(with, false);
    std::string joined;
    for (const std::int32_t id : ids) joined += detokenizer.push(id);
    joined += detokenizer.finish();
    must_hold(joined == decoded, "the pieces of a stream join to the decoded text");
  } catch (const Error& error) {
    must_hold(error.kind() == sluice::ErrorKind::kBadInput, error.what());
  }
}

std::vector<std::string> seeds() {
  const std::string texts[] = {
      "Hello, world! It's 12345.678 \xE2\x82\xAC, don't you think?\r\n\r\n  def f(x):\n\treturn x "
      " ",
      "\xE4\xBD\xA0\xE5\xA5\xBD\xEF\xBC\x8C\xE4\xB8\x96\xE7\x95\x8C "
      "\xD0\x9F\xD1\x80\xD0\xB8\xD0\xB2\xD0\xB5\xD1\x82 "
      "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB e\xCC\x81",
      "<|endoftext|> <s></s><|im_start|>user\n<think>[gMASK]<sop>",
      "\xFF\xC3\x28\xE2\x82\xF0\x9F\x98",
      "   \n\n \t ",
      "a"};
  std::vector<std::string> all;
  for (std::size_t i = 0; i < std::size(kFixtures); ++i)
    for (const std::string& text : texts) all.push_back(static_cast<char>(i) + text);
  return all;
}

}  // namespace sluice::fuzz
