#include "text/grammar/regex.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "text/grammar/regex_classes.h"
#include "text/grammar/regex_tree.h"
#include "text/unicode.h"

namespace sluice::grammar {
namespace {

using Id = LanguageStore::Id;

constexpr std::size_t kMaxDepth = 64;  // R13
constexpr std::uint64_t kMaxCount = 1'000'000'000;

Fault invalid_regex(std::string_view what, std::size_t position) {
  return {400, "invalid_regex", "",
          fmt::format("The regular expression is wrong at character {}: {}.", position, what)};
}

Fault too_large() {
  return {400, "grammar_too_large", "",
          "The regular expression needs more memory or steps than its budget allows."};
}

class Parser {
 public:
  Parser(LanguageStore& store, const std::u32string& text, const RegexOptions& options, bool merges)
      : store_(store), text_(text), options_(options), merges_(merges) {}

  Result<RegexTree> run() {
    open_.push_back({});
    while (!fault_ && at_ < text_.size()) item();
    if (!fault_ && open_.size() > 1) fail_at(open_.back().position, "this group is not closed");
    if (fault_) return *fault_;
    tree_.root = close_group();
    return std::move(tree_);
  }

 private:
  struct Group {
    RegexNode::Kind kind = RegexNode::kPure;  // or a look-around
    bool is_negative = false;
    std::size_t position = 0;
    std::string name{};
    std::vector<std::uint32_t> parts{};         // of the alternative that is being read
    std::vector<std::uint32_t> alternatives{};  // finished
    bool can_repeat = false;                    // the last part takes a quantifier
  };

  void fail_at(std::size_t position, std::string_view what) {
    if (!fault_) fault_ = invalid_regex(what, position);
  }
  void refuse(std::size_t position, std::string_view what) {
    if (!fault_) fault_ = unsupported_regex(what, position);
  }
  bool next_is(std::u32string_view text) const {
    return std::u32string_view(text_).substr(at_).starts_with(text);
  }

  std::uint32_t add(RegexNode node) {
    tree_.nodes.push_back(std::move(node));
    return static_cast<std::uint32_t>(tree_.nodes.size() - 1);
  }
  void append(RegexNode node, bool can_repeat) {
    node.position = at_;
    open_.back().parts.push_back(add(std::move(node)));
    open_.back().can_repeat = can_repeat;
  }
  void append_language(Id language) { append({.language = language}, true); }
  void append_char(char32_t code) {
    if (!folds_case_) {
      append({.is_literal = true, .literal = std::u32string(1, code)}, true);
      return;
    }
    std::vector<CodeRange> ranges = {{code, code}};
    fold_case(ranges);
    append_language(store_.chars(std::move(ranges)));
  }
  void append_class(const ClassEscape& escape) {
    std::vector<CodeRange> ranges = escape.ranges;
    if (folds_case_) fold_case(ranges);
    append_language(store_.chars(std::move(ranges)));
  }

  void item() {
    if (!store_.spend(1)) {
      fault_ = too_large();
      return;
    }
    const std::size_t begin = at_;
    const char32_t c = text_[at_++];
    switch (c) {
      case '(':
        return open_group(begin);
      case ')':
        if (open_.size() == 1) return fail_at(begin, "')' closes no group");
        return end_group();
      case '|': {
        Group& group = open_.back();
        group.alternatives.push_back(concat_of(std::move(group.parts)));
        group.parts.clear();
        group.can_repeat = false;
        return;
      }
      case '^':
        tree_.has_start = true;
        return append({.kind = RegexNode::kStart}, false);
      case '$':
        return append({.kind = RegexNode::kEnd}, false);
      case '.': {
        std::vector<CodeRange> line_ends = {{'\n', '\n'}};
        if (options_.dialect == RegexDialect::kEcma)
          line_ends = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
        return append_language(store_.chars(complement_of(std::move(line_ends))));
      }
      case '[':
        return bracket(begin);
      case '\\':
        return escape(begin);
      case '*':
        return quantify(begin, 0, kUnbounded);
      case '+':
        return quantify(begin, 1, kUnbounded);
      case '?':
        return quantify(begin, 0, 1);
      case '{':
        return braces(begin);
      default:
        return append_char(c);
    }
  }

