#include "text/tokenizer/detokenizer.h"

#include <algorithm>

#include "text/tokenizer/normalizer.h"
#include "text/unicode.h"

namespace sluice {
namespace {

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581

// The length of the longest suffix of `text` that is a prefix of `pattern`.
std::size_t partial_match(std::string_view text, std::string_view pattern) {
  std::size_t length = std::min(text.size(), pattern.size() - 1);
  while (length > 0 && !text.ends_with(pattern.substr(0, length))) --length;
  return length;
}

// Bytes at the end of `text` that begin a character.
std::size_t unfinished_bytes(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = next_utf8(text);
    if (step.kind == Utf8Step::kIncomplete) break;
    text.remove_prefix(static_cast<std::size_t>(step.size));
  }
  return text.size();
}

}  // namespace

std::string Detokenizer::push(std::int32_t id) {
  std::string out;
  if (!decoder_->contains(id)) return out;
  const TokenDecoder::Token token = decoder_->token(id);
  if (skip_special_ && token.is_special && std::find(kept_.begin(), kept_.end(), id) == kept_.end())
    return out;
  const std::vector<DecoderStage>& stages = decoder_->stages();
  if (!stages.empty() && stages[0].kind == DecoderStage::kByteLevel) {
    states_[0].held += token.bytes;  // decoded from the byte alphabet at load
    push_bytes(0, false, out);
  } else {
    feed(0, token.text, out);
  }
  return out;
}

std::string Detokenizer::finish() {
  return finish(false);
}

std::string Detokenizer::finish_answer() {
  return finish(true);
}

std::string Detokenizer::finish(bool drops_unfinished) {
  std::string out;
  for (std::size_t stage = 0; stage < states_.size(); ++stage) {
    end(stage, drops_unfinished, out);
    states_[stage] = {};
  }
  return out;
}

// Feeds a token to a stage, or a part of the text if an earlier stage merges tokens. After the last
// stage the text is written.
void Detokenizer::feed(std::size_t stage, Text text, std::string& out) {
  if (stage == states_.size()) {
    out += text;
    return;
  }
  const DecoderStage& spec = decoder_->stages()[stage];
  State& state = states_[stage];
  const bool first = !std::exchange(state.begun, true);
  switch (spec.kind) {
    case DecoderStage::kReplace:
      return spec.on_text ? replace_on_text(stage, text, out)
                          : feed(stage + 1, edit_token(spec, text), out);
    case DecoderStage::kStrip:
      return spec.on_text ? strip_on_text(stage, text, out)
                          : feed(stage + 1, edit_token(spec, text), out);
    case DecoderStage::kByteLevel:
      // An added token may be outside the byte alphabet; then it stands for itself.
      if (!from_byte_alphabet(text, state.held)) state.held += text;
      push_bytes(stage, false, out);
      return;
    case DecoderStage::kByteFallback:
      if (const int byte = byte_of_token(text); byte >= 0) {
        state.held += static_cast<char>(byte);
        return;
      }
      end_byte_run(stage, out);
      return feed(stage + 1, text, out);
    case DecoderStage::kMetaspace:
      return feed(stage + 1, replace_all(text, spec.from, first ? "" : " "), out);
    case DecoderStage::kWordPiece:
      return feed(stage + 1, word_piece(spec, text, first), out);
    case DecoderStage::kBpeSuffix:
      return bpe_suffix(stage, text, out);
    case DecoderStage::kCtc: {
      if (!first && state.held == text) return;
      state.held = text;
      const std::string piece = ctc_piece(spec, text);
      return piece.empty() ? void() : feed(stage + 1, piece, out);
    }
    case DecoderStage::kSentencePiece:
      return sentence_piece(stage, text, out);
    case DecoderStage::kSpaces:
      if (!first) out += ' ';
      return feed(stage + 1, text, out);
  }
}

// Passes the held text of a stage to the next stage.
void Detokenizer::end(std::size_t stage, bool drops_unfinished, std::string& out) {
  const DecoderStage& spec = decoder_->stages()[stage];
  std::string& bytes = states_[stage].held;
  const bool holds_bytes = spec.kind == DecoderStage::kByteFallback ||
                           spec.kind == DecoderStage::kByteLevel ||
                           spec.kind == DecoderStage::kSentencePiece;
  if (drops_unfinished && holds_bytes) bytes.resize(bytes.size() - unfinished_bytes(bytes));
  const std::string held = bytes;
  switch (spec.kind) {
    case DecoderStage::kByteFallback:
      return end_byte_run(stage, out);
    case DecoderStage::kByteLevel:
      return feed(stage + 1, to_valid_utf8(held), out);
    case DecoderStage::kReplace:
      return feed(stage + 1, held, out);
    case DecoderStage::kBpeSuffix:
      return feed(stage + 1, replace_all(held, spec.from, ""), out);
    case DecoderStage::kStrip: {  // the end of the text, with at most `stop` repetitions more than
                                  // were kept
      const std::size_t kept =
          held.size() -
          std::min(held.size(), spec.from.size() * static_cast<std::size_t>(spec.stop));
      return feed(stage + 1, Text(held).substr(0, kept), out);
    }
    case DecoderStage::kSentencePiece:
      for (std::size_t i = 0; i < held.size(); ++i) feed(stage + 1, kReplacementCharacter, out);
      return;
    default:
      return;
  }
}

