#include "text/detokenizer.h"

#include <algorithm>
#include <optional>

#include "text/detokenizer_tokens.h"
#include "text/normalizer.h"
#include "text/unicode.h"

namespace sluice {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// The byte of a "<0xXX>" token.
std::optional<char> byte_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  const int high = hex_digit(text[3]);
  const int low = hex_digit(text[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

}  // namespace

void TokenDecoder::add(std::int32_t id, std::string_view text, bool special) {
  std::string bytes;
  bool is_byte = false;
  if (spec_.kind == DecoderSpec::kBytes) {
    // An added token need not be spelt in the byte alphabet; then it stands for itself.
    if (!from_byte_alphabet(text, bytes)) bytes = text;
  } else {
    bytes = text;
    for (const auto& [from, to] : spec_.replacements) bytes = replace_all(bytes, from, to);
    if (const auto byte = spec_.byte_fallback ? byte_token(bytes) : std::nullopt) {
      bytes.assign(1, *byte);
      is_byte = true;
    }
  }
  if (static_cast<std::size_t>(id) >= entries_.size()) entries_.resize(static_cast<std::size_t>(id) + 1);
  entries_[id] = {bytes_.size(), static_cast<std::uint32_t>(bytes.size()), true, is_byte, special};
  bytes_ += bytes;
  longest_bytes_ = std::max(longest_bytes_, bytes.size());
}

std::string Detokenizer::push(std::int32_t id) {
  std::string out;
  if (!decoder_->contains(id)) return out;
  const TokenDecoder::Token token = decoder_->token(id);
  if (skip_special_ && token.is_special && std::find(kept_.begin(), kept_.end(), id) == kept_.end()) return out;
  switch (decoder_->spec().kind) {
    case DecoderSpec::kBytes:
      held_ += token.bytes;
      push_bytes(out);
      break;
    case DecoderSpec::kPieces:
      if (!begun_ && !decoder_->spec().dropped_in_first.empty())
        push_piece(replace_all(token.bytes, decoder_->spec().dropped_in_first, ""), token.is_byte, out);
      else
        push_piece(token.bytes, token.is_byte, out);
      break;
    case DecoderSpec::kWords:
      if (begun_) out += ' ';
      out += token.bytes;
      break;
  }
  begun_ = true;
  return out;
}

std::string Detokenizer::finish() {
  std::string out;
  if (decoder_->spec().kind == DecoderSpec::kPieces)
    flush_byte_run(out);
  else
    append_lossy(out, held_);
  held_.clear();
  begun_ = false;
  num_stripped_ = 0;
  stripping_ = true;
  return out;
}

void Detokenizer::push_bytes(std::string& out) {
  std::string_view rest = held_;
  while (!rest.empty()) {
    const Utf8Step step = next_utf8(rest);
    if (step.kind == Utf8Step::kIncomplete) break;
    out.append(step.kind == Utf8Step::kCharacter ? rest.substr(0, step.size) : kReplacementCharacter);
    rest.remove_prefix(step.size);
  }
  held_.erase(0, held_.size() - rest.size());
}

void Detokenizer::push_piece(std::string_view bytes, bool is_byte, std::string& out) {
  if (is_byte) {
    held_ += bytes;
    return;
  }
  flush_byte_run(out);
  emit(bytes, out);
}

// A run of byte tokens that is not valid UTF-8 as a whole is one U+FFFD a byte.
void Detokenizer::flush_byte_run(std::string& out) {
  if (is_valid_utf8(held_)) {
    emit(held_, out);
  } else {
    for (std::size_t i = 0; i < held_.size(); ++i) emit(kReplacementCharacter, out);
  }
  held_.clear();
}

void Detokenizer::emit(std::string_view text, std::string& out) {
  const DecoderSpec& spec = decoder_->spec();
  while (stripping_ && !text.empty()) {
    stripping_ = num_stripped_ < spec.max_stripped && text.starts_with(spec.stripped);
    if (!stripping_) break;
    text.remove_prefix(spec.stripped.size());
    ++num_stripped_;
  }
  out += text;
}

}  // namespace sluice
