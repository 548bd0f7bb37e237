// A tokenizer.model -> TokenizerParts.
#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/tokenizer/files/sentencepiece_model.h"
#include "text/tokenizer/files/tokenizer_files.h"
#include "text/unicode.h"

namespace sluice {
namespace {

using Piece = SentencePieceModel::Piece;

// The end tokens that a class of transformers adds unless the file overrides them.
struct EndRule {
  std::string_view tokenizer_class;
  bool bos, eos;
};
constexpr EndRule kEndRules[] = {
    {"T5Tokenizer", false, true},
    {"T5TokenizerFast", false, true},
    {"MT5Tokenizer", false, true},
    {"PegasusTokenizer", false, true},
    {"XLNetTokenizer", false, false},
    {"XLMRobertaTokenizer", true, true},
    {"", true, false},
};

bool is_in_trie(const Piece& piece) {
  return piece.type == SentencePieceModel::kNormal ||
         piece.type == SentencePieceModel::kUserDefined ||
         piece.type == SentencePieceModel::kUnused;
}

void check_ids(const SentencePieceModel& model, const TokenTable& vocab, std::string_view what) {
  const auto num_pieces = static_cast<std::int32_t>(model.pieces.size());
  require(model.unk_id >= 0 && model.unk_id < num_pieces,
          "{}: trainer_spec.unk_id is {}; there are {} pieces", what, model.unk_id, num_pieces);
  for (const auto& [name, id] :
       {std::pair("bos_id", model.bos_id), std::pair("eos_id", model.eos_id),
        std::pair("pad_id", model.pad_id)})
    require(id < num_pieces, "{}: trainer_spec.{} is {}; there are {} pieces", what, name, id,
            num_pieces);
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    if (piece.type != SentencePieceModel::kByte) continue;
    require(model.byte_fallback,
            "{}: pieces[{}] is a byte, but trainer_spec.byte_fallback is not set", what, id);
  }
  for (int byte = 0; byte < 256 && model.byte_fallback; ++byte) {
    const auto id = vocab.find(fmt::format("<0x{:02X}>", byte));
    require(id && model.pieces[static_cast<std::size_t>(*id)].type == SentencePieceModel::kByte,
            "{}: with byte_fallback there must be a byte piece <0x{:02X}>", what, byte);
  }
}

// Adds every way to merge two pieces, or characters, into a piece; the higher score has priority
// (bpe_model.cc).
void add_merges(const SentencePieceModel& model, std::string_view what, TokenizerParts& parts) {
  std::vector<float> scores;
  for (const Piece& piece : model.pieces)
    if (is_in_trie(piece)) scores.push_back(piece.score);
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  const auto half = [&](std::string_view text) -> std::int32_t {
    const auto id = parts.vocab.find(text);
    if (!id) return -1;
    const bool one =
        text.size() == static_cast<std::size_t>(utf8_length(static_cast<unsigned char>(text[0])));
    return one || is_in_trie(model.pieces[static_cast<std::size_t>(*id)]) ? *id : -1;
  };
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    if (!is_in_trie(piece)) continue;
    const auto rank =
        std::lower_bound(scores.begin(), scores.end(), piece.score, std::greater<>()) -
        scores.begin();
    const std::string_view text = piece.text;
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      if ((static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) continue;
      const std::int32_t left = half(text.substr(0, cut));
      const std::int32_t right = left < 0 ? -1 : half(text.substr(cut));
      if (right >= 0)
        parts.bpe->add_ranked_merge(left, right, static_cast<std::int32_t>(rank),
                                    static_cast<std::int32_t>(id), what);
    }
    if (piece.type == SentencePieceModel::kUserDefined)
      parts.bpe->set_whole(static_cast<std::int32_t>(id));
    if (piece.type == SentencePieceModel::kUnused)
      parts.bpe->set_unused(static_cast<std::int32_t>(id));
  }
}

TokenTrie user_defined_trie(const SentencePieceModel& model) {
  std::vector<TokenTrie::Key> keys;
  for (std::size_t id = 0; id < model.pieces.size(); ++id)
    if (model.pieces[id].type == SentencePieceModel::kUserDefined)
      keys.emplace_back(model.pieces[id].text, static_cast<std::int32_t>(id));
  return TokenTrie(std::move(keys));
}

