#include "text/tokenizer/wordpiece.h"

#include <algorithm>

#include "base/error.h"

namespace sluice {

WordPieceModel::WordPieceModel(const TokenTable& vocab, WordPieceOptions options,
                               std::string_view what)
    : vocab_(vocab), options_(std::move(options)) {
  const auto unk = vocab.find(options_.unk_token);
  require(unk.has_value(), "{}: model.unk_token \"{}\" is not in model.vocab", what,
          options_.unk_token.substr(0, 64));
  unk_ = *unk;
  if (options_.whole_words) return;
  const std::string& prefix = options_.continuing_subword_prefix;
  std::vector<TokenTrie::Key> first, rest;
  for (std::int32_t id = 0; id < vocab.size(); ++id) {
    const std::string_view text = vocab.text(id);
    first.emplace_back(text, id);
    if (text.starts_with(prefix)) rest.emplace_back(text.substr(prefix.size()), id);
  }
  beginnings_ = TokenTrie(std::move(first));
  continuations_ = TokenTrie(std::move(rest));
}

bool WordPieceModel::cut(std::string_view word, std::vector<std::int32_t>& ids) const {
  const auto characters = std::count_if(word.begin(), word.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  });
  if (static_cast<std::size_t>(characters) > options_.max_input_chars_per_word) return false;
  for (bool begun = false; !word.empty(); begun = true) {
    const TokenTrie::Hit hit = (begun ? continuations_ : beginnings_).longest(word);
    if (hit.value < 0) return false;
    ids.push_back(hit.value);
    word.remove_prefix(hit.length);
  }
  return true;
}

void WordPieceModel::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (word.empty()) return;
  if (options_.whole_words) {
    ids.push_back(vocab_.find(word).value_or(unk_));
    return;
  }
  const std::size_t before = ids.size();
  if (cut(word, ids)) return;
  ids.resize(before);
  ids.push_back(unk_);
}

}  // namespace sluice
