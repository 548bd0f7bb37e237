#include "server/core/grammar_drafts.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "base/error.h"

namespace sluice {
namespace {

constexpr char kSpecialMark = '\xFF';

// The last tokens of `ids` whose bytes are `text`; empty where no token begins with it.
std::vector<std::int32_t> tail_of(const Tokenizer& tokenizer, std::vector<std::int32_t> ids,
                                  std::string_view text) {
  std::size_t left = text.size();
  auto first = ids.end();
  while (left > 0 && first != ids.begin()) {
    const std::string_view bytes = tokenizer.token_bytes_view(*--first);
    if (!text.substr(0, left).ends_with(bytes)) return {};
    left -= bytes.size();
  }
  if (left > 0) return {};
  return {first, ids.end()};
}

// Of a text without special tokens. A tokenizer may put a space before the first word, but not
// behind a line feed.
std::vector<std::int32_t> tokens_of(const Tokenizer& tokenizer, std::string_view text) {
  const EncodeOptions options{.add_special_tokens = false, .parse_special = false};
  try {
    std::vector<std::int32_t> found = tail_of(tokenizer, tokenizer.encode(text, options), text);
    if (!found.empty()) return found;
    return tail_of(tokenizer, tokenizer.encode("\n" + std::string(text), options), text);
  } catch (const Error&) {
    return {};  // a regular expression took too long (text/tokenizer/pre_tokenizer_regex.h)
  }
}

}  // namespace

void append_drafts(const Tokenizer& tokenizer, const grammar::Vocabulary& vocabulary,
                   std::string_view text, int max_drafts, std::vector<std::int32_t>& drafts) {
  auto left = static_cast<std::size_t>(std::max(0, max_drafts));
  while (!text.empty() && left > 0) {
    std::vector<std::int32_t> found;
    std::size_t len = std::min(text.find(kSpecialMark), text.size());
    if (len > 0) {
      found = tokens_of(tokenizer, text.substr(0, len));
    } else if ((len = vocabulary.special_at(text.substr(1))) > 0) {
      if (const auto id = tokenizer.token_id(text.substr(1, len++))) found.push_back(*id);
    }
    if (found.empty()) return;
    found.resize(std::min(found.size(), left));
    std::ranges::copy(found, std::back_inserter(drafts));
    left -= found.size();
    text.remove_prefix(len);
  }
}

}  // namespace sluice
