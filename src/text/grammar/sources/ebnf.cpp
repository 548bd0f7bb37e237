#include "text/grammar/sources/ebnf.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <vector>

#include "text/grammar/regex_classes.h"
#include "text/grammar/sources/grammar_parts.h"
#include "text/unicode.h"

namespace sluice::grammar {
namespace {

constexpr std::size_t kMaxDepth = 64;  // R13
constexpr std::uint64_t kMaxCount = 1'000'000'000;

class Parser {
 public:
  Parser(Grammar& grammar, std::string_view text) : grammar_(grammar), text_(text) {}

  Result<NodeId> run(std::string_view root) {
    skip_space();
    while (!fault_ && at_ < text_.size()) rule();
    if (fault_) return *fault_;
    const auto it = rules_.find(std::string(root));
    if (it == rules_.end() || !grammar_.rules()[static_cast<std::size_t>(it->second)].is_defined)
      return Fault{400, "undefined_rule", "",
                   fmt::format("The grammar has no rule '{}', at which it begins.", root)};
    return grammar_.rule(it->second);
  }

 private:
  struct Group {
    std::size_t position = 0;
    std::vector<Part> parts{};         // of the alternative that is being read
    std::vector<Part> alternatives{};  // finished
    bool can_repeat = false;
  };

  void fail_at(std::size_t position, std::string_view what) {
    if (fault_) return;
    fault_ = Fault{400, "invalid_grammar", "",
                   fmt::format("The grammar is wrong at {}: {}.", place_in(text_, position), what)};
  }

  bool next_is(std::string_view text) const { return text_.substr(at_).starts_with(text); }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void skip_space() {
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '#')
        while (at_ + 1 < text_.size() && text_[at_ + 1] != '\n') ++at_;
      else if (text_[at_] != ' ' && text_[at_] != '\t' && text_[at_] != '\n' && text_[at_] != '\r')
        return;
    }
  }