  void open_group(std::size_t begin) {
    if (open_.size() > kMaxDepth)
      return refuse(begin, fmt::format("groups nested more than {} deep", kMaxDepth));
    Group group{.position = begin};
    if (next_is(U"?:")) {
      at_ += 2;
    } else if (next_is(U"?=") || next_is(U"?!")) {
      group.kind = RegexNode::kLookahead;
      group.is_negative = text_[at_ + 1] == '!';
      at_ += 2;
    } else if (next_is(U"?<=") || next_is(U"?<!")) {
      group.kind = RegexNode::kLookbehind;
      group.is_negative = text_[at_ + 2] == '!';
      at_ += 3;
    } else if (next_is(U"?<") || next_is(U"?P<")) {
      at_ += text_[at_ + 1] == 'P' ? 3 : 2;
      const std::size_t name = at_;
      while (at_ < text_.size() && text_[at_] < 128 && is_word(text_[at_])) ++at_;
      if (at_ == name || at_ >= text_.size() || text_[at_] != '>')
        return fail_at(begin, "a group's name has letters, digits and '_', and ends with '>'");
      group.name.assign(text_.begin() + static_cast<std::ptrdiff_t>(name),
                        text_.begin() + static_cast<std::ptrdiff_t>(at_));
      ++tree_.num_named;
      ++at_;
    } else if (next_is(U"?i)") && begin == 0) {
      folds_case_ = true;
      at_ += 3;
      return;
    } else if (next_is(U"?>")) {
      return refuse(begin, "an atomic group");
    } else if (next_is(U"?")) {
      return refuse(begin, "this kind of group ((?i) is allowed at the beginning alone)");
    } else if (next_is(U"*")) {
      return refuse(begin, "a verb such as (*SKIP)");
    }
    open_.push_back(std::move(group));
  }

  void end_group() {
    const Group group = open_.back();
    std::uint32_t inner = close_group();
    if (!merges_ && !group.name.empty())
      inner = add({.kind = RegexNode::kGroup,
                   .children = {inner},
                   .position = group.position,
                   .name = group.name});
    if (group.kind == RegexNode::kPure) {
      open_.back().parts.push_back(inner);
      open_.back().can_repeat = true;
      return;
    }
    const std::size_t mark = at_;
    at_ = group.position;
    append({.kind = group.kind, .is_negative = group.is_negative, .children = {inner}}, false);
    at_ = mark;
  }

  // Takes the innermost group away; its node.
  std::uint32_t close_group() {
    Group group = std::move(open_.back());
    open_.pop_back();
    group.alternatives.push_back(concat_of(std::move(group.parts)));
    return alternate_of(std::move(group.alternatives));
  }

  std::uint32_t alternate_of(std::vector<std::uint32_t> parts) {
    if (parts.size() == 1) return parts[0];
    if (!merges_) return add({.kind = RegexNode::kAlternate, .children = std::move(parts)});
    const auto every = [&](auto test) {
      return std::ranges::all_of(parts, [&](std::uint32_t part) { return test(node(part)); });
    };
    if (every([](const RegexNode& n) { return n.is_literal; })) {
      std::vector<std::u32string> texts;
      for (const std::uint32_t part : parts) texts.push_back(node(part).literal);
      return add({.language = store_.literals(std::move(texts))});
    }
    if (every([](const RegexNode& n) { return n.kind == RegexNode::kPure; })) {
      std::vector<Id> languages;
      for (const std::uint32_t part : parts) languages.push_back(pure(node(part)));
      return add({.language = store_.any_of(std::move(languages))});
    }
    for (const std::uint32_t part : parts) node(part).language = pure(node(part));
    return add({.kind = RegexNode::kAlternate, .children = std::move(parts)});
  }

  std::uint32_t concat_of(std::vector<std::uint32_t> parts) {
    if (!merges_)
      return parts.size() == 1 ? parts[0]
                               : add({.kind = RegexNode::kConcat, .children = std::move(parts)});
    // neighbours without assertions become one
    std::vector<std::uint32_t> merged;
    for (std::size_t i = 0; i < parts.size();) {
      if (node(parts[i]).kind != RegexNode::kPure) {
        merged.push_back(parts[i++]);
        continue;
      }
      std::vector<Id> languages;
      std::u32string literal;
      bool is_literal = true;
      while (i < parts.size() && node(parts[i]).kind == RegexNode::kPure) {
        std::u32string run;
        while (i < parts.size() && node(parts[i]).kind == RegexNode::kPure &&
               node(parts[i]).is_literal)
          run += node(parts[i++]).literal;
        if (!run.empty()) languages.push_back(store_.literals({run}));
        literal += run;
        if (i < parts.size() && node(parts[i]).kind == RegexNode::kPure) {
          is_literal = false;
          languages.push_back(node(parts[i++]).language);
        }
      }
      Id language = LanguageStore::kEmpty;
      for (std::size_t k = languages.size(); k-- > 0;)
        language = store_.concat(languages[k], language);
      if (!is_literal) literal.clear();
      merged.push_back(
          add({.language = language, .is_literal = is_literal, .literal = std::move(literal)}));
    }
    if (merged.size() == 1) return merged[0];
    if (merged.empty()) return add({.is_literal = true});
    return add({.kind = RegexNode::kConcat, .children = std::move(merged)});
  }

  RegexNode& node(std::uint32_t index) { return tree_.nodes[index]; }
  Id pure(const RegexNode& n) { return n.is_literal ? store_.literals({n.literal}) : n.language; }

