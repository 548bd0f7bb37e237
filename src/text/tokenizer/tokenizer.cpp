#include "text/tokenizer/tokenizer.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer_parts.h"
#include "text/unicode.h"

namespace sluice {
namespace {

// One call of encode.
class Encoder {
 public:
  Encoder(const TokenizerParts& parts, bool skip_special, std::vector<std::int32_t>& ids)
      : parts_(parts), skip_special_(skip_special), ids_(ids) {}

  void run(std::string_view text) {
    for (const auto& part : parts_.raw_matcher.split(text, skip_special_)) {
      if (part.id >= 0)
        ids_.push_back(part.id);
      else
        normalize_and_split(text.substr(part.begin, part.end - part.begin), part.begin == 0);
    }
  }

  std::uint64_t work() const { return bpe_scratch_.heap_steps() + unigram_scratch_.steps; }

 private:
  void normalize_and_split(std::string_view text, bool at_start) {
    std::string normalized;
    if (!parts_.normalizer.empty()) {
      bool keeps_start = true;
      normalized = parts_.normalizer.apply(text, at_start, regex_scratch_, &keeps_start);
      text = normalized;
      at_start = at_start && keeps_start;
    }
    if (parts_.normalized_matcher.empty()) return tokenize(text, at_start);
    for (const auto& part : parts_.normalized_matcher.split(text, skip_special_)) {
      if (part.id >= 0)
        ids_.push_back(part.id);
      else
        tokenize(text.substr(part.begin, part.end - part.begin), at_start && part.begin == 0);
    }
  }

  void tokenize(std::string_view text, bool at_start) {
    parts_.pre_tokenizer.split(text, at_start, regex_scratch_, pieces_);
    const bool as_bytes = parts_.pre_tokenizer.ends_in_byte_alphabet();
    for (std::size_t i = 0; i < pieces_.spans.size(); ++i) encode_piece(pieces_[i], as_bytes);
  }

  void encode_piece(std::string_view piece, bool as_bytes) {
    if (parts_.bpe) return parts_.bpe->encode(piece, as_bytes, bpe_scratch_, ids_);
    if (parts_.unigram) return parts_.unigram->encode(piece, unigram_scratch_, ids_);
    parts_.wordpiece->encode(piece, ids_);
  }

  const TokenizerParts& parts_;
  bool skip_special_;
  std::vector<std::int32_t>& ids_;
  SplitRegex::Scratch regex_scratch_;
  BpeModel::Scratch bpe_scratch_;
  UnigramModel::Scratch unigram_scratch_;
  Pieces pieces_;
};

// See Tokenizer::max_bytes_per_token.
std::size_t bytes_per_token(const TokenizerParts& parts) {
  constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();
  const std::size_t shrink = parts.normalizer.max_shrink();
  if (shrink == 0 || !parts.bpe || parts.pre_tokenizer.drops_text() ||
      !parts.bpe->covers_everything(parts.pre_tokenizer.ends_in_byte_alphabet()))
    return kAny;
  for (const auto& [id, token] : parts.added)
    if (token.lstrip || token.rstrip) return kAny;
  return std::max<std::size_t>(1, parts.decoder->longest_bytes() * shrink);
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::from_json(std::string_view text, std::string_view what,
                                                const std::string& bos_token,
                                                const std::string& eos_token) {
  auto parts = parse_tokenizer_json(text, what);
  const auto id_of = [&](const std::string& token) -> std::optional<std::int32_t> {
    if (token.empty()) return std::nullopt;
    const auto added = parts->added_ids.find(token);
    return added != parts->added_ids.end() ? std::optional(added->second)
                                           : parts->vocab.find(token);
  };
  parts->bos_token = bos_token;
  parts->eos_token = eos_token;
  parts->bos_id = id_of(bos_token);
  parts->eos_id = id_of(eos_token);
  return std::make_unique<Tokenizer>(std::move(parts));
}

Tokenizer::Tokenizer(std::unique_ptr<TokenizerParts> parts) : parts_(std::move(parts)) {
  parts_->max_bytes_per_token = bytes_per_token(*parts_);
}
Tokenizer::~Tokenizer() = default;

std::vector<std::int32_t> Tokenizer::encode(std::string_view text,
                                            const EncodeOptions& options) const {
  std::vector<std::int32_t> ids;
  if (options.add_special_tokens) ids = parts_->prefix_ids;
  Encoder encoder(*parts_, !options.parse_special || parts_->split_special_tokens, ids);
  if (is_valid_utf8(text))
    encoder.run(text);
  else
    encoder.run(to_valid_utf8(text));
  if (options.add_special_tokens)
    ids.insert(ids.end(), parts_->suffix_ids.begin(), parts_->suffix_ids.end());
  return ids;
}

std::uint64_t Tokenizer::encode_work(std::string_view text) const {
  std::vector<std::int32_t> ids;
  Encoder encoder(*parts_, false, ids);
  encoder.run(to_valid_utf8(text));
  return encoder.work();
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const {
  Detokenizer detokenizer(*this, skip_special_tokens);
  std::string text;
  for (const std::int32_t id : ids) text += detokenizer.push(id);
  return text + detokenizer.finish();
}

std::string_view Tokenizer::token_bytes_view(std::int32_t id) const {
  return parts_->decoder->contains(id) ? parts_->decoder->token(id).bytes : std::string_view();
}

std::string Tokenizer::token_text(std::int32_t id) const {
  const auto added = parts_->added.find(id);
  return added != parts_->added.end() ? added->second.content : std::string(parts_->vocab.text(id));
}

std::optional<std::int32_t> Tokenizer::token_id(std::string_view token_text) const {
  const auto added = parts_->added_ids.find(std::string(token_text));
  return added != parts_->added_ids.end() ? std::optional(added->second)
                                          : parts_->vocab.find(token_text);
}

std::int32_t Tokenizer::size() const {
  return parts_->decoder->size();
}
std::int32_t Tokenizer::size_in_file() const {
  return parts_->size_in_file > 0 ? parts_->size_in_file : size();
}
const std::string& Tokenizer::eos_place() const {
  return parts_->eos_place;
}
bool Tokenizer::is_added_token(std::string_view token_text) const {
  return parts_->added_ids.contains(std::string(token_text));
}
bool Tokenizer::is_token(std::int32_t id) const {
  return parts_->decoder->contains(id);
}

bool Tokenizer::is_special(std::int32_t id) const {
  return parts_->decoder->contains(id) && parts_->decoder->token(id).is_special;
}

std::size_t Tokenizer::max_bytes_per_token() const {
  return parts_->max_bytes_per_token;
}
const std::string& Tokenizer::bos_token() const {
  return parts_->bos_token;
}
const std::string& Tokenizer::eos_token() const {
  return parts_->eos_token;
}
std::optional<std::int32_t> Tokenizer::bos_id() const {
  return parts_->bos_id;
}
std::optional<std::int32_t> Tokenizer::eos_id() const {
  return parts_->eos_id;
}
const TokenDecoder& Tokenizer::decoder() const {
  return *parts_->decoder;
}

}  // namespace sluice
