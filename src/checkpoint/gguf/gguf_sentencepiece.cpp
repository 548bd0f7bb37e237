#include "checkpoint/gguf/gguf_sentencepiece.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "checkpoint/gguf/gguf_tokens.h"

namespace sluice {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

// tokenizer.ggml.token_type and the type of a piece have the same numbers.
enum PieceType : std::int64_t {
  kNormal = 1,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// llama.cpp's defaults for missing keys; -1: no such token.
struct Defaults {
  std::int64_t bos, eos, unk;
  bool adds_bos, adds_eos, adds_space;
};
constexpr Defaults kLlama = {1, 2, 0, true, false, true};
constexpr Defaults kT5 = {-1, 1, 2, false, true, false};

// Fields of a protobuf message.
class Message {
 public:
  Message& number(std::uint32_t field, std::int64_t value) {
    varint(field << 3);
    varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  Message& bytes(std::uint32_t field, std::string_view value) {
    varint(field << 3 | 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& real(std::uint32_t field, float value) {
    varint(field << 3 | 5);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes_ += static_cast<char>(bits >> shift);
    return *this;
  }
  const std::string& text() const { return bytes_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

class Writer {
 public:
  Writer(const GgufFile& file, bool unigram, const std::vector<std::string_view>& tokens,
         const std::vector<std::int64_t>& types)
      : file_(file),
        unigram_(unigram),
        defaults_(unigram ? kT5 : kLlama),
        tokens_(tokens),
        types_(types) {}

  GgufSentencePiece run() {
    GgufSentencePiece out;
    write_pieces(out.model);
    Message model;
    model.bytes(2, trainer().text()).bytes(3, normalizer().text());
    out.model += model.text();
    write_config(out.tokenizer_config);
    return out;
  }

 private:
  static std::string key(std::string_view name) { return std::string(kPrefix) + std::string(name); }

  void write_pieces(std::string& out) const {
    const auto scores = file_.find_numbers(key("scores"));
    require(scores.has_value() && scores->size() == tokens_.size(),
            "{}: {} has {} entries; there must be one for each of the {} tokens", file_.name(),
            key("scores"), scores ? scores->size() : 0, tokens_.size());
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      // Texts that are cut out before the model sees them are not pieces of it. Neither is a token
      // without a text.
      const bool unused = types_[i] == kUserDefined || tokens_[i].empty();
      Message piece;
      piece.bytes(1, tokens_[i].empty() ? fmt::format("[EMPTY_{}]", i) : std::string(tokens_[i]));
      piece.real(2, static_cast<float>((*scores)[i]))
          .number(3, unused ? static_cast<std::int64_t>(kUnused) : types_[i]);
      Message entry;
      entry.bytes(1, piece.text());
      out += entry.text();
    }
  }

  std::int64_t id_of(std::string_view name, std::int64_t otherwise) const {
    const auto count = static_cast<std::int64_t>(tokens_.size());
    const std::int64_t id = gguf_token_id(file_, name, count).value_or(otherwise);
    return id < count ? id : -1;
  }

  Message trainer() const {
    Message spec;
    spec.number(3, unigram_ ? 1 : 2);
    spec.number(35, std::ranges::find(types_, static_cast<std::int64_t>(kByte)) != types_.end());
    spec.number(40, std::max<std::int64_t>(0, id_of("unknown_token_id", defaults_.unk)));
    spec.number(41, id_of("bos_token_id", defaults_.bos))
        .number(42, id_of("eos_token_id", defaults_.eos));
    return spec.number(43, id_of("padding_token_id", -1));
  }

  Message normalizer() const {
    Message spec;
    if (const auto map = file_.find_integers(key("precompiled_charsmap"))) {
      std::string bytes;
      for (const std::int64_t byte : *map) bytes += static_cast<char>(byte);
      spec.bytes(2, bytes);
    }
    spec.number(3, file_.find_bool(key("add_space_prefix")).value_or(defaults_.adds_space));
    return spec.number(4, file_.find_bool(key("remove_extra_whitespaces")).value_or(false))
        .number(5, 1);
  }

  void write_config(Json& config) const {
    config = {
        {"legacy", true},
        {"add_bos_token", file_.find_bool(key("add_bos_token")).value_or(defaults_.adds_bos)},
        {"add_eos_token", file_.find_bool(key("add_eos_token")).value_or(defaults_.adds_eos)}};
    Json added = Json::object();
    for (std::size_t i = 0; i < tokens_.size(); ++i)
      if (types_[i] == kUserDefined && !tokens_[i].empty())
        added[std::to_string(i)] = {{"content", std::string(tokens_[i])}, {"special", false}};
    config["added_tokens_decoder"] = std::move(added);
  }

  const GgufFile& file_;
  const bool unigram_;
  const Defaults& defaults_;
  const std::vector<std::string_view>& tokens_;
  const std::vector<std::int64_t>& types_;
};

}  // namespace

GgufSentencePiece gguf_sentencepiece(const GgufFile& file, bool unigram,
                                     const std::vector<std::string_view>& tokens,
                                     const std::vector<std::int64_t>& types) {
  return Writer(file, unigram, tokens, types).run();
}

}  // namespace sluice
