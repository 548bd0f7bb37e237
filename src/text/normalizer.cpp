#include "text/normalizer.h"

namespace sluice {
namespace {

std::string replace_matches(std::string_view text, const NormalizerStep& step, SplitRegex::Scratch& scratch) {
  std::string out;
  SplitRegex::Match match;
  std::size_t copied = 0;
  for (std::size_t from = 0; from <= text.size() && step.regex->find(text, from, scratch, match);) {
    out.append(text.substr(copied, match.begin - copied)).append(step.content);
    copied = match.end;
    from = match.end;
    if (match.begin == match.end)
      from += from < text.size() ? utf8_length(static_cast<unsigned char>(text[from])) : 1;
  }
  return out.append(text.substr(copied));
}

std::string_view strip(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    int size = 0;
    if (!is_white_space(decode_utf8(text, size))) break;
    text.remove_prefix(size);
  }
  while (right && !text.empty()) {
    const char32_t last = last_character(text);
    if (!is_white_space(last)) break;
    std::string encoded;
    append_utf8(encoded, last);
    text.remove_suffix(encoded.size());
  }
  return text;
}

std::string without_marks(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    int size = 0;
    if (!is_mark(decode_utf8(text, size))) out += text.substr(0, size);
    text.remove_prefix(size);
  }
  return out;
}

std::string apply_step(const NormalizerStep& step, std::string_view text, SplitRegex::Scratch& scratch) {
  switch (step.kind) {
    case NormalizerStep::kForm:
      return normalize(text, step.form);
    case NormalizerStep::kLowercase:
      return lowercase(text);
    case NormalizerStep::kPrepend:
      return text.empty() ? std::string() : step.content + std::string(text);
    case NormalizerStep::kReplace:
      return step.regex ? replace_matches(text, step, scratch)
                        : replace_all(text, step.literal, step.content);
    case NormalizerStep::kStrip:
      return std::string(strip(text, step.left, step.right));
    case NormalizerStep::kStripAccents:
      return without_marks(text);
    case NormalizerStep::kByteLevel:
      return to_byte_alphabet(text);
  }
  return std::string(text);
}

}  // namespace

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at; (at = text.find(from)) != std::string_view::npos;) {
    out.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
  }
  return out.append(text);
}

std::string Normalizer::apply(std::string_view text, SplitRegex::Scratch& scratch) const {
  std::string current(text);
  for (const NormalizerStep& step : steps_) current = apply_step(step, current, scratch);
  return current;
}

}  // namespace sluice
