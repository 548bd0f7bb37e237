// Rewrites an Oniguruma pattern (Ruby syntax, as tokenizer files use it) in PCRE2's dialect.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/tokenizer/pre_tokenizer_regex.h"
#include "text/unicode.h"

namespace sluice {
namespace {

constexpr std::string_view kSpaceItems = R"(\x09-\x0D\x{85}\p{Z})";
// Of [[:word:]]; \w has six digits and fractions of Latin-1 more.
constexpr std::string_view kPosixWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kWordItems =
    R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";
constexpr std::string_view kHexItems = "0-9A-Fa-f";

// The general categories partition all characters, so the complement of a union is the union of the
// other categories.
constexpr std::array<std::string_view, 7> kGroups = {"C:cfnos",   "L:lmotu", "M:cen", "N:dlo",
                                                     "P:cdefios", "S:ckmo",  "Z:lps"};

// What Oniguruma takes for [:name:]; PCRE2 has other sets of the same names. graph and print are
// complements.
struct PosixRow {
  std::string_view name;
  std::string_view items;
  bool negated = false;
};
constexpr PosixRow kPosix[] = {{"alpha", R"(\p{Alphabetic})"},
                               {"upper", R"(\p{Uppercase})"},
                               {"lower", R"(\p{Lowercase})"},
                               {"alnum", R"(\p{Alphabetic}\p{Nd})"},
                               {"word", kPosixWord},
                               {"digit", R"(\p{Nd})"},
                               {"xdigit", kHexItems},
                               {"punct", R"(\p{P}\p{S})"},
                               {"cntrl", R"(\p{Cc})"},
                               {"blank", R"(\p{Zs}\t)"},
                               {"space", kSpaceItems},
                               {"graph", R"(\p{Z}\p{Cc}\p{Cn}\p{Cs})", true},
                               {"print", R"(\p{Zl}\p{Zp}\p{Cc}\p{Cn}\p{Cs})", true},
                               {"ascii", R"(\x00-\x7F)"}};

constexpr std::pair<std::string_view, std::string_view> kLongNames[] = {
    {"Letter", "L"}, {"Mark", "M"},   {"Number", "N"},    {"Punctuation", "P"},
    {"Punct", "P"},  {"Symbol", "S"}, {"Separator", "Z"}, {"Other", "C"},
    {"Digit", "Nd"}, {"Upper", "Lu"}, {"Lower", "Ll"},
};

bool compiles(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

// The part of a class between two `&&`.
struct Operand {
  std::string items;                 // in PCRE2's class syntax
  std::vector<std::string> negated;  // items of nested [^...] classes
};

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view what) : text_(pattern), what_(what) {}

  std::string run() {
    while (at_ < text_.size()) {
      if (peek() == '[') {
        ++at_;
        out_ += character_class(0);
      } else if (peek() == '\\') {
        out_ += escape(/*in_class=*/false);
      } else {
        out_ += text_[at_++];
      }
    }
    return std::move(out_);
  }

 private:
  static constexpr int kMaxDepth = 8;

  char peek() const {
    require(at_ < text_.size(), "{}: the pattern ends inside a character class or escape", what_);
    return text_[at_];
  }

  static std::string as_class(std::string_view items, bool negated) {
    return fmt::format("[{}{}]", negated ? "^" : "", items);
  }

  // Reads one escape sequence, including the backslash.
  std::string escape(bool in_class) {
    ++at_;
    const char kind = peek();
    ++at_;
    const auto group = [&](std::string_view items, bool negated) {
      if (!in_class) return as_class(items, negated);
      return negated ? fmt::format("\\{}", kind) : std::string(items);
    };
    switch (kind) {
      case 's':
        return group(kSpaceItems, false);
      case 'S':
        return group(kSpaceItems, true);
      case 'w':
        return group(kWordItems, false);
      case 'W':
        return group(kWordItems, true);
      case 'h':
        return group(kHexItems, false);
      case 'H':
        return group(kHexItems, true);
      case 'u':
        return code_point();
      case 'p':
      case 'P':
        return property(kind);
      default:
        return fmt::format("\\{}", kind);
    }
  }

  std::string code_point() {
    require(at_ + 4 <= text_.size(), "{}: \\u needs four hexadecimal digits", what_);
    std::string digits(text_.substr(at_, 4));
    at_ += 4;
    return fmt::format("\\x{{{}}}", digits);
  }

  std::string property(char kind) {
    if (peek() != '{') return fmt::format("\\{}{}", kind, text_[at_++]);
    const std::size_t close = text_.find('}', at_);
    require(close != std::string_view::npos, "{}: \\p{{ without a closing brace", what_);
    std::string name(text_.substr(at_ + 1, close - at_ - 1));
    at_ = close + 1;
    if (name.starts_with('^')) {
      name.erase(0, 1);
      kind = kind == 'p' ? 'P' : 'p';
    }
    for (const auto& [long_name, short_name] : kLongNames)
      if (name == long_name) name = short_name;
    // Without `sc:` PCRE2 would use the script extensions.
    if (name.size() > 2 && compiles(fmt::format("\\p{{sc:{}}}", name))) name = "sc:" + name;
    return fmt::format("\\{}{{{}}}", kind, name);
  }