void build_bpe(const SentencePieceModel& model, std::string_view what, TokenizerParts& parts) {
  BpeOptions options;
  options.unk_token = model.pieces[static_cast<std::size_t>(model.unk_id)].text;
  options.fuse_unk = true;
  options.byte_fallback = model.byte_fallback;
  parts.bpe = std::make_unique<BpeModel>(parts.vocab, std::move(options), what);
  if (model.model_type == SentencePieceModel::kBpe) add_merges(model, what, parts);
  parts.bpe->seal();
  auto symbols = std::make_shared<TokenTrie>(user_defined_trie(model));
  if (symbols->empty()) return;
  PreTokenizerStep step;
  step.kind = PreTokenizerStep::kSplitTokens;
  step.tokens = std::move(symbols);
  parts.pre_tokenizer = PreTokenizer({std::move(step)});
}

void build_unigram(const SentencePieceModel& model, std::string_view what, TokenizerParts& parts) {
  std::vector<UnigramPiece> pieces;
  pieces.reserve(model.pieces.size());
  for (const Piece& piece : model.pieces) {
    UnigramPiece& row = pieces.emplace_back();
    row.id = static_cast<std::int32_t>(pieces.size()) - 1;
    row.score = static_cast<double>(piece.score);
    row.normal = piece.type == SentencePieceModel::kNormal;
    row.user_defined = piece.type == SentencePieceModel::kUserDefined;
    row.usable = row.normal || row.user_defined;
  }
  UnigramOptions options;
  options.unk_id = model.unk_id;
  options.byte_fallback = model.byte_fallback;
  options.single_precision = true;
  parts.unigram = std::make_unique<UnigramModel>(parts.vocab, pieces, options, what);
}

Normalizer normalizer_of(const SentencePieceModel& model, bool legacy, std::string_view what) {
  SentencePieceNormalizerOptions options;
  options.dummy_prefix = !model.add_dummy_prefix ? SentencePieceNormalizerOptions::kNever
                         : legacy                ? SentencePieceNormalizerOptions::kAlways
                                                 : SentencePieceNormalizerOptions::kAtStart;
  options.remove_extra_whitespaces = model.remove_extra_whitespaces;
  options.escape_whitespaces = model.escape_whitespaces;
  options.treat_whitespace_as_suffix = model.treat_whitespace_as_suffix;
  std::optional<Charsmap> charsmap;
  if (!model.precompiled_charsmap.empty())
    charsmap.emplace(model.precompiled_charsmap, fmt::format("{}: normalizer_spec", what));
  NormalizerStep step;
  step.kind = NormalizerStep::kSentencePiece;
  step.sentencepiece = std::make_shared<SentencePieceNormalizer>(options, std::move(charsmap),
                                                                 user_defined_trie(model));
  return Normalizer({std::move(step)});
}

// Control pieces and unk are special tokens, found in a text unless that is switched off.
void add_special_pieces(const SentencePieceModel& model, TokenizerParts& parts) {
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    if (piece.type != SentencePieceModel::kControl && static_cast<std::int32_t>(id) != model.unk_id)
      continue;
    AddedToken token;
    token.id = static_cast<std::int32_t>(id);
    token.content = piece.text;
    token.special = true;
    parts.added_ids[token.content] = token.id;
    parts.added[token.id] = std::move(token);
  }
}

void add_ends(const SentencePieceModel& model, const TokenizerSideFiles& side,
              std::string_view what, TokenizerParts& parts) {
  const std::string name = side.config.value("tokenizer_class", Json()).is_string()
                               ? side.config["tokenizer_class"].get<std::string>()
                               : std::string();
  const auto* rule = std::find_if(std::begin(kEndRules), std::end(kEndRules) - 1,
                                  [&](const EndRule& r) { return r.tokenizer_class == name; });
  const auto end = [&](const char* key, std::int32_t id, std::string& text,
                       std::optional<std::int32_t>& place) {
    text = token_text_of(side.config, key, what);
    if (text.empty()) text = token_text_of(side.special_tokens, key, what);
    if (text.empty() && id >= 0) text = model.pieces[static_cast<std::size_t>(id)].text;
    if (text.empty()) return;
    const auto added = parts.added_ids.find(text);
    place = added != parts.added_ids.end() ? std::optional(added->second) : parts.vocab.find(text);
  };
  end("bos_token", model.bos_id, parts.bos_token, parts.bos_id);
  end("eos_token", model.eos_id, parts.eos_token, parts.eos_id);
  if (parts.bos_id && flag_of(side.config, "add_bos_token", rule->bos))
    parts.prefix_ids.push_back(*parts.bos_id);
  if (parts.eos_id && flag_of(side.config, "add_eos_token", rule->eos))
    parts.suffix_ids.push_back(*parts.eos_id);
}

