#include "mutator.h"

#include <algorithm>

namespace sluice::fuzz {
namespace {

using namespace std::literals;

constexpr std::string_view kPieces[] = {"0",
                                        "-1",
                                        "1",
                                        "0.5",
                                        "1e400",
                                        "-0.0",
                                        "NaN",
                                        "Infinity",
                                        "null",
                                        "true",
                                        "false",
                                        "{}",
                                        "[]",
                                        "\"\"",
                                        "[",
                                        "]",
                                        "{",
                                        "}",
                                        "(",
                                        ")",
                                        "\"",
                                        "'",
                                        "\\",
                                        "\\u0000",
                                        "\\ud800",
                                        ",",
                                        ":",
                                        "|",
                                        ".",
                                        "-",
                                        "{{",
                                        "}}",
                                        "{%",
                                        "%}",
                                        "{#",
                                        "#}",
                                        "\r\n",
                                        "\n\n",
                                        "\t",
                                        " ",
                                        "18446744073709551615",
                                        "9223372036854775807",
                                        "-9223372036854775808",
                                        "4294967296",
                                        "2147483648",
                                        "1048576",
                                        "65536",
                                        "255",
                                        "\xFF",
                                        "\xC0\x80",
                                        "\xED\xA0\x80",
                                        "\xF4\x90\x80\x80",
                                        "\xE2\x82",
                                        "\xF0\x9F\x91\xA9\xE2\x80\x8D",
                                        "\xCC\x81",
                                        "\xEF\xBB\xBF",
                                        "\0"sv,
                                        "[[[[[[[[[[[[[[[[",
                                        "{\"a\":{\"a\":{\"a\":",
                                        "((((((((((((((((",
                                        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || (c & 0x80) != 0;
}

}  // namespace

Mutator::Mutator(const std::vector<std::string>& corpus, std::uint64_t seed, std::size_t max_bytes)
    : corpus_(corpus), state_(mix64(seed)), max_bytes_(max_bytes) {
  for (const std::string& text : corpus_) {
    for (std::size_t begin = 0; begin < text.size();) {
      std::size_t end = begin;
      while (end < text.size() && is_word(text[end])) ++end;
      if (end - begin >= 3 && end - begin <= 40)
        words_.push_back(std::string_view(text).substr(begin, end - begin));
      begin = end + 1;
    }
  }
  std::ranges::sort(words_);
  words_.erase(std::unique(words_.begin(), words_.end()), words_.end());
}

std::string Mutator::next() {
  std::string text = corpus_.empty() ? std::string() : corpus_[below(corpus_.size())];
  for (std::size_t edits = 1 + below(8); edits > 0; --edits) edit(text);
  if (text.size() > max_bytes_) text.resize(max_bytes_);
  return text;
}

void Mutator::edit(std::string& text) {
  const std::size_t at = below(text.size() + 1);
  const std::size_t length = std::min(text.size() - at, 1 + below(1 + below(64)));
  switch (below(10)) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(below(256));
      break;
    case 1:
      if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
      break;
    case 2:
      text.erase(at, length);
      break;
    case 3:
      text.insert(at, text.substr(below(text.size() + 1), length));
      break;
    case 4:
      text.insert(at, kPieces[below(std::size(kPieces))]);
      break;
    case 5:
      text.replace(at, length, kPieces[below(std::size(kPieces))]);
      break;
    case 6:
      if (!words_.empty()) text.insert(at, words_[below(words_.size())]);
      break;
    case 7: {  // a whole JSON value
      const std::size_t colon = text.find(':', at);
      if (colon == std::string::npos) break;
      const std::size_t end = std::min(text.find_first_of(",}]", colon), text.size());
      text.replace(colon + 1, end - colon - 1, kPieces[below(std::size(kPieces))]);
      break;
    }
    case 8: {  // the end of another text
      const std::string& other = corpus_[below(corpus_.size())];
      text.resize(at);
      text += std::string_view(other).substr(below(other.size() + 1));
      break;
    }
    default: {  // a part many times over
      const std::string part = text.substr(at, length);
      for (std::size_t n = below(1 + below(200)); n > 0 && text.size() < max_bytes_; --n)
        text.insert(at, part);
    }
  }
}

}  // namespace sluice::fuzz