  struct Set {
    bool negated = false;
    std::vector<Operand> operands;
  };

  // Reads a class up to its ']', after its '['.
  Set read_set(int depth) {
    require(depth < kMaxDepth, "{}: character classes nested deeper than {}", what_, kMaxDepth);
    Set set;
    set.operands.emplace_back();
    if (peek() == '^') {
      set.negated = true;
      ++at_;
    }
    for (bool first = true; first || peek() != ']'; first = false) {
      Operand& operand = set.operands.back();
      if (peek() == ']') {
        operand.items += "\\]";
        ++at_;
      } else if (text_.substr(at_).starts_with("&&")) {
        at_ += 2;
        set.operands.emplace_back();
      } else if (text_.substr(at_).starts_with("[:")) {
        const std::size_t close = text_.find(":]", at_);
        require(close != std::string_view::npos, "{}: [: without :]", what_);
        add_posix(text_.substr(at_ + 2, close - at_ - 2), operand);
        at_ = close + 2;
      } else if (peek() == '[') {
        ++at_;
        const Set inner = read_set(depth + 1);
        require(inner.operands.size() == 1 && inner.operands[0].negated.empty(),
                "{}: && inside a nested character class is not supported", what_);
        if (inner.negated)
          operand.negated.push_back(inner.operands[0].items);
        else
          operand.items += inner.operands[0].items;
      } else if (peek() == '\\') {
        const char kind = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
        if (kind == 'W' || kind == 'S' || kind == 'H') {
          operand.negated.emplace_back(kind == 'W'   ? kWordItems
                                       : kind == 'S' ? kSpaceItems
                                                     : kHexItems);
          at_ += 2;
        } else {
          operand.items += escape(/*in_class=*/true);
        }
      } else {
        operand.items += text_[at_++];
      }
    }
    ++at_;
    return set;
  }

  void add_posix(std::string_view name, Operand& operand) const {
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    const auto* row = std::find_if(std::begin(kPosix), std::end(kPosix),
                                   [&](const PosixRow& r) { return r.name == name; });
    require(row != std::end(kPosix), "{}: [:{}:] is not known", what_, name.substr(0, 32));
    if (negated != row->negated)
      operand.negated.emplace_back(row->items);
    else
      operand.items += row->items;
  }

  static std::string one_operand(const Operand& operand, bool negated) {
    if (operand.negated.empty()) return as_class(operand.items, negated);
    if (operand.items.empty() && operand.negated.size() == 1)
      return as_class(operand.negated[0], !negated);
    std::string any = operand.items.empty() ? "" : as_class(operand.items, false) + "|";
    for (const std::string& items : operand.negated) any += as_class(items, true) + "|";
    any.pop_back();
    return negated ? fmt::format("(?:(?!{})(?s:.))", any) : fmt::format("(?:{})", any);
  }

  std::string character_class(int depth) {
    const Set set = read_set(depth);
    if (set.operands.size() == 1) return one_operand(set.operands[0], set.negated);
    std::string plain;
    if (!set.negated && categories_without(set, plain)) return plain;
    std::string body;
    for (std::size_t i = 1; i < set.operands.size(); ++i)
      body += fmt::format("(?={})", one_operand(set.operands[i], false));
    body += one_operand(set.operands[0], false);
    return set.negated ? fmt::format("(?:(?!{})(?s:.))", body) : fmt::format("(?:{})", body);
  }

  // Writes [\p{Lu}\p{M}&&[^x]] as one class, [^ <all categories but Lu, M> x]: a repeated group is
  // slower and needs stack for each repetition. False if the class is not of that form.
  static bool categories_without(const Set& set, std::string& out) {
    std::vector<std::string> wanted;
    std::string_view rest = set.operands[0].items;
    while (!rest.empty()) {
      const std::size_t close = rest.find('}');
      if (!rest.starts_with("\\p{") || close == std::string_view::npos || close > 5) return false;
      wanted.emplace_back(rest.substr(3, close - 3));
      rest.remove_prefix(close + 1);
    }
    if (wanted.empty() || !set.operands[0].negated.empty()) return false;
    std::string items;
    for (std::size_t i = 1; i < set.operands.size(); ++i) {
      if (!set.operands[i].items.empty() || set.operands[i].negated.size() != 1) return false;
      items += set.operands[i].negated[0];
    }
    const auto is_wanted = [&](std::string_view name) {
      return std::find(wanted.begin(), wanted.end(), name) != wanted.end();
    };
    for (const std::string_view group : kGroups) {
      if (is_wanted(group.substr(0, 1))) continue;
      std::string others;
      for (const char letter : group.substr(2)) {
        const std::string name{group[0], letter};
        if (!is_wanted(name)) others += fmt::format("\\p{{{}}}", name);
      }
      const bool whole_group = others.size() == (group.size() - 2) * 6;
      items += whole_group ? fmt::format("\\p{{{}}}", group.substr(0, 1)) : others;
    }
    out = as_class(items, true);
    return true;
  }

  std::string_view text_;
  std::string_view what_;
  std::size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string translate_oniguruma(std::string_view pattern, std::string_view what) {
  require(is_valid_utf8(pattern), "{}: the pattern is not valid UTF-8", what);
  return Translator(pattern, what).run();
}

}  // namespace sluice
