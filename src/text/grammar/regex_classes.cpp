#include "text/grammar/regex_classes.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <optional>

#include "text/grammar/regex_tree.h"

namespace sluice::grammar {
namespace {

constexpr char32_t kLastCode = 0x10FFFF;

Fault invalid(std::string_view what, std::size_t position) {
  return {400, "invalid_regex", "",
          fmt::format("The regular expression is wrong at character {}: {}.", position, what)};
}

std::vector<CodeRange> word() {
  return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
}
std::vector<CodeRange> white_space() {  // ECMA 262, WhiteSpace and LineTerminator
  return {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
}

struct Category {
  std::string_view name, long_name;
  std::uint32_t mask;  // of utf8proc_category_t
};

constexpr std::uint32_t bits(std::initializer_list<int> categories) {
  std::uint32_t mask = 0;
  for (const int category : categories) mask |= 1u << category;
  return mask;
}

constexpr Category kCategories[] = {
    {"L", "Letter",
     bits({UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LT, UTF8PROC_CATEGORY_LM,
           UTF8PROC_CATEGORY_LO})},
    {"LC", "Cased_Letter",
     bits({UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LT})},
    {"Lu", "Uppercase_Letter", bits({UTF8PROC_CATEGORY_LU})},
    {"Ll", "Lowercase_Letter", bits({UTF8PROC_CATEGORY_LL})},
    {"Lt", "Titlecase_Letter", bits({UTF8PROC_CATEGORY_LT})},
    {"Lm", "Modifier_Letter", bits({UTF8PROC_CATEGORY_LM})},
    {"Lo", "Other_Letter", bits({UTF8PROC_CATEGORY_LO})},
    {"M", "Mark", bits({UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_MC, UTF8PROC_CATEGORY_ME})},
    {"Mn", "Nonspacing_Mark", bits({UTF8PROC_CATEGORY_MN})},
    {"Mc", "Spacing_Mark", bits({UTF8PROC_CATEGORY_MC})},
    {"Me", "Enclosing_Mark", bits({UTF8PROC_CATEGORY_ME})},
    {"N", "Number", bits({UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NL, UTF8PROC_CATEGORY_NO})},
    {"Nd", "Decimal_Number", bits({UTF8PROC_CATEGORY_ND})},
    {"Nl", "Letter_Number", bits({UTF8PROC_CATEGORY_NL})},
    {"No", "Other_Number", bits({UTF8PROC_CATEGORY_NO})},
    {"P", "Punctuation",
     bits({UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PD, UTF8PROC_CATEGORY_PS, UTF8PROC_CATEGORY_PE,
           UTF8PROC_CATEGORY_PI, UTF8PROC_CATEGORY_PF, UTF8PROC_CATEGORY_PO})},
    {"Pc", "Connector_Punctuation", bits({UTF8PROC_CATEGORY_PC})},
    {"Pd", "Dash_Punctuation", bits({UTF8PROC_CATEGORY_PD})},
    {"Ps", "Open_Punctuation", bits({UTF8PROC_CATEGORY_PS})},
    {"Pe", "Close_Punctuation", bits({UTF8PROC_CATEGORY_PE})},
    {"Pi", "Initial_Punctuation", bits({UTF8PROC_CATEGORY_PI})},
    {"Pf", "Final_Punctuation", bits({UTF8PROC_CATEGORY_PF})},
    {"Po", "Other_Punctuation", bits({UTF8PROC_CATEGORY_PO})},
    {"S", "Symbol",
     bits(
         {UTF8PROC_CATEGORY_SM, UTF8PROC_CATEGORY_SC, UTF8PROC_CATEGORY_SK, UTF8PROC_CATEGORY_SO})},
    {"Sm", "Math_Symbol", bits({UTF8PROC_CATEGORY_SM})},
    {"Sc", "Currency_Symbol", bits({UTF8PROC_CATEGORY_SC})},
    {"Sk", "Modifier_Symbol", bits({UTF8PROC_CATEGORY_SK})},
    {"So", "Other_Symbol", bits({UTF8PROC_CATEGORY_SO})},
    {"Z", "Separator", bits({UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZL, UTF8PROC_CATEGORY_ZP})},
    {"Zs", "Space_Separator", bits({UTF8PROC_CATEGORY_ZS})},
    {"Zl", "Line_Separator", bits({UTF8PROC_CATEGORY_ZL})},
    {"Zp", "Paragraph_Separator", bits({UTF8PROC_CATEGORY_ZP})},
    {"C", "Other",
     bits({UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CF, UTF8PROC_CATEGORY_CS, UTF8PROC_CATEGORY_CO,
           UTF8PROC_CATEGORY_CN})},
    {"Cc", "Control", bits({UTF8PROC_CATEGORY_CC})},
    {"Cf", "Format", bits({UTF8PROC_CATEGORY_CF})},
    {"Co", "Private_Use", bits({UTF8PROC_CATEGORY_CO})},
    {"Cn", "Unassigned", bits({UTF8PROC_CATEGORY_CN})},
};

// Neighbouring characters of one category.
struct CategoryRun {
  CodeRange codes;
  utf8proc_category_t category;
};

std::vector<CategoryRun> category_runs() {
  std::vector<CategoryRun> runs;
  for (char32_t code = 0; code <= kLastCode; ++code) {
    const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
    if (!runs.empty() && runs.back().category == category)
      runs.back().codes.last = code;
    else
      runs.push_back({{code, code}, category});
  }
  return runs;
}

std::vector<CodeRange> codes_of(std::uint32_t mask) {
  static const std::vector<CategoryRun> runs = category_runs();
  std::vector<CodeRange> ranges;
  for (const CategoryRun& run : runs) {
    if ((mask >> run.category & 1) == 0) continue;
    if (!ranges.empty() && ranges.back().last + 1 == run.codes.first)
      ranges.back().last = run.codes.last;
    else
      ranges.push_back(run.codes);
  }
  return ranges;
}

int hex_digit(char32_t c) {
  if (c >= '0' && c <= '9') return static_cast<int>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<int>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<int>(c - 'A' + 10);
  return -1;
}

// `count` hexadecimal digits at `at`, which moves behind them.
std::optional<char32_t> hex(const std::u32string& text, std::size_t& at, std::size_t count) {
  if (text.size() - at < count) return std::nullopt;
  char32_t value = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const int digit = hex_digit(text[at + i]);
    if (digit < 0) return std::nullopt;
    value = value * 16 + static_cast<char32_t>(digit);
  }
  at += count;
  return value;
}

// What ECMA 262 has between the braces of \p besides categories: scripts, and names of binary
// properties, long and short.
bool is_other_property(std::string_view name) {
  static constexpr std::string_view kScripts[] = {"Script=", "sc=", "Script_Extensions=", "scx="};
  static constexpr std::string_view kBinary =
      " ASCII ASCII_Hex_Digit AHex Alphabetic Alpha Assigned Bidi_Control Bidi_C "
      "Bidi_Mirrored Bidi_M Case_Ignorable CI Cased Changes_When_Casefolded CWCF "
      "Changes_When_Casemapped CWCM Changes_When_Lowercased CWL "
      "Changes_When_NFKC_Casefolded CWKCF Changes_When_Titlecased CWT "
      "Changes_When_Uppercased CWU Dash Default_Ignorable_Code_Point DI Deprecated Dep "
      "Diacritic Dia Emoji Emoji_Component EComp Emoji_Modifier EMod Emoji_Modifier_Base "
      "EBase Emoji_Presentation EPres Extended_Pictographic ExtPict Extender Ext "
      "Grapheme_Base Gr_Base Grapheme_Extend Gr_Ext Hex_Digit Hex IDS_Binary_Operator IDSB "
      "IDS_Trinary_Operator IDST ID_Continue IDC ID_Start IDS Ideographic Ideo "
      "Join_Control Join_C Logical_Order_Exception LOE Lowercase Lower Math "
      "Noncharacter_Code_Point NChar Pattern_Syntax Pat_Syn Pattern_White_Space Pat_WS "
      "Quotation_Mark QMark Radical Regional_Indicator RI Sentence_Terminal STerm "
      "Soft_Dotted SD Terminal_Punctuation Term Unified_Ideograph UIdeo Uppercase Upper "
      "Variation_Selector VS White_Space space XID_Continue XIDC XID_Start XIDS ";
  const auto begins = [name](std::string_view prefix) { return name.starts_with(prefix); };
  return std::ranges::any_of(kScripts, begins) ||
         (name.find(' ') == std::string_view::npos &&
          kBinary.find(" " + std::string(name) + " ") != std::string_view::npos);
}

Result<ClassEscape> property(const std::u32string& text, std::size_t& at, std::size_t begin,
                             bool is_negative) {
  std::string name;
  if (at < text.size() && text[at] == '{') {
    const std::size_t end = text.find(U'}', at);
    if (end == std::u32string::npos) return invalid("\\p without '}'", begin);
    for (std::size_t i = at + 1; i < end; ++i)
      name += text[i] < 128 ? static_cast<char>(text[i]) : '?';
    at = end + 1;
  } else if (at < text.size() && text[at] < 128) {
    name = static_cast<char>(text[at++]);
  }
  for (const std::string_view prefix : {"General_Category=", "gc="})
    if (name.starts_with(prefix)) name.erase(0, prefix.size());
  for (const Category& category : kCategories) {
    if (name != category.name && name != category.long_name) continue;
    std::vector<CodeRange> ranges = codes_of(category.mask);
    if (is_negative) ranges = complement_of(std::move(ranges));
    return ClassEscape{false, std::move(ranges)};
  }
  if (name == "Any") return ClassEscape{false, {{0, is_negative ? 0 : kLastCode}}};
  if (is_other_property(name))
    return unsupported_regex(fmt::format("the property \\p{{{}}}", name), begin);
  return invalid("no general category has the name of this \\p", begin);
}

// \uHHHH, also a surrogate pair, or \u{H}.
Result<ClassEscape> unicode(const std::u32string& text, std::size_t& at, std::size_t begin) {
  std::optional<char32_t> code;
  if (at < text.size() && text[at] == '{') {
    const std::size_t end = text.find(U'}', at);
    if (end == std::u32string::npos || end == at + 1 || end > at + 7)
      return invalid("\\u{...} needs one to six hexadecimal digits", begin);
    ++at;
    code = hex(text, at, end - at);
    ++at;
  } else {
    code = hex(text, at, 4);
    const bool is_high = code && *code >= 0xD800 && *code < 0xDC00;
    if (is_high && at + 1 < text.size() && text[at] == '\\' && text[at + 1] == 'u') {
      std::size_t behind = at + 2;
      const std::optional<char32_t> low = hex(text, behind, 4);
      if (low && *low >= 0xDC00 && *low < 0xE000) {
        code = 0x10000 + ((*code - 0xD800) << 10) + (*low - 0xDC00);
        at = behind;
      }
    }
  }
  if (!code) return invalid("\\u needs four hexadecimal digits", begin);
  if (*code > kLastCode || (*code >= 0xD800 && *code < 0xE000))
    return invalid("\\u of a lone surrogate, or beyond U+10FFFF", begin);
  return ClassEscape{true, {{*code, *code}}};
}

}  // namespace

std::vector<CodeRange> complement_of(std::vector<CodeRange> ranges) {
  std::ranges::sort(ranges, {}, &CodeRange::first);
  std::vector<CodeRange> out;
  char32_t next = 0;
  for (const CodeRange& range : ranges) {
    if (range.first > next) out.push_back({next, range.first - 1});
    next = std::max<char32_t>(next, range.last + 1);
  }
  if (next <= kLastCode) out.push_back({next, kLastCode});
  return out;
}

void fold_case(std::vector<CodeRange>& ranges) {
  std::vector<CodeRange> more;
  const auto add = [&](utf8proc_int32_t code) {
    more.push_back({static_cast<char32_t>(code), static_cast<char32_t>(code)});
  };
  for (const CodeRange& range : ranges) {
    for (char32_t code = range.first; code <= range.last; ++code) {
      const auto c = static_cast<utf8proc_int32_t>(code);
      const utf8proc_int32_t lower = utf8proc_tolower(c), upper = utf8proc_toupper(c);
      // a character outside ASCII does not match one inside: U+212A is no 'k'
      if (lower != c && (lower < 128) == (c < 128)) add(lower);
      if (upper != c && (upper < 128) == (c < 128)) add(upper);
    }
  }
  ranges.insert(ranges.end(), more.begin(), more.end());
}

Result<ClassEscape> parse_escape(const std::u32string& text, std::size_t& at, std::size_t begin,
                                 bool in_brackets) {
  if (at >= text.size()) return invalid("a backslash at the end", begin);
  const char32_t c = text[at++];
  const auto one = [](char32_t code) { return ClassEscape{true, {{code, code}}}; };
  const auto set = [](std::vector<CodeRange> ranges, bool is_negative) {
    return ClassEscape{false, is_negative ? complement_of(std::move(ranges)) : std::move(ranges)};
  };
  switch (c) {
    case 'd':
    case 'D':
      return set({{'0', '9'}}, c == 'D');
    case 'w':
    case 'W':
      return set(word(), c == 'W');
    case 's':
    case 'S':
      return set(white_space(), c == 'S');
    case 'p':
    case 'P':
      return property(text, at, begin, c == 'P');
    case 'n':
      return one('\n');
    case 'r':
      return one('\r');
    case 't':
      return one('\t');
    case 'f':
      return one('\f');
    case 'v':
      return one('\v');
    case 'b':
      if (in_brackets) return one('\b');
      break;
    case '0':
      if (at < text.size() && text[at] >= '0' && text[at] <= '9')
        return unsupported_regex("an octal escape", begin);
      return one(0);
    case 'x': {
      const std::optional<char32_t> code = hex(text, at, 2);
      if (!code) return invalid("\\x needs two hexadecimal digits", begin);
      return one(*code);
    }
    case 'u':
      return unicode(text, at, begin);
    case 'c': {
      const bool is_letter = at < text.size() && ((text[at] >= 'A' && text[at] <= 'Z') ||
                                                  (text[at] >= 'a' && text[at] <= 'z'));
      if (!is_letter) return invalid("\\c needs a letter", begin);
      return one(text[at++] & 31);
    }
    default:
      break;
  }
  if (c >= '1' && c <= '9') return unsupported_regex("a back reference", begin);
  if (c == 'k') return unsupported_regex("a back reference", begin);
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
    return unsupported_regex(fmt::format("the escape \\{}", static_cast<char>(c)), begin);
  return one(c);
}

Result<std::vector<CodeRange>> parse_bracket(const std::u32string& text, std::size_t& at,
                                             std::size_t begin, bool folds_case) {
  std::vector<CodeRange> ranges;
  const bool is_negative = at < text.size() && text[at] == '^';
  if (is_negative) ++at;
  if (at < text.size() && text[at] == ']')
    return unsupported_regex(
        "'[]', which dialects read differently (write '\\]' for the character)", begin);
  // one member: a character or a set
  const auto member = [&]() -> Result<ClassEscape> {
    const std::size_t place = at;
    const char32_t c = text[at++];
    if (c == '\\') return parse_escape(text, at, place, true);
    if (c == '[' && at < text.size() && text[at] == ':' &&
        text.find(U":]", at) != std::u32string::npos)
      return unsupported_regex("a POSIX class such as [:alpha:]", place);
    return ClassEscape{true, {{c, c}}};
  };
  while (at < text.size() && text[at] != ']') {
    const std::size_t place = at;
    Result<ClassEscape> first = member();
    if (!first) return first.fault();
    const bool has_range = at + 1 < text.size() && text[at] == '-' && text[at + 1] != ']';
    if (!has_range || !first->is_char) {
      ranges.insert(ranges.end(), first->ranges.begin(), first->ranges.end());
      continue;
    }
    ++at;
    Result<ClassEscape> last = member();
    if (!last) return last.fault();
    if (!last->is_char) {  // [a-\d]: the '-' stands for itself
      ranges.push_back(first->ranges[0]);
      ranges.push_back({'-', '-'});
      ranges.insert(ranges.end(), last->ranges.begin(), last->ranges.end());
      continue;
    }
    const CodeRange range{first->ranges[0].first, last->ranges[0].first};
    if (range.first > range.last) return invalid("a range whose ends are out of order", place);
    ranges.push_back(range);
  }
  if (at >= text.size()) return invalid("this '[' is not closed", begin);
  ++at;
  if (folds_case) fold_case(ranges);
  return is_negative ? complement_of(std::move(ranges)) : ranges;
}

}  // namespace sluice::grammar