  static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  }
  std::string_view name() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  RuleId rule_of(std::string_view name) {
    const auto it = rules_.find(std::string(name));
    if (it != rules_.end()) return it->second;
    const RuleId made = grammar_.declare_rule(name);
    rules_.emplace(name, made);
    return made;
  }

  // What stands between brackets directly behind a rule's name; nothing where there are none.
  std::optional<std::string_view> attributes() {
    if (peek() != '[') return std::nullopt;
    bool is_quoted = false;
    for (std::size_t end = at_ + 1; end < text_.size() && text_[end] != '\n'; ++end) {
      if (text_[end] == '"') is_quoted = !is_quoted;
      if (is_quoted || text_[end] != ']') continue;
      const std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
      at_ = end + 1;
      return inside;
    }
    return std::nullopt;
  }

  // Whether a name and '::=' come next.
  bool begins_rule() {
    const std::size_t begin = at_;
    const bool has_name = !name().empty();
    if (has_name) attributes();
    while (peek() == ' ' || peek() == '\t') ++at_;
    const bool is_rule = has_name && next_is("::=");
    at_ = begin;
    return is_rule;
  }

  void rule() {
    const std::size_t begin = at_;
    const std::string_view rule_name = name();
    if (rule_name.empty()) return fail_at(begin, "a rule begins with its name");
    const std::size_t bracket = at_;
    const std::optional<std::string_view> inside = attributes();
    while (peek() == ' ' || peek() == '\t') ++at_;
    if (!next_is("::=")) return fail_at(at_, "'::=' must follow the rule's name");
    at_ += 3;
    const RuleId id = rule_of(rule_name);
    if (grammar_.rules()[static_cast<std::size_t>(id)].is_defined)
      return fail_at(begin, fmt::format("the rule '{}' is defined twice", rule_name));
    open_.assign(1, {.position = at_});
    skip_space();
    while (!fault_ && at_ < text_.size() && !(open_.size() == 1 && begins_rule())) {
      term();
      skip_space();
      if (!grammar_.languages().is_exhausted()) continue;
      fault_ = Fault{400, "grammar_too_large", "",
                     "The grammar needs more memory or steps than its budget allows."};
    }
    if (!fault_ && open_.size() > 1) fail_at(open_.back().position, "this '(' is not closed");
    if (fault_) return;
    const NodeId node = node_of(grammar_, close_group());
    if (!inside) return grammar_.define_rule(id, node);
    const Result<std::string> capture = read_capture(*inside, rule_name, place_in(text_, bracket));
    if (capture)
      grammar_.define_rule(id, grammar_.capture(node, Grammar::CaptureKind::kNamed, *capture));
    else
      fault_ = capture.fault();
  }

  void term() {
    const std::size_t begin = at_;
    const char c = text_[at_];
    switch (c) {
      case '"':
        return literal();
      case '[':
        return bracket();
      case '.':
        ++at_;
        return add({true, grammar_.languages().any_char(), {}});
      case '(':
        ++at_;
        if (open_.size() > kMaxDepth)
          return fail_at(begin, fmt::format("groups nested more than {} deep", kMaxDepth));
        open_.push_back({.position = begin});
        return;
      case ')': {
        if (open_.size() == 1) return fail_at(begin, "')' closes no group");
        ++at_;
        const Part group = close_group();
        return add(group);
      }
      case '|': {
        ++at_;
        Group& group = open_.back();
        group.alternatives.push_back(concat_of(grammar_, group.parts));
        group.parts.clear();
        group.can_repeat = false;
        return;
      }
      case '*':
        ++at_;
        return repeat(begin, 0, kUnbounded);
      case '+':
        ++at_;
        return repeat(begin, 1, kUnbounded);
      case '?':
        ++at_;
        return repeat(begin, 0, 1);
      case '{':
        return braces();
      default:
        break;
    }
    const std::string_view used = name();
    if (used.empty())
      return fail_at(begin, "a literal, a class, a rule's name, '(' or an operator is expected");
    add({false, {}, grammar_.rule(rule_of(used))});
  }

  void add(const Part& part) {
    open_.back().parts.push_back(part);
    open_.back().can_repeat = true;
  }

  Part close_group() {
    Group group = std::move(open_.back());
    open_.pop_back();
    group.alternatives.push_back(concat_of(grammar_, group.parts));
    return any_of(grammar_, group.alternatives);
  }

  void repeat(std::size_t begin, std::uint64_t min, std::uint64_t max) {
    Group& group = open_.back();
    if (!group.can_repeat) return fail_at(begin, "there is nothing to repeat");
    Part& part = group.parts.back();
    part = repeat_of(grammar_, part, min, max);
  }

  std::optional<std::uint64_t> number() {
    skip_space();
    const std::size_t begin = at_;
    std::uint64_t value = 0;
    while (peek() >= '0' && peek() <= '9')
      value = std::min(value * 10 + static_cast<std::uint64_t>(text_[at_++] - '0'), kMaxCount + 1);
    const bool has_digits = at_ > begin;
    skip_space();
    if (!has_digits) return std::nullopt;
    return value;
  }

  void braces() {
    const std::size_t begin = at_++;
    const std::optional<std::uint64_t> min = number();
    std::optional<std::uint64_t> max = min;
    if (peek() == ',') {
      ++at_;
      max = number();
      if (!max) max = kUnbounded;
    }
    if (peek() != '}' || (!min && !max))
      return fail_at(begin, "a repetition is {n}, {n,}, {,m} or {n,m}");
    ++at_;
    const std::uint64_t lower = min.value_or(0), upper = *max;
    if (lower > upper) return fail_at(begin, "the bounds of the repetition are out of order");
    if (lower > kMaxCount || (upper != kUnbounded && upper > kMaxCount))
      return fail_at(begin, fmt::format("a repetition of more than {}", kMaxCount));
    repeat(begin, lower, upper);
  }

  std::optional<char32_t> hex(std::size_t count) {
    char32_t value = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const char c = peek();
      int digit = -1;
      if (c >= '0' && c <= '9') digit = c - '0';
      if (c >= 'a' && c <= 'f') digit = c - 'a' + 10;
      if (c >= 'A' && c <= 'F') digit = c - 'A' + 10;
      if (digit < 0) return std::nullopt;
      value = value * 16 + static_cast<char32_t>(digit);
      ++at_;
    }
    return value;
  }

  // One character of a literal or a class, also escaped.
  std::optional<char32_t> character() {
    const std::size_t begin = at_;
    if (peek() != '\\') {
      const Utf8Step next = next_utf8(text_.substr(at_));
      at_ += static_cast<std::size_t>(next.size);
      if (next.kind == Utf8Step::kCharacter) return next.code;
      fail_at(begin, "the text is not valid UTF-8");
      return std::nullopt;
    }
    ++at_;
    const char c = at_ < text_.size() ? text_[at_++] : '\0';
    std::optional<char32_t> code;
    switch (c) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
      case '\'':
      case '/':
        return static_cast<char32_t>(c);
      case 'x':
        code = hex(2);
        break;
      case 'u':
        code = hex(4);
        break;
      case 'U':
        code = hex(8);
        break;
      default:
        break;
    }
    if (!code)
      fail_at(begin,
              "an escape is \\n \\r \\t \\\\ \\\" \\[ \\] \\- \\^ \\xHH \\uHHHH or \\UHHHHHHHH");
    else if (*code > 0x10FFFF || (*code >= 0xD800 && *code < 0xE000))
      fail_at(begin, "the escape names a lone surrogate, or a code beyond U+10FFFF");
    return fault_ ? std::nullopt : code;
  }

  void literal() {
    const std::size_t begin = at_++;
    std::string text;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') {
      const std::optional<char32_t> code = character();
      if (!code) return;
      append_utf8(text, *code);
    }
    if (peek() != '"') return fail_at(begin, "this literal is not closed");
    ++at_;
    add({true, grammar_.languages().literal(text), {}});
  }

  void bracket() {
    const std::size_t begin = at_++;
    const bool is_negative = peek() == '^';
    if (is_negative) ++at_;
    std::vector<CodeRange> ranges;
    while (at_ < text_.size() && text_[at_] != ']') {
      const std::size_t place = at_;
      const std::optional<char32_t> first = character();
      if (!first) return;
      CodeRange range{*first, *first};
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        const std::optional<char32_t> last = character();
        if (!last) return;
        range.last = *last;
        if (range.first > range.last) return fail_at(place, "a range whose ends are out of order");
      }
      ranges.push_back(range);
    }
    if (peek() != ']') return fail_at(begin, "this '[' is not closed");
    ++at_;
    Languages& languages = grammar_.languages();
    if (is_negative) ranges = complement_of(std::move(ranges));
    add({true, languages.chars(ranges), {}});
  }

  Grammar& grammar_;
  const std::string_view text_;
  std::size_t at_ = 0;
  std::vector<Group> open_;
  std::unordered_map<std::string, RuleId> rules_;
  std::optional<Fault> fault_;
};

}  // namespace

Result<NodeId> parse_ebnf(Grammar& grammar, std::string_view text, std::string_view root) {
  const std::uint64_t limit = grammar.languages().budget().max_source_bytes;
  if (text.size() > limit)
    return Fault{400, "grammar_too_large", "",
                 fmt::format("The grammar has {} bytes; {} are allowed.", text.size(), limit)};
  return Parser(grammar, text).run(root);
}

}  // namespace sluice::grammar
