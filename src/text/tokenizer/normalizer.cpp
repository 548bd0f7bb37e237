#include "text/tokenizer/normalizer.h"

#include "text/text_growth.h"

namespace sluice {
namespace {

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

// `edit(code, character, out)` appends the replacement of each character.
template <class Edit>
std::string each_character(std::string_view text, Edit edit) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    int size = 0;
    const char32_t code = decode_utf8(text, size);
    edit(code, text.substr(0, static_cast<std::size_t>(size)), out);
    text.remove_prefix(static_cast<std::size_t>(size));
  }
  return out;
}

std::string without(std::string_view text, bool (*is_dropped)(char32_t)) {
  return each_character(text, [&](char32_t code, std::string_view character, std::string& out) {
    if (!is_dropped(code)) out += character;
  });
}

bool is_nmt_control(char32_t c) {
  return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F ||
         c == 0x8F || c == 0x9F;
}
bool is_nmt_space(char32_t c) {
  return c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
         (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF ||
         c == 0xFFFD;
}

// Rules of machine translation corpora (sentencepiece `nmt_nfkc` before its NFKC; tokenizers
// `Nmt`).
std::string nmt(std::string_view text) {
  return each_character(text, [](char32_t code, std::string_view character, std::string& out) {
    if (is_nmt_control(code)) return;
    out += is_nmt_space(code) ? " " : character;
  });
}

std::string clean_text(std::string_view text) {
  return each_character(text, [](char32_t code, std::string_view character, std::string& out) {
    const bool blank = code == '\t' || code == '\n' || code == '\r';
    if (code == 0 || code == 0xFFFD || (!blank && is_other(code))) return;
    out += is_white_space(code) ? " " : character;
  });
}

std::string pad_chinese(std::string_view text) {
  return each_character(text, [](char32_t code, std::string_view character, std::string& out) {
    if (is_chinese(code))
      out.append(" ").append(character).append(" ");
    else
      out += character;
  });
}

std::string apply_step(const NormalizerStep& step, std::string_view text, bool at_start,
                       SplitRegex::Scratch& scratch) {
  switch (step.kind) {
    case NormalizerStep::kForm:
      return normalize(text, step.form);
    case NormalizerStep::kLowercase:
      return lowercase(text);
    case NormalizerStep::kPrepend:
      return text.empty() ? std::string() : step.content + std::string(text);
    case NormalizerStep::kReplace:
      return step.regex ? replace_matches(text, *step.regex, step.content, scratch)
                        : replace_all(text, step.literal, step.content);
    case NormalizerStep::kStrip:
      return std::string(strip(text, step.left, step.right));
    case NormalizerStep::kStripAccents:
      return without(text, is_mark);
    case NormalizerStep::kByteLevel:
      return to_byte_alphabet(text);
    case NormalizerStep::kPrecompiled:
      return step.charsmap->apply(text);
    case NormalizerStep::kNmt:
      return nmt(text);
    case NormalizerStep::kCleanText:
      return clean_text(text);
    case NormalizerStep::kPadChinese:
      return pad_chinese(text);
    case NormalizerStep::kDropNonspacingMarks:
      return without(text, is_nonspacing_mark);
    case NormalizerStep::kSentencePiece:
      return step.sentencepiece->apply(text, at_start);
  }
  return std::string(text);
}

// Whether a step drops the first character of a text, so that the result begins later in it.
bool drops_first(const NormalizerStep& step, std::string_view text, SplitRegex::Scratch& scratch) {
  if (text.empty()) return false;
  int size = 0;
  decode_utf8(text, size);
  const std::string_view first = text.substr(0, static_cast<std::size_t>(size));
  switch (step.kind) {
    case NormalizerStep::kStrip:
    case NormalizerStep::kStripAccents:
    case NormalizerStep::kNmt:
    case NormalizerStep::kCleanText:
    case NormalizerStep::kDropNonspacingMarks:
      return (step.kind != NormalizerStep::kStrip || step.left) &&
             apply_step(step, first, true, scratch).empty();
    case NormalizerStep::kReplace: {
      if (!step.content.empty()) return false;
      if (!step.regex) return text.starts_with(step.literal) && !step.literal.empty();
      SplitRegex::Match match;
      return step.regex->find(text, 0, scratch, match) && match.begin == 0 && match.end > 0;
    }
    default:
      return false;
  }
}

}  // namespace

std::string replace_matches(std::string_view text, const SplitRegex& regex, std::string_view by,
                            SplitRegex::Scratch& scratch) {
  std::string out;
  SplitRegex::Match match;
  std::size_t copied = 0;
  for (std::size_t from = 0; from <= text.size() && regex.find(text, from, scratch, match);) {
    out.append(text.substr(copied, match.begin - copied)).append(by);
    check_growth(text.size(), out.size());
    copied = match.end;
    from = match.end;
    if (match.begin == match.end)
      from += from < text.size() ? utf8_length(static_cast<unsigned char>(text[from])) : 1;
  }
  return out.append(text.substr(copied));
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  const std::size_t size = text.size();
  std::string out;
  out.reserve(size);
  for (std::size_t at; (at = text.find(from)) != std::string_view::npos;) {
    out.append(text.substr(0, at)).append(to);
    check_growth(size, out.size());
    text.remove_prefix(at + from.size());
  }
  return out.append(text);
}

std::string Normalizer::apply(std::string_view text, bool at_start, SplitRegex::Scratch& scratch,
                              bool* keeps_start) const {
  std::string current(text);
  for (const NormalizerStep& step : steps_) {
    if (keeps_start != nullptr && *keeps_start && drops_first(step, current, scratch))
      *keeps_start = false;
    current = apply_step(step, current, at_start, scratch);
    check_growth(text.size(), current.size());
  }
  return current;
}

std::size_t Normalizer::max_shrink() const {
  std::size_t shrink = 1;
  for (const NormalizerStep& step : steps_) {
    const bool form = step.kind == NormalizerStep::kForm &&
                      (step.form == NormalForm::kNfc || step.form == NormalForm::kNfd);
    const bool grows =
        step.kind == NormalizerStep::kPrepend || step.kind == NormalizerStep::kByteLevel ||
        (step.kind == NormalizerStep::kReplace && !step.regex &&
         step.content.size() >= step.literal.size()) ||
        (step.kind == NormalizerStep::kSentencePiece && step.sentencepiece->keeps_everything());
    if (form)
      // three Hangul letters of 3 bytes become one syllable of 3; 8 bytes of Greek become 3
      shrink *= 4;
    else if (!grows)
      return 0;
  }
  return shrink;
}

}  // namespace sluice