// Writes the whole characters at the start of the held bytes. A bad sequence becomes one U+FFFD, or
// one per byte.
bool Detokenizer::push_bytes(std::size_t stage, bool one_by_one, std::string& out) {
  std::string held = std::move(states_[stage].held);
  std::string text;
  Text rest = held;
  while (!rest.empty()) {
    const Utf8Step step = next_utf8(rest);
    if (step.kind == Utf8Step::kIncomplete) break;
    const bool good = step.kind == Utf8Step::kCharacter;
    const auto size = static_cast<std::size_t>(good || !one_by_one ? step.size : 1);
    text.append(good ? rest.substr(0, size) : kReplacementCharacter);
    rest.remove_prefix(size);
  }
  states_[stage].held.assign(rest);
  if (!text.empty()) feed(stage + 1, text, out);
  return !text.empty();
}

void Detokenizer::end_byte_run(std::size_t stage, std::string& out) {
  const std::string run = std::move(states_[stage].held);
  states_[stage].held.clear();
  if (run.empty()) return;
  if (is_valid_utf8(run)) return feed(stage + 1, run, out);
  for (std::size_t i = 0; i < run.size(); ++i) feed(stage + 1, kReplacementCharacter, out);
}

void Detokenizer::replace_on_text(std::size_t stage, Text text, std::string& out) {
  const DecoderStage& spec = decoder_->stages()[stage];
  const std::string all = std::move(states_[stage].held).append(text);
  std::string done;
  Text rest = all;
  for (std::size_t at; (at = rest.find(spec.from)) != Text::npos;) {
    done.append(rest.substr(0, at)).append(spec.to);
    rest.remove_prefix(at + spec.from.size());
  }
  const std::size_t held = partial_match(rest, spec.from);
  done.append(rest.substr(0, rest.size() - held));
  states_[stage].held.assign(rest.substr(rest.size() - held));
  if (!done.empty()) feed(stage + 1, done, out);
}

void Detokenizer::strip_on_text(std::size_t stage, Text text, std::string& out) {
  const DecoderStage& spec = decoder_->stages()[stage];
  State& state = states_[stage];
  while (!state.past_start && !text.empty()) {
    state.past_start = state.stripped >= spec.start || !text.starts_with(spec.from);
    if (state.past_start) break;
    text.remove_prefix(spec.from.size());
    ++state.stripped;
  }
  if (spec.stop == 0) return text.empty() ? void() : feed(stage + 1, text, out);
  // The last repetitions of `from` may be the end of the text.
  const std::string all = std::move(state.held).append(text);
  std::size_t end = all.size();
  for (int i = 0; i < spec.stop && Text(all).substr(0, end).ends_with(spec.from); ++i)
    end -= spec.from.size();
  state.held.assign(all, end);
  if (end > 0) feed(stage + 1, Text(all).substr(0, end), out);
}

// Holds a token from its suffix on, because only the next token shows whether it is the last.
void Detokenizer::bpe_suffix(std::size_t stage, Text text, std::string& out) {
  const DecoderStage& spec = decoder_->stages()[stage];
  std::string done = replace_all(states_[stage].held, spec.from, " ");
  const std::size_t suffix = std::min(text.find(spec.from), text.size());
  done.append(text.substr(0, suffix));
  states_[stage].held.assign(text.substr(suffix));
  if (!done.empty()) feed(stage + 1, done, out);
}

void Detokenizer::sentence_piece(std::size_t stage, Text text, std::string& out) {
  const DecoderStage& spec = decoder_->stages()[stage];
  State& state = states_[stage];
  if (const int byte = spec.byte_fallback ? byte_of_token(text) : -1; byte >= 0) {
    state.held += static_cast<char>(byte);
    if (push_bytes(stage, true, out)) state.past_start = true;
    return;
  }
  if (state.space_seen || !state.held.empty()) state.past_start = true;
  for (std::size_t i = state.held.size(); i > 0; --i) feed(stage + 1, kReplacementCharacter, out);
  state.held.clear();
  if (!state.past_start && spec.strips_first && text.starts_with(kSpaceSymbol)) {
    text.remove_prefix(kSpaceSymbol.size());
    state.space_seen = !spec.strips_every;
  }
  if (!text.empty()) state.past_start = true;
  feed(stage + 1, replace_all(text, kSpaceSymbol, " "), out);
}

}  // namespace sluice
