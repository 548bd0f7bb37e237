// The `model` of a tokenizer.json.
#include <algorithm>

#include "text/tokenizer/files/tokenizer_json_steps.h"
#include "text/tokenizer/tokenizer_parts.h"

namespace sluice {
namespace {

void read_vocab(const JsonField& model, std::string_view what, TokenTable& vocab) {
  const JsonField field = model.at("vocab");
  std::size_t tokens = 0;
  std::size_t bytes = 0;
  for (const auto [text, id] : field.object()) {
    ++tokens;
    bytes += text.size();
  }
  require(tokens > 0, "{} is empty", field.path());
  vocab.reserve(tokens, bytes);
  const std::string where = fmt::format("{}: model.vocab", what);
  const std::int64_t most = largest_id(tokens);
  for (const auto [text, id] : field.object()) {
    std::int64_t number = 0;
    require(id.get(number) == simdjson::SUCCESS, "{}: the id of token \"{}\" must be an integer",
            where, text);
    require(number <= most || number > TokenTable::kMaxId,
            "{}: of {} tokens one, \"{}\", has id {}; at most {} is allowed", where, tokens, text,
            number, most);
    vocab.add(text, number, where);
  }
}

void read_merges(const JsonField& model, std::string_view what, BpeModel& bpe) {
  const simdjson::dom::array merges = model.at("merges").array();
  bpe.reserve_merges(merges.size());
  for (const simdjson::dom::element merge : merges) {
    std::string_view left, right;
    if (simdjson::dom::array pair; merge.get(pair) == simdjson::SUCCESS) {
      require(pair.size() == 2 && pair.at(0).get(left) == simdjson::SUCCESS &&
                  pair.at(1).get(right) == simdjson::SUCCESS,
              "{}: model.merges[{}] must be a pair of strings", what, bpe.num_merges());
    } else {
      std::string_view text;
      require(merge.get(text) == simdjson::SUCCESS,
              "{}: model.merges[{}] must be a string or a pair of strings", what, bpe.num_merges());
      const std::size_t space = text.find(' ');
      require(
          space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos,
          "{}: model.merges[{}] = \"{}\" must be two tokens with one space between", what,
          bpe.num_merges(), text);
      left = text.substr(0, space);
      right = text.substr(space + 1);
    }
    bpe.add_merge(left, right, what);
  }
}

// With byte_fallback every token that looks like a byte must be one, in the reference's spelling.
void check_byte_tokens(const TokenTable& vocab, std::string_view what) {
  for (std::int32_t id = 0; id < vocab.size(); ++id) {
    const std::string_view text = vocab.text(id);
    if (!text.starts_with("<0x") || !text.ends_with(">")) continue;
    const std::string_view digits = text.substr(3, text.size() - 4);
    const bool good = digits.size() == 2 && std::all_of(digits.begin(), digits.end(), [](char c) {
                        return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F');
                      });
    require(
        good,
        "{}: model.vocab: \"{}\" is no byte token; with byte_fallback these are <0x00> to <0xFF>",
        what, text);
  }
}

void read_bpe(const JsonField& model, std::string_view what, TokenizerParts& parts) {
  if (const auto dropout = model.find("dropout"))
    require(dropout->number() == 0.0,
            "{}: model.dropout must be null or 0: tokens must not be random", what);
  read_vocab(model, what, parts.vocab);
  BpeOptions options;
  options.unk_token = model.text_or("unk_token", "");
  options.continuing_subword_prefix = model.text_or("continuing_subword_prefix", "");
  options.end_of_word_suffix = model.text_or("end_of_word_suffix", "");
  options.fuse_unk = model.flag("fuse_unk", false);
  options.byte_fallback = model.flag("byte_fallback", false);
  options.ignore_merges = model.flag("ignore_merges", false);
  if (options.byte_fallback) check_byte_tokens(parts.vocab, what);
  parts.bpe = std::make_unique<BpeModel>(parts.vocab, std::move(options), what);
  read_merges(model, what, *parts.bpe);
  parts.bpe->seal();
}

// "vocab": [["token", score], ...], where the index is the id.
void read_unigram(const JsonField& model, std::string_view what, TokenizerParts& parts) {
  const simdjson::dom::array rows = model.at("vocab").array();
  const std::string where = fmt::format("{}: model.vocab", what);
  std::vector<UnigramPiece> pieces;
  pieces.reserve(rows.size());
  parts.vocab.reserve(rows.size(), 16 * rows.size());
  for (const simdjson::dom::element element : rows) {
    simdjson::dom::array row;
    std::string_view text;
    double score = 0;
    if (element.get(row) != simdjson::SUCCESS || row.size() != 2 ||
        row.at(0).get(text) != simdjson::SUCCESS || row.at(1).get(score) != simdjson::SUCCESS)
      fail(ErrorKind::kBadInput, "{}[{}] must be a token and its score", where, pieces.size());
    UnigramPiece& piece = pieces.emplace_back();
    piece.id =
        static_cast<std::int32_t>(std::min<std::size_t>(pieces.size() - 1, TokenTable::kMaxId));
    piece.score = score;
    // The library's trainer writes files with a piece twice.
    parts.vocab.add(text, static_cast<std::int64_t>(pieces.size()) - 1, where, /*last_wins=*/true);
  }
  for (UnigramPiece& piece : pieces)
    piece.usable = parts.vocab.find(parts.vocab.text(piece.id)) == piece.id;
  UnigramOptions options;
  options.byte_fallback = model.flag("byte_fallback", false);
  if (options.byte_fallback) check_byte_tokens(parts.vocab, what);
  if (const auto unk = model.find("unk_id")) {
    const std::int64_t id = unk->integer();
    require(id >= 0 && id < parts.vocab.size(),
            "{}: model.unk_id is {}, which is no token: ids go from 0 to {}", what, id,
            parts.vocab.size() - 1);
    options.unk_id = static_cast<std::int32_t>(id);
  }
  parts.unigram = std::make_unique<UnigramModel>(parts.vocab, pieces, options, what);
}

void read_wordpiece(const JsonField& model, std::string_view what, bool whole_words,
                    TokenizerParts& parts) {
  read_vocab(model, what, parts.vocab);
  WordPieceOptions options;
  options.whole_words = whole_words;
  options.unk_token = model.text_or("unk_token", whole_words ? "<unk>" : "[UNK]");
  if (!whole_words) {
    options.continuing_subword_prefix = model.text_or("continuing_subword_prefix", "##");
    if (const auto most = model.find("max_input_chars_per_word")) {
      require(most->integer() >= 0, "{} must not be negative", most->path());
      options.max_input_chars_per_word = static_cast<std::size_t>(most->integer());
    }
  }
  parts.wordpiece = std::make_unique<WordPieceModel>(parts.vocab, std::move(options), what);
}

// Older files lack the type.
std::string type_of(const JsonField& model) {
  if (model.find("type")) return std::string(model.at("type").text());
  if (model.find("merges")) return "BPE";
  if (const auto vocab = model.find("vocab"); vocab && vocab->is_array()) return "Unigram";
  return model.find("continuing_subword_prefix") || model.find("max_input_chars_per_word")
             ? "WordPiece"
             : "WordLevel";
}

}  // namespace

void read_model(const JsonField& root, std::string_view what, TokenizerParts& parts) {
  const JsonField model = root.at("model");
  const std::string type = type_of(model);
  if (type == "BPE")
    read_bpe(model, what, parts);
  else if (type == "Unigram")
    read_unigram(model, what, parts);
  else if (type == "WordPiece" || type == "WordLevel")
    read_wordpiece(model, what, type == "WordLevel", parts);
  else
    fail(ErrorKind::kBadInput,
         "{}: model.type \"{}\" is not supported; supported are BPE, Unigram, WordPiece, WordLevel",
         what, type);
}

}  // namespace sluice
