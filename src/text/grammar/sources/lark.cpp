#include "text/grammar/sources/lark.h"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>
#include <utility>

#include "text/grammar/sources/ebnf.h"
#include "text/grammar/sources/grammar_parts.h"
#include "text/grammar/sources/lark_text.h"
#include "text/unicode.h"

namespace sluice::grammar {
namespace {

constexpr std::size_t kMaxDepth = 64;  // R13: of groups, and of terminals in terminals
// The terminals of Lark's library, as patterns.
struct Common {
  std::string_view name, pattern;
};
constexpr std::array kCommon = {
    Common{"DIGIT", "[0-9]"},
    Common{"HEXDIGIT", "[a-fA-F0-9]"},
    Common{"INT", "[0-9]+"},
    Common{"SIGNED_INT", "[+-]?[0-9]+"},
    Common{"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
    Common{"FLOAT", "[0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    Common{"SIGNED_FLOAT",
           "[+-]?([0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?)"},
    Common{"NUMBER", "([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    Common{"SIGNED_NUMBER", "[+-]?([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    Common{"ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\[^\\n])*\""},
    Common{"LCASE_LETTER", "[a-z]"},
    Common{"UCASE_LETTER", "[A-Z]"},
    Common{"LETTER", "[a-zA-Z]"},
    Common{"WORD", "[a-zA-Z]+"},
    Common{"CNAME", "[_a-zA-Z][_a-zA-Z0-9]*"},
    Common{"WS_INLINE", "[ \\t]+"},
    Common{"WS", "[ \\t\\f\\r\\n]+"},
    Common{"CR", "\\r"},
    Common{"LF", "\\n"},
    Common{"NEWLINE", "(\\r?\\n)+"},
    Common{"SH_COMMENT", "#[^\\n]*"},
    Common{"CPP_COMMENT", "//[^\\n]*"},
    Common{"SQL_COMMENT", "--[^\\n]*"},
};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_terminal(std::string_view name) {
  const std::size_t first = name.find_first_not_of('_');
  return first != std::string_view::npos && name[first] >= 'A' && name[first] <= 'Z';
}

class Parser {
 public:
  Parser(Grammar& grammar, std::string_view text) : grammar_(grammar), text_(text) {}

  Result<NodeId> run() {
    while (!text_.fault() && text_.skip(true)) statement();
    if (!text_.fault() && rules_.empty())
      text_.fail({400, "undefined_rule", "",
                  "The Lark grammar has no rule; it begins at the rule 'start'."});
    std::vector<Part> ignored;
    for (const Span& span : ignored_) ignored.push_back(terminal_at(span));
    if (!ignored.empty() && !text_.fault())
      space_ = repeat_of(grammar_, any_of(grammar_, ignored), 0, kUnbounded);
    for (const Rule& rule : rules_) {
      if (text_.fault()) break;
      text_.go_to(rule.body);
      const Part body = alternatives();
      if (text_.fault()) break;
      const NodeId node = node_of(grammar_, body);
      grammar_.define_rule(rule.id,
                           rule.capture
                               ? grammar_.capture(node, Grammar::CaptureKind::kNamed, *rule.capture)
                               : node);
    }
    if (text_.fault()) return *text_.fault();
    const auto start = rule_ids_.find("start");
    const NodeId root = grammar_.rule(rules_[start == rule_ids_.end() ? 0 : start->second].id);
    return space_ ? grammar_.sequence({node_of(grammar_, *space_), root}) : root;
  }

 private:
  using Span = LarkText::Span;
  struct Rule {
    RuleId id{};
    Span body;
    std::optional<std::string> capture{};  // its name
  };
  struct Terminal {
    Span body{};
    std::string_view pattern{};  // of the library; empty: `body`
    std::optional<LanguageId> language{};
    bool is_open = false;  // it is being read
  };

  void statement() {
    const std::size_t begin = text_.at();
    if (text_.peek() == '%') return directive();
    while (text_.peek() == '?' || text_.peek() == '!') text_.advance(1);
    const std::string_view defined = text_.name();
    if (defined.empty() || is_digit(defined[0]))
      return text_.fail_at(begin, "a rule, a terminal or a % line must begin here");
    if (text_.peek() == '{') return text_.refuse(text_.at(), "a template");
    const std::optional<std::string> capture = attributes(defined);
    if (text_.fault()) return;
    if (text_.peek() == '.') {  // a priority
      text_.advance(text_.peek(1) == '-' ? 2 : 1);
      if (!text_.number()) return text_.fail_at(text_.at(), "a priority is a number");
    }
    text_.skip(false);
    if (text_.peek() != ':') return text_.fail_at(text_.at(), "':' must follow the name");
    text_.advance(1);
    const Span body = text_.body();
    const bool is_new = is_terminal(defined)
                            ? terminals_.try_emplace(defined, Terminal{.body = body}).second
                            : rule_ids_.try_emplace(defined, rules_.size()).second;
    if (!is_new) return text_.fail_at(begin, fmt::format("'{}' is defined twice", defined));
    if (!is_terminal(defined)) rules_.push_back({grammar_.declare_rule(defined), body, capture});
  }

  // [capture="name"] behind the name of a rule.
  std::optional<std::string> attributes(std::string_view rule) {
    const std::size_t begin = text_.at();
    if (text_.peek() != '[') return std::nullopt;
    if (is_terminal(rule)) {
      text_.refuse(begin, "attributes of a terminal");
      return std::nullopt;
    }
    std::string inside;
    bool is_quoted = false;
    for (text_.advance(1); is_quoted || text_.peek() != ']'; text_.advance(1)) {
      if (text_.is_at_end() || text_.peek() == '\n') {
        text_.fail_at(begin, "this '[' is not closed");
        return std::nullopt;
      }
      if (text_.peek() == '"') is_quoted = !is_quoted;
      inside += text_.peek();
    }
    text_.advance(1);
    Result<std::string> name = read_capture(inside, rule, text_.place(begin));
    if (name) return std::move(*name);
    text_.fail(name.fault());
    return std::nullopt;
  }

  void directive() {
    const std::size_t begin = text_.at();
    text_.advance(1);
    const std::string_view word = text_.name();
    if (word == "ignore") {
      ignored_.push_back(text_.body());
    } else if (word == "import") {
      import();
      if (!text_.fault() && text_.skip(false) && text_.peek() != '\n')
        text_.fail_at(text_.at(), "a line must end behind an import");
    } else {
      text_.refuse(begin, fmt::format("'%{}'", word.substr(0, 32)));
    }
  }

  void import() {
    text_.skip(false);
    const std::size_t begin = text_.at();
    if (text_.name() != "common") return text_.refuse(begin, "an import beyond 'common'");
    const auto add = [&](std::string_view from, std::string_view to) {
      const auto known = std::ranges::find(kCommon, from, &Common::name);
      if (known == kCommon.end())
        return text_.refuse(begin, fmt::format("the import 'common.{}'", from.substr(0, 64)));
      terminals_.insert_or_assign(to, Terminal{.pattern = known->pattern});
    };
    text_.skip(false);
    if (text_.peek() == '.') {
      text_.advance(1);
      const std::string_view from = text_.name();
      std::string_view to = from;
      text_.skip(false);
      if (text_.next_is("->")) {
        text_.advance(2);
        text_.skip(false);
        to = text_.name();
        if (!is_terminal(to))
          return text_.fail_at(text_.at(), "a terminal's name must follow '->'");
      }
      return add(from, to);
    }
    if (text_.peek() != '(') return text_.fail_at(text_.at(), "'.' or '(' must follow 'common'");
    do {
      text_.advance(1);
      text_.skip(true);
      const std::string_view from = text_.name();
      add(from, from);
      text_.skip(true);
    } while (!text_.fault() && text_.peek() == ',');
    if (text_.peek() != ')') text_.fail_at(text_.at(), "')' must end the list");
    text_.advance(1);
  }

  bool enter(std::size_t position) {
    if (++depth_ <= kMaxDepth) return true;
    text_.fail_at(position,
                  fmt::format("groups and terminals nested more than {} deep", kMaxDepth));
    return false;
  }

  // Up to the end of the body, or a bracket that closes.
  Part alternatives() {
    std::vector<Part> all, parts;
    while (!text_.fault()) {
      const bool is_end = !text_.skip(true) || text_.peek() == ')' || text_.peek() == ']';
      if (is_end || text_.peek() == '|') {
        all.push_back(concat_of(grammar_, parts));
        parts.clear();
        if (is_end) break;
        text_.advance(1);
      } else if (text_.next_is("->")) {  // the name of a tree
        text_.advance(2);
        text_.skip(false);
        if (text_.name().empty()) text_.fail_at(text_.at(), "a name must follow '->'");
      } else {
        parts.push_back(repeated(atom()));
        if (grammar_.languages().is_exhausted())
          text_.fail({400, "grammar_too_large", "",
                      "The grammar needs more memory or steps than its budget allows."});
      }
    }
    if (!text_.fault() && depth_ == body_depth_ && !text_.is_at_end())
      text_.fail_at(text_.at(), fmt::format("'{}' closes no group", text_.peek()));
    return text_.fault() ? nothing() : any_of(grammar_, all);
  }

  // Where there is a fault.
  Part nothing() { return {true, grammar_.languages().none(), {}}; }

  // What a rule reads, and what is ignored behind it.
  Part lexeme(LanguageId language) {
    const Part part{true, language, {}};
    if (in_terminal_ || !space_) return part;
    if (grammar_.keeps_captures()) {  // a captured rule does not hold it
      const NodeId space =
          grammar_.capture(node_of(grammar_, *space_), Grammar::CaptureKind::kSkipped);
      return {false, {}, grammar_.sequence({node_of(grammar_, part), space})};
    }
    return concat_of(grammar_, std::array{part, *space_});
  }

  Part atom() {
    const std::size_t begin = text_.at();
    const char c = text_.peek();
    if (c == '(' || c == '[') return group(c);
    if (c == '"') return string();
    if (c == '/') return pattern();
    const std::string_view used = text_.name();
    if (used.empty()) {
      if (std::string_view("<@%&~").find(c) != std::string_view::npos)
        text_.refuse(begin, fmt::format("'{}', an addition of llguidance,", c));
      else
        text_.fail_at(begin, "a string, a pattern, a name, '(' or '[' is expected");
      return nothing();
    }
    if (text_.peek() == '{' && !is_digit(text_.peek(1)) && text_.peek(1) != ',') {
      text_.refuse(begin, "a template");
      return nothing();
    }
    if (is_terminal(used)) return terminal(used, begin);
    const auto found = rule_ids_.find(used);
    if (in_terminal_)
      text_.fail_at(begin, fmt::format("a terminal uses the rule '{}'", used));
    else if (found == rule_ids_.end())
      text_.undefined(begin, used);
    else
      return {false, {}, grammar_.rule(rules_[found->second].id)};
    return nothing();
  }

  Part group(char open) {
    const std::size_t begin = text_.at();
    if (!enter(begin)) return nothing();
    text_.advance(1);
    const Part part = alternatives();
    --depth_;
    if (text_.peek() != (open == '(' ? ')' : ']'))
      text_.fail_at(begin, fmt::format("this '{}' is not closed", open));
    text_.advance(1);
    return open == '(' ? part : repeat_of(grammar_, part, 0, 1);
  }

  Part terminal(std::string_view used, std::size_t position) {
    const auto found = terminals_.find(used);
    if (found == terminals_.end()) {
      text_.undefined(position, used);
      return nothing();
    }
    Terminal& terminal = found->second;
    if (terminal.is_open) {
      text_.fail_at(position, fmt::format("the terminal '{}' needs itself", used));
      return nothing();
    }
    if (!terminal.language) {
      if (!enter(position)) return nothing();
      terminal.is_open = true;
      terminal.language = terminal.pattern.empty()
                              ? terminal_at(terminal.body).language
                              : language_of(std::string(terminal.pattern), position);
      terminal.is_open = false;
      --depth_;
    }
    return lexeme(*terminal.language);
  }

  // A terminal's body, read where it stands.
  Part terminal_at(const Span& span) {
    const Span rest = text_.rest();
    const std::size_t body_depth = std::exchange(body_depth_, depth_);
    const bool in_terminal = std::exchange(in_terminal_, true);
    text_.go_to(span);
    const Part part = alternatives();
    text_.go_to(rest);
    body_depth_ = body_depth;
    in_terminal_ = in_terminal;
    return part;
  }

  Part string() {
    const std::size_t begin = text_.at();
    const std::optional<std::vector<char32_t>> codes = text_.string();
    if (!codes) return nothing();
    if (text_.next_is("..")) {
      text_.advance(2);
      const std::optional<std::vector<char32_t>> last =
          text_.peek() == '"' ? text_.string() : std::nullopt;
      if (!last || last->size() != 1 || codes->size() != 1 || (*last)[0] < (*codes)[0]) {
        text_.fail_at(begin, "a range is \"a\"..\"z\", two characters in order");
        return nothing();
      }
      const CodeRange range{(*codes)[0], (*last)[0]};
      return lexeme(grammar_.languages().chars(std::span(&range, 1)));
    }
    std::string text;
    if (text_.peek() != 'i') {
      for (const char32_t code : *codes) append_utf8(text, code);
      return lexeme(grammar_.languages().literal(text));
    }
    text_.advance(1);
    text = "(?i)";
    for (const char32_t code : *codes) {
      if (code < 0x80)
        text += fmt::format("\\x{:02x}", static_cast<unsigned>(code));
      else
        append_utf8(text, code);
    }
    return lexeme(language_of(text, begin));
  }

  Part pattern() {
    const std::size_t begin = text_.at();
    const std::optional<std::string_view> body = text_.pattern();
    if (!body) return nothing();
    std::string text(*body);
    for (char flag = text_.peek(); flag >= 'a' && flag <= 'z'; flag = text_.peek()) {
      if (flag == 'i')
        text.insert(0, "(?i)");
      else
        text_.refuse(text_.at(), fmt::format("the flag '{}' of a pattern", flag));
      text_.advance(1);
    }
    return lexeme(language_of(text, begin));
  }

  LanguageId language_of(const std::string& pattern, std::size_t position) {
    const Result<LanguageId> language = grammar_.languages().regex(pattern);
    if (language) return *language;
    Fault fault = language.fault();
    fault.message += fmt::format(" The pattern stands at {}.", text_.place(position));
    text_.fail(std::move(fault));
    return grammar_.languages().none();
  }

  // A part with the operator behind it, if there is one.
  Part repeated(const Part& part) {
    if (text_.fault() || !text_.skip(false)) return part;
    const std::size_t begin = text_.at();
    std::optional<std::uint64_t> min = 0, max = kUnbounded;
    const char mark = text_.peek();
    if (std::string_view("?*+~{").find(mark) == std::string_view::npos) return part;
    text_.advance(1);
    if (mark == '?') max = 1;
    if (mark == '+') min = 1;
    if (mark == '~') {
      min = max = text_.number();
      if (text_.next_is("..")) {
        text_.advance(2);
        max = text_.number();
      }
    }
    if (mark == '{') {
      min = max = text_.number();
      if (text_.peek() == ',') {
        text_.advance(1);
        max = text_.number();
        if (!max && min) max = kUnbounded;
        if (!min) min = 0;
      }
      if (text_.peek() != '}') max.reset();
      text_.advance(1);
    }
    const bool is_right = min && max && *min <= *max && *min <= LarkText::kMaxCount &&
                          (*max == kUnbounded || *max <= LarkText::kMaxCount);
    if (!is_right) {
      text_.fail_at(begin, fmt::format("a repetition is ? * + ~ n, ~ n..m or {{n,m}}, and not of "
                                       "more than {}",
                                       LarkText::kMaxCount));
      return nothing();
    }
    return repeat_of(grammar_, part, *min, *max);
  }

  Grammar& grammar_;
  LarkText text_;
  std::size_t depth_ = 0, body_depth_ = 0;  // now, and where the body that is read began
  bool in_terminal_ = false;
  std::vector<Rule> rules_;
  std::unordered_map<std::string_view, std::size_t> rule_ids_;  // to rules_
  std::unordered_map<std::string_view, Terminal> terminals_;
  std::vector<Span> ignored_;
  std::optional<Part> space_;  // what is ignored
};

}  // namespace

bool is_lark(std::string_view text) {
  if (text.empty()) return false;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line = line.substr(0, std::min(line.find('#'), line.find("//")));
    if (line.find("::=") != std::string_view::npos) return false;
  }
  return true;
}

Result<NodeId> parse_lark(Grammar& grammar, std::string_view text) {
  const std::uint64_t limit = grammar.languages().budget().max_source_bytes;
  if (text.size() > limit)
    return Fault{400, "grammar_too_large", "",
                 fmt::format("The grammar has {} bytes; {} are allowed.", text.size(), limit)};
  return Parser(grammar, text).run();
}

Result<NodeId> parse_grammar(Grammar& grammar, std::string_view text) {
  return is_lark(text) ? parse_lark(grammar, text) : parse_ebnf(grammar, text);
}

}  // namespace sluice::grammar