  void quantify(std::size_t begin, std::uint64_t min, std::uint64_t max) {
    Group& group = open_.back();
    if (!group.can_repeat) {
      if (group.parts.empty() || node(group.parts.back()).kind == RegexNode::kPure)
        return fail_at(begin, "nothing to repeat");
      return refuse(begin, "a quantifier behind an anchor or look-around");
    }
    const bool is_lazy = next_is(U"?");
    if (is_lazy) {
      ++at_;
    } else if (next_is(U"+")) {
      return refuse(begin, "a possessive quantifier");
    }
    group.can_repeat = false;
    const RegexNode inner = node(group.parts.back());
    if (merges_ && inner.kind == RegexNode::kPure) {
      group.parts.back() = add({.language = store_.repeat(pure(inner), min, max)});
      return;
    }
    const std::uint32_t child = group.parts.back();
    group.parts.back() = add({.kind = RegexNode::kRepeat,
                              .is_lazy = is_lazy,
                              .children = {child},
                              .min = min,
                              .max = max,
                              .position = begin});
  }

  std::optional<std::uint64_t> number() {
    const std::size_t begin = at_;
    std::uint64_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9')
      value = std::min(value * 10 + (text_[at_++] - '0'), kMaxCount + 1);
    if (at_ == begin) return std::nullopt;
    return value;
  }

  void braces(std::size_t begin) {
    const std::optional<std::uint64_t> min = number();
    std::optional<std::uint64_t> max = min;
    bool has_comma = false;
    if (next_is(U",")) {
      has_comma = true;
      ++at_;
      max = number();
    }
    if (!next_is(U"}") || (!min && !max)) {  // no quantifier: the brace stands for itself
      at_ = begin + 1;
      return append_char('{');
    }
    if (!min) return refuse(begin, "'{,n}', which dialects read differently (write '{0,n}')");
    ++at_;
    const std::uint64_t upper = has_comma && !max ? kUnbounded : *max;
    if (*min > upper) return fail_at(begin, "the bounds of the repetition are out of order");
    if (*min > kMaxCount || (upper != kUnbounded && upper > kMaxCount))
      return refuse(begin, fmt::format("a repetition of more than {}", kMaxCount));
    quantify(begin, *min, upper);
  }

  void escape(std::size_t begin) {
    if (at_ >= text_.size()) return fail_at(begin, "a backslash at the end");
    switch (text_[at_]) {
      case 'b':
      case 'B':
        append({.kind = RegexNode::kWordBoundary, .is_negative = text_[at_] == 'B'}, false);
        ++at_;
        return;
      case 'A':
        tree_.has_start = true;
        ++at_;
        return append({.kind = RegexNode::kStart}, false);
      case 'Z':
      case 'z':
        ++at_;
        return append({.kind = RegexNode::kEnd}, false);
      default:
        break;
    }
    const Result<ClassEscape> parsed = parse_escape(text_, at_, begin, false);
    if (!parsed) {
      fault_ = parsed.fault();
      return;
    }
    parsed->is_char ? append_char(parsed->ranges[0].first) : append_class(*parsed);
  }

  void bracket(std::size_t begin) {
    Result<std::vector<CodeRange>> ranges = parse_bracket(text_, at_, begin, folds_case_);
    if (!ranges) {
      fault_ = ranges.fault();
      return;
    }
    const Id language = store_.chars(std::move(ranges.value()));
    append_language(language);
  }

  LanguageStore& store_;
  const std::u32string& text_;
  const RegexOptions options_;
  const bool merges_;  // parts into languages
  std::size_t at_ = 0;
  bool folds_case_ = false;
  std::vector<Group> open_;
  RegexTree tree_;
  std::optional<Fault> fault_;
};

}  // namespace

Fault unsupported_regex(std::string_view what, std::size_t position) {
  return {400, "unsupported_regex", "",
          fmt::format("The regular expression has {} at character {}, which is not supported.",
                      what, position)};
}

static Result<RegexTree> read(LanguageStore& store, std::string_view pattern,
                              const RegexOptions& options, bool merges) {
  const std::uint64_t limit = store.budget().max_source_bytes;
  if (pattern.size() > limit)
    return Fault{
        400, "grammar_too_large", "",
        fmt::format("The regular expression has {} bytes; {} are allowed.", pattern.size(), limit)};
  if (!is_valid_utf8(pattern)) return invalid_regex("it is not valid UTF-8", 0);
  std::u32string text;
  for (std::string_view rest = pattern; !rest.empty();) {
    const Utf8Step next = next_utf8(rest);
    text += next.code;
    rest.remove_prefix(static_cast<std::size_t>(next.size));
  }
  return Parser(store, text, options, merges).run();
}

Result<RegexTree> read_regex(LanguageStore& store, std::string_view pattern,
                             const RegexOptions& options) {
  return read(store, pattern, options, false);
}

Result<Id> parse_regex(LanguageStore& store, std::string_view pattern,
                       const RegexOptions& options) {
  const Result<RegexTree> tree = read(store, pattern, options, true);
  if (!tree) return tree.fault();
  const Result<Id> language = language_of(store, *tree, options.match);
  if (store.is_exhausted()) return too_large();
  return language;
}

LanguageId own_regex(Languages& languages, std::string_view pattern) {
  const Result<LanguageId> language = languages.regex(pattern);
  if (language) return *language;
  check(languages.is_exhausted(), "the program's pattern {} is wrong: {}", pattern,
        language.fault().message);
  return languages.none();
}

}  // namespace sluice::grammar