// The model with the ids of fairseq.
SentencePieceModel in_fairseq_order(SentencePieceModel model, std::string_view what) {
  std::vector<Piece> pieces = std::move(model.pieces);
  require(pieces.size() > 3 && model.unk_id == 0 &&
              pieces[1].type == SentencePieceModel::kControl &&
              pieces[2].type == SentencePieceModel::kControl,
          "{}: the first three pieces must be <unk>, <s> and </s>, from which fairseq's ids are "
          "counted",
          what);
  Piece unknown = pieces[0];
  unknown.text = "<unk>";
  model.pieces = {{"<s>", 0, SentencePieceModel::kControl},
                  {"<pad>", 0, SentencePieceModel::kControl},
                  {"</s>", 0, SentencePieceModel::kControl},
                  std::move(unknown)};
  model.pieces.insert(model.pieces.end(), std::make_move_iterator(pieces.begin() + 3),
                      std::make_move_iterator(pieces.end()));
  model.pieces.push_back({"<mask>", 0, SentencePieceModel::kControl});
  model.bos_id = 0;
  model.pad_id = 1;
  model.eos_id = 2;
  model.unk_id = 3;
  return model;
}

std::unique_ptr<TokenizerParts> parts_of(const SentencePieceModel& model, std::string_view what,
                                         const TokenizerSideFiles& side) {
  require(model.model_type != SentencePieceModel::kWord,
          "{}: trainer_spec.model_type is 3 (words), which is not supported; supported are "
          "unigram, BPE and char",
          what);
  auto parts = std::make_unique<TokenizerParts>();
  std::size_t total = 0;
  for (const Piece& piece : model.pieces) total += piece.text.size();
  parts->vocab.reserve(model.pieces.size(), total);
  for (std::size_t id = 0; id < model.pieces.size(); ++id)
    parts->vocab.add(model.pieces[id].text, static_cast<std::int64_t>(id), what);
  check_ids(model, parts->vocab, what);
  if (model.model_type == SentencePieceModel::kUnigram)
    build_unigram(model, what, *parts);
  else
    build_bpe(model, what, *parts);
  parts->normalizer = normalizer_of(model, flag_of(side.config, "legacy", false), what);

  DecoderStage stage;
  stage.kind = DecoderStage::kSentencePiece;
  stage.byte_fallback = model.byte_fallback;
  stage.strips_first = model.add_dummy_prefix || model.remove_extra_whitespaces;
  stage.strips_every = model.remove_extra_whitespaces;
  parts->decoder = std::make_unique<TokenDecoder>(std::vector<DecoderStage>{stage});
  add_special_pieces(model, *parts);
  add_side_tokens(side, what, *parts);
  place_added_tokens(what, *parts);
  parts->decoder->add(model.unk_id, model.unk_surface, true);
  add_ends(model, side, what, *parts);
  return parts;
}

}  // namespace

std::unique_ptr<TokenizerParts> sentencepiece_parts(std::string_view bytes, std::string_view what,
                                                    const TokenizerSideFiles& side) {
  return parts_of(parse_sentencepiece(bytes, what), what, side);
}

std::unique_ptr<TokenizerParts> fairseq_parts(std::string_view bytes, std::string_view what,
                                              const TokenizerSideFiles& side) {
  TokenizerSideFiles known = side;
  std::string name = token_text_of(side.config, "tokenizer_class", what);
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  require(
      name == "XLMRobertaTokenizer" ||
          (name.empty() && (side.model_type.empty() || side.model_type.starts_with("xlm-roberta"))),
      "{}: the ids of {} in such a file are not known; supported is XLMRobertaTokenizer. Convert "
      "it to tokenizer.json",
      what, name.empty() ? side.model_type : name);
  known.config["tokenizer_class"] = "XLMRobertaTokenizer";
  return parts_of(in_fairseq_order(parse_sentencepiece(bytes, what), what), what, known);
}

}  // namespace sluice
