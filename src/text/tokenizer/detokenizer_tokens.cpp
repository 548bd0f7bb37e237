#include "text/tokenizer/detokenizer_tokens.h"

#include <algorithm>
#include <utility>

#include "text/tokenizer/normalizer.h"
#include "text/unicode.h"

namespace sluice {
namespace {

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// No space before punctuation and English contractions (tokenizers `decoders/wordpiece.rs`,
// cleanup), in this order.
std::string cleaned_up(std::string text) {
  static constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  if (text.find(' ') == std::string::npos) return text;
  for (const auto& [from, to] : kRules) text = replace_all(text, from, to);
  return text;
}

// The text that `text` becomes between two other tokens.
std::string middle_form(const DecoderStage& stage, std::string text) {
  switch (stage.kind) {
    case DecoderStage::kReplace:
    case DecoderStage::kStrip:
      return stage.on_text ? text : edit_token(stage, text);
    case DecoderStage::kByteFallback:
    case DecoderStage::kSentencePiece: {
      const bool bytes = stage.kind == DecoderStage::kByteFallback || stage.byte_fallback;
      if (const int byte = bytes ? byte_of_token(text) : -1; byte >= 0)
        return std::string(1, static_cast<char>(byte));
      return stage.kind == DecoderStage::kByteFallback ? text
                                                       : replace_all(text, kSpaceSymbol, " ");
    }
    case DecoderStage::kByteLevel: {
      std::string bytes;
      return from_byte_alphabet(text, bytes) ? bytes : text;
    }
    case DecoderStage::kMetaspace:
    case DecoderStage::kBpeSuffix:
      return replace_all(text, stage.from, " ");
    case DecoderStage::kWordPiece:
      return word_piece(stage, text, false);
    case DecoderStage::kCtc:
      return ctc_piece(stage, text);
    case DecoderStage::kSpaces:
      return text;
  }
  return text;
}

}  // namespace

int byte_of_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  const int high = hex_digit(text[3]);
  const int low = hex_digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

std::string edit_token(const DecoderStage& stage, std::string_view text) {
  if (stage.kind == DecoderStage::kReplace) {
    if (!stage.regex) return replace_all(text, stage.from, stage.to);
    SplitRegex::Scratch scratch;
    return replace_matches(text, *stage.regex, stage.to, scratch);
  }
  for (int i = 0; i < stage.start && text.starts_with(stage.from); ++i)
    text.remove_prefix(stage.from.size());
  for (int i = 0; i < stage.stop && text.ends_with(stage.from); ++i)
    text.remove_suffix(stage.from.size());
  return std::string(text);
}

std::string word_piece(const DecoderStage& stage, std::string_view text, bool first) {
  std::string out;
  if (first)
    out = text;
  else if (text.starts_with(stage.from))
    out = text.substr(stage.from.size());
  else
    out.append(" ").append(text);
  return stage.cleanup ? cleaned_up(std::move(out)) : out;
}

std::string ctc_piece(const DecoderStage& stage, std::string_view text) {
  std::string out = stage.from.empty() ? std::string(text) : replace_all(text, stage.from, "");
  if (!stage.cleanup) return out;
  out = cleaned_up(std::move(out));
  return stage.to.empty() ? out : replace_all(out, stage.to, " ");
}

TokenDecoder::TokenDecoder(std::vector<DecoderStage> stages) : stages_(std::move(stages)) {
  const auto begin = std::find_if(stages_.begin(), stages_.end(),
                                  [](const DecoderStage& stage) { return !stage.is_of_token(); });
  edits_.assign(std::make_move_iterator(stages_.begin()), std::make_move_iterator(begin));
  stages_.erase(stages_.begin(), begin);
}

void TokenDecoder::add(std::int32_t id, std::string_view text, bool special) {
  std::string edited(text);
  for (const DecoderStage& stage : edits_) edited = edit_token(stage, edited);
  std::string bytes = edited;
  for (const DecoderStage& stage : stages_) bytes = middle_form(stage, std::move(bytes));
  const auto index = static_cast<std::size_t>(id);
  if (index >= entries_.size()) entries_.resize(index + 1);
  Entry& entry = entries_[index];
  entry = {bytes_.size(),
           bytes_.size(),
           static_cast<std::uint32_t>(edited.size()),
           static_cast<std::uint32_t>(bytes.size()),
           true,
           special};
  bytes_ += edited;
  if (bytes != edited) {
    entry.bytes = bytes_.size();
    bytes_ += bytes;
  }
  longest_bytes_ = std::max(longest_bytes_, bytes.size());
}

}  // namespace sluice
