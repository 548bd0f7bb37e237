#include "text/tokenizer/sentencepiece_normalizer.h"

#include "text/text_growth.h"
#include "text/unicode.h"

namespace sluice {
namespace {

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581

}  // namespace

SentencePieceNormalizer::Step SentencePieceNormalizer::next(std::string_view text) const {
  if (const auto hit = user_defined_.longest(text); hit.value >= 0)
    return {text.substr(0, hit.length), hit.length};
  if (charsmap_)
    if (const auto hit = charsmap_->longest(text); hit.length > 0)
      return {hit.replacement, hit.length};
  const auto size = static_cast<std::size_t>(utf8_length(static_cast<unsigned char>(text[0])));
  return {text.substr(0, size), size};
}

std::string SentencePieceNormalizer::apply(std::string_view text, bool at_start) const {
  const bool trims = options_.remove_extra_whitespaces;
  while (trims && !text.empty()) {
    const Step step = next(text);
    if (step.text != " ") break;
    text.remove_prefix(step.length);
  }
  std::string out;
  const std::size_t size_before = text.size();
  if (text.empty()) return out;
  out.reserve(text.size() + text.size() / 2 + 3);
  const std::string_view space = options_.escape_whitespaces ? kSpaceSymbol : " ";
  const bool dummy =
      options_.dummy_prefix == SentencePieceNormalizerOptions::kAlways ||
      (options_.dummy_prefix == SentencePieceNormalizerOptions::kAtStart && at_start);
  if (dummy && !options_.treat_whitespace_as_suffix) out += space;
  bool after_space = trims;
  while (!text.empty()) {
    const Step step = next(text);
    std::string_view piece = step.text;
    while (after_space && piece.starts_with(' ')) piece.remove_prefix(1);
    if (!piece.empty()) {
      for (const char c : piece) {
        if (c == ' ')
          out += space;
        else
          out += c;
      }
      after_space = piece.ends_with(' ');
      check_growth(size_before, out.size());
    }
    text.remove_prefix(step.length);
    if (!trims) after_space = false;
  }
  while (trims && out.ends_with(space)) out.resize(out.size() - space.size());
  if (dummy && options_.treat_whitespace_as_suffix) out += space;
  return out;
}

}  // namespace sluice
