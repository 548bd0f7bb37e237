// The `decoder` of a tokenizer.json.
#include <algorithm>

#include "text/text_growth.h"
#include "text/tokenizer/files/tokenizer_json_steps.h"

namespace sluice {
namespace {

constexpr std::int64_t kMaxStripped = 1024;

class DecoderReader {
 public:
  void add(const JsonField& field, int depth) {
    const std::string type(field.at("type").text());
    if (type == "Sequence") {
      require(depth < kMaxStepDepth, "{}: nested deeper than {} levels", field.path(),
              kMaxStepDepth);
      for (const JsonField& item : field.at("decoders").items()) add(item, depth + 1);
    } else if (type == "Fuse") {
      joined_ = kText;
    } else if (type == "Replace") {
      add_replace(field, type);
    } else if (type == "Strip") {
      add_strip(field, type);
    } else if (type == "ByteFallback") {
      push(field, type, DecoderStage::kByteFallback);
    } else if (type == "ByteLevel") {
      push(field, type, DecoderStage::kByteLevel);
      joined_ = kText;
    } else if (type == "Metaspace") {
      const bool never =
          field.text_or("prepend_scheme",
                        field.flag("add_prefix_space", true) ? "always" : "never") == "never";
      DecoderStage& stage =
          push(field, type, never ? DecoderStage::kReplace : DecoderStage::kMetaspace);
      stage.from = needed(field.at("replacement"));
      stage.to = " ";
    } else if (type == "WordPiece") {
      DecoderStage& stage = push(field, type, DecoderStage::kWordPiece);
      stage.from = field.text_or("prefix", "##");
      stage.cleanup = field.flag("cleanup", true);
    } else if (type == "BPEDecoder") {
      DecoderStage& stage = push(field, type, DecoderStage::kBpeSuffix);
      stage.from = needed(field.at("suffix"));
      joined_ = kParts;
    } else if (type == "CTC") {
      DecoderStage& stage = push(field, type, DecoderStage::kCtc);
      stage.from = field.text_or("pad_token", "<pad>");
      stage.to = field.text_or("word_delimiter_token", "|");
      stage.cleanup = field.flag("cleanup", true);
    } else {
      fail(ErrorKind::kBadInput,
           "{}.type \"{}\" is not supported; supported are ByteLevel, Replace, ByteFallback, Fuse, "
           "Strip, Metaspace, "
           "WordPiece, BPEDecoder, CTC, Sequence",
           field.path(), type);
    }
  }

  std::vector<DecoderStage> take() { return std::move(stages_); }

 private:
  // The input of the next decoder: tokens, their merged text, or (after BPEDecoder) parts of
  // tokens.
  enum Joined { kTokens, kParts, kText };

  DecoderStage& push(const JsonField& field, const std::string& type, DecoderStage::Kind kind,
                     bool on_text = false) {
    require(stages_.size() < kMaxTokenizerSteps, "{}: more than {} decoders one after another",
            field.path(), kMaxTokenizerSteps);
    require(joined_ == kTokens || (joined_ == kText && on_text),
            "{}: a {} decoder in this form or place is not supported", field.path(), type);
    DecoderStage& stage = stages_.emplace_back();
    stage.kind = kind;
    stage.on_text = joined_ == kText;
    return stage;
  }

  static std::string needed(const JsonField& field) {
    require(!field.text().empty(), "{} is empty", field.path());
    return std::string(field.text());
  }

  void add_replace(const JsonField& field, const std::string& type) {
    const JsonField pattern = field.at("pattern");
    const auto regex = pattern.is_string() ? std::nullopt : pattern.find("Regex");
    DecoderStage& stage = push(field, type, DecoderStage::kReplace, !regex);
    stage.to = field.at("content").text();
    if (regex) {
      require(++num_patterns_ <= kMaxTokenizerPatterns, "{}: more than {} regular expressions",
              regex->path(), kMaxTokenizerPatterns);
      stage.regex = std::make_shared<SplitRegex>(regex->text(), regex->path());
    } else {
      stage.from = needed(pattern.is_string() ? pattern : pattern.at("String"));
    }
    // A regular expression may match the empty text.
    growth_ *= regex ? 1 + stage.to.size()
                     : std::max<std::size_t>(
                           1, (stage.to.size() + stage.from.size() - 1) / stage.from.size());
    require(growth_ <= kMaxTextGrowth,
            "{}: with this Replace the decoder may make a text more than {} times as long",
            field.path(), kMaxTextGrowth);
  }

  void add_strip(const JsonField& field, const std::string& type) {
    DecoderStage& stage = push(field, type, DecoderStage::kStrip, true);
    stage.from = needed(field.at("content"));
    const auto count = [&](const char* key) {
      const std::int64_t value = field.at(key).integer();
      require(value >= 0 && value <= kMaxStripped, "{}.{} is {}; allowed are 0 to {}", field.path(),
              key, value, kMaxStripped);
      return static_cast<int>(value);
    };
    stage.start = count("start");
    stage.stop = count("stop");
  }

  std::vector<DecoderStage> stages_;
  Joined joined_ = kTokens;
  std::size_t growth_ = 1;  // the factor by which the Replace stages may lengthen a text
  std::size_t num_patterns_ = 0;
};

}  // namespace

std::vector<DecoderStage> read_decoder(const std::optional<JsonField>& field) {
  DecoderReader reader;
  if (!field) return {DecoderStage{}};  // spaces between tokens
  reader.add(*field, 0);
  return reader.take();
}

}  // namespace sluice
