#include "text/tokenizer/files/tokenizer_json_steps.h"

#include <array>
#include <map>

#include "text/text_growth.h"
#include "text/tokenizer/base64.h"
#include "text/tokenizer/split_patterns.h"
#include "text/unicode.h"

namespace sluice {
namespace {

constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kBehaviors = {{
    {"Removed", SplitBehavior::kRemoved},
    {"Isolated", SplitBehavior::kIsolated},
    {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
    {"MergedWithNext", SplitBehavior::kMergedWithNext},
    {"Contiguous", SplitBehavior::kContiguous},
}};

constexpr std::array<std::pair<std::string_view, NormalForm>, 4> kForms = {{
    {"NFC", NormalForm::kNfc},
    {"NFD", NormalForm::kNfd},
    {"NFKC", NormalForm::kNfkc},
    {"NFKD", NormalForm::kNfkd},
}};

SplitBehavior read_behavior(const JsonField& field) {
  for (const auto& [name, behavior] : kBehaviors)
    if (field.text() == name) return behavior;
  fail(ErrorKind::kBadInput,
       "{} \"{}\" is not one of Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous",
       field.path(), field.text());
}

// {"String": s} or {"Regex": r}; a plain string is a literal, too.
struct Pattern {
  std::string literal;
  std::shared_ptr<const SplitRegex> regex;
};

// Compiled regular expressions by pattern. The probes of one take milliseconds, so a repeated
// pattern is compiled once.
class Patterns {
 public:
  std::shared_ptr<const SplitRegex> compile(std::string_view pattern, std::string_view path) {
    const auto known = compiled_.find(pattern);
    if (known != compiled_.end()) return known->second;
    require(compiled_.size() < kMaxTokenizerPatterns,
            "{}: more than {} different regular expressions", path, kMaxTokenizerPatterns);
    return compiled_.emplace(pattern, std::make_shared<SplitRegex>(pattern, path)).first->second;
  }

  Pattern read(const JsonField& field) {
    if (field.is_string()) return {std::string(field.text()), nullptr};
    if (const auto literal = field.find("String")) return {std::string(literal->text()), nullptr};
    const JsonField regex = field.at("Regex");
    return {"", compile(regex.text(), regex.path())};
  }

 private:
  std::map<std::string, std::shared_ptr<const SplitRegex>, std::less<>> compiled_;
};

void check_steps(std::size_t steps, const JsonField& field) {
  require(steps < kMaxTokenizerSteps, "{}: more than {} steps one after another", field.path(),
          kMaxTokenizerSteps);
}

std::string one_character(const JsonField& field) {
  const std::string_view text = field.text();
  int size = 0;
  require(!text.empty() && (decode_utf8(text, size), static_cast<std::size_t>(size) == text.size()),
          "{} must be one character", field.path());
  return std::string(text);
}

class NormalizerReader {
 public:
  void add(const JsonField& field, int depth) {
    const std::string_view type = field.at("type").text();
    check_steps(steps_.size(), field);
    NormalizerStep step;
    for (const auto& [name, form] : kForms) {
      if (type != name) continue;
      step.kind = NormalizerStep::kForm;
      step.form = form;
      steps_.push_back(std::move(step));
      return;
    }
    if (type == "Sequence") {
      require(depth < kMaxStepDepth, "{}: nested deeper than {} levels", field.path(),
              kMaxStepDepth);
      for (const JsonField& item : field.at("normalizers").items()) add(item, depth + 1);
      return;
    }
    if (type == "Lowercase") {
      step.kind = NormalizerStep::kLowercase;
    } else if (type == "Nmt") {
      step.kind = NormalizerStep::kNmt;
    } else if (type == "Precompiled") {
      const JsonField charsmap = field.at("precompiled_charsmap");
      const auto blob = decode_base64(charsmap.text());
      require(blob.has_value(), "{} is not base64", charsmap.path());
      if (blob->empty()) return;  // the reference also changes nothing then
      step.kind = NormalizerStep::kPrecompiled;
      step.charsmap = std::make_shared<Charsmap>(*blob, charsmap.path());
    } else if (type == "BertNormalizer") {
      return add_bert(field);
    } else if (type == "StripAccents") {
      step.kind = NormalizerStep::kStripAccents;
    } else if (type == "ByteLevel") {
      step.kind = NormalizerStep::kByteLevel;
    } else if (type == "Prepend") {
      step.kind = NormalizerStep::kPrepend;
      step.content = field.at("prepend").text();
    } else if (type == "Strip") {
      step.kind = NormalizerStep::kStrip;
      step.left = field.flag("strip_left", true);
      step.right = field.flag("strip_right", true);
    } else if (type == "Replace") {
      step.kind = NormalizerStep::kReplace;
      Pattern pattern = patterns_.read(field.at("pattern"));
      require(pattern.regex || !pattern.literal.empty(), "{}.pattern is empty", field.path());
      step.regex = std::move(pattern.regex);
      step.literal = std::move(pattern.literal);
      step.content = field.at("content").text();
    } else {
      fail(ErrorKind::kBadInput,
           "{}.type \"{}\" is not supported; supported are NFC, NFD, NFKC, NFKD, Lowercase, "
           "StripAccents, "
           "ByteLevel, Prepend, Strip, Replace, Precompiled, Nmt, BertNormalizer, Sequence",
           field.path(), type);
    }
    steps_.push_back(std::move(step));
  }

  Normalizer take() { return Normalizer(std::move(steps_)); }

 private:
  void push(NormalizerStep::Kind kind) { steps_.emplace_back().kind = kind; }

  void add_bert(const JsonField& field) {
    const bool lowercase = field.flag("lowercase", true);
    if (field.flag("clean_text", true)) push(NormalizerStep::kCleanText);
    if (field.flag("handle_chinese_chars", true)) push(NormalizerStep::kPadChinese);
    if (field.flag("strip_accents", lowercase)) {
      push(NormalizerStep::kForm);
      steps_.back().form = NormalForm::kNfd;
      push(NormalizerStep::kDropNonspacingMarks);
    }
    if (lowercase) push(NormalizerStep::kLowercase);
  }

  std::vector<NormalizerStep> steps_;
  Patterns patterns_;
};

class PreTokenizerReader {
 public:
  void add(const JsonField& field, int depth) {
    const std::string_view type = field.at("type").text();
    check_steps(steps_.size(), field);
    if (type == "Sequence") {
      require(depth < kMaxStepDepth, "{}: nested deeper than {} levels", field.path(),
              kMaxStepDepth);
      for (const JsonField& item : field.at("pretokenizers").items()) add(item, depth + 1);
    } else if (type == "ByteLevel") {
      if (field.flag("add_prefix_space", true)) push(PreTokenizerStep::kPrefixSpace);
      if (field.flag("use_regex", true))
        push_regex(split_patterns::kGpt2, field.path(), SplitBehavior::kIsolated);
      push(PreTokenizerStep::kByteAlphabet);
    } else if (type == "Split") {
      add_split(field);
    } else if (type == "Digits") {
      push_class(is_numeric, field.flag("individual_digits", false) ? SplitBehavior::kIsolated
                                                                    : SplitBehavior::kContiguous);
    } else if (type == "Punctuation") {
      const auto behavior = field.find("behavior");
      push_class(is_punctuation, behavior ? read_behavior(*behavior) : SplitBehavior::kIsolated);
    } else if (type == "WhitespaceSplit") {
      push_class(is_white_space, SplitBehavior::kRemoved);
    } else if (type == "BertPreTokenizer") {
      push_class(is_white_space, SplitBehavior::kRemoved);
      push_class(is_punctuation, SplitBehavior::kIsolated);
    } else if (type == "CharDelimiterSplit") {
      PreTokenizerStep& step = push(PreTokenizerStep::kSplitLiteral);
      step.literal = one_character(field.at("delimiter"));
      step.behavior = SplitBehavior::kRemoved;
    } else if (type == "Whitespace") {
      // The library's own \w is that of Rust: with the two joiners, and without ² and its like.
      push_regex(R"([[:word:]\x{200C}\x{200D}]+|[^[:word:]\x{200C}\x{200D}\s]+)", field.path(),
                 SplitBehavior::kRemoved)
          .invert = true;
    } else if (type == "Metaspace") {
      add_metaspace(field);
    } else {
      fail(ErrorKind::kBadInput,
           "{}.type \"{}\" is not supported; supported are ByteLevel, Split, Digits, Punctuation, "
           "Whitespace, "
           "WhitespaceSplit, BertPreTokenizer, CharDelimiterSplit, Metaspace, Sequence",
           field.path(), type);
    }
  }

  PreTokenizer take() { return PreTokenizer(std::move(steps_)); }

 private:
  PreTokenizerStep& push(PreTokenizerStep::Kind kind) {
    steps_.emplace_back().kind = kind;
    return steps_.back();
  }

  PreTokenizerStep& push_regex(std::string_view pattern, std::string_view path,
                               SplitBehavior behavior) {
    PreTokenizerStep& step = push(PreTokenizerStep::kSplitRegex);
    step.regex = patterns_.compile(pattern, path);
    step.behavior = behavior;
    return step;
  }

  void push_class(bool (*is_member)(char32_t), SplitBehavior behavior) {
    PreTokenizerStep& step = push(PreTokenizerStep::kSplitClass);
    step.is_member = is_member;
    step.behavior = behavior;
  }

  void add_split(const JsonField& field) {
    Pattern pattern = patterns_.read(field.at("pattern"));
    PreTokenizerStep& step =
        push(pattern.regex ? PreTokenizerStep::kSplitRegex : PreTokenizerStep::kSplitLiteral);
    step.regex = std::move(pattern.regex);
    step.literal = std::move(pattern.literal);
    step.behavior = read_behavior(field.at("behavior"));
    step.invert = field.flag("invert", false);
  }

  void add_metaspace(const JsonField& field) {
    const std::string replacement = one_character(field.at("replacement"));
    const std::string scheme =
        field.text_or("prepend_scheme", field.flag("add_prefix_space", true) ? "always" : "never");
    PreTokenizerStep& step = push(PreTokenizerStep::kMetaspace);
    step.literal = replacement;
    if (scheme == "always")
      step.prepend = PreTokenizerStep::kAlways;
    else if (scheme == "first")
      step.prepend = PreTokenizerStep::kFirst;
    else if (scheme == "never")
      step.prepend = PreTokenizerStep::kNever;
    else
      fail(ErrorKind::kBadInput, "{}.prepend_scheme \"{}\" is not one of always, first, never",
           field.path(), scheme);
    if (!field.flag("split", true)) return;
    PreTokenizerStep& cut = push(PreTokenizerStep::kSplitLiteral);
    cut.literal = replacement;
    cut.behavior = SplitBehavior::kMergedWithNext;
  }

  std::vector<PreTokenizerStep> steps_;
  Patterns patterns_;
};

}  // namespace

Normalizer read_normalizer(const JsonField& field) {
  NormalizerReader reader;
  reader.add(field, 0);
  return reader.take();
}

PreTokenizer read_pre_tokenizer(const JsonField& field) {
  PreTokenizerReader reader;
  reader.add(field, 0);
  return reader.take();
}

}  // namespace sluice
