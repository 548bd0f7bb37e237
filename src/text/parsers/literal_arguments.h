// Arguments that are written as literals, read byte by byte and passed on as JSON text.
//
//   LiteralArguments literals(LiteralArguments::Style::kKeywords, "");
//   std::string json;
//   for (char c : std::string_view("a='x', b=[1, None])")) status = literals.push(c, json);
//   // kDone, {"a": "x", "b": [1, null]}
//
// Text begins behind the bracket that opens the arguments. Literals of Python and JSON are read.
// Strings side by side are one, a tuple is a list, and hexadecimal numbers become decimal. Between
// braces a value without quotes is a string. Nothing is evaluated: names, operators, calls and
// positional arguments are faults. Numbers keep their digits. There are at most 64 levels, and no
// recursion.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/parsers/tool_parser_scan.h"

namespace sluice {

class LiteralArguments {
 public:
  enum class Style {
    kKeywords,  // KEY=VALUE, up to ")"
    kBraces,    // KEY:VALUE, up to "}"; strings between two `quote`, or bare
  };
  enum class Status { kMore, kDone, kInvalid };

  LiteralArguments() = default;
  // `quote` is static storage.
  LiteralArguments(Style style, std::string_view quote);

  // Appends to `json` what is certain.
  Status push(char c, std::string& json);

 private:
  enum class Expect { kKeyOrEnd, kAssign, kValue, kValueOrEnd, kCommaOrEnd, kDone };
  enum class Token { kNone, kKey, kWord, kBare, kQuoted, kMarked, kEscape, kRaw, kHex, kOctal };

  Status step(char c, std::string& json);
  Status read(char c, std::string& json);
  Status structure(char c, std::string& json);
  Status begin_key(char c, std::string& json);
  Status begin_value(char c, std::string& json);
  Status quoted(char c, std::string& json);
  Status escape(char c, std::string& json);
  Status hex(char c, std::string& json);
  Status octal(char c, std::string& json);
  Status word(char c, std::string& json);
  Status bare(char c, std::string& json);
  bool joins_string(char c, std::string& json);
  void close_bracket(std::string& json);
  Status key(char c, std::string& json);
  void begin_string(char quote, bool is_key, std::string& json);
  void end_string(std::string& json);
  bool takes_members() const { return stack_.back() == '(' || stack_.back() == '{'; }
  bool takes_bare_keys() const { return style_ == Style::kBraces || stack_.size() == 1; }

  Style style_ = Style::kKeywords;
  MarkerScanner scanner_;  // of the quote mark
  bool has_mark_ = false;
  // Open brackets; the first one is that of the arguments. 'p': a parenthesis, 't': a tuple, which
  // is a parenthesis with a comma.
  std::string stack_;
  std::string held_;                      // JSON that waits for the comma of a parenthesis
  std::vector<std::size_t> parentheses_;  // where in held_ those without a comma begin
  Expect expect_ = Expect::kKeyOrEnd;
  Token token_ = Token::kNone;
  bool began_ = false;   // the opening brace of the JSON is out
  bool first_ = true;    // no member yet in the innermost container
  bool is_key_ = false;  // the string is a key
  char quote_ = 0;       // of the string that is read
  int num_quotes_ = 0;   // in a row: three of them open and close a long string
  bool is_long_ = false;
  bool is_empty_ = false;  // nothing of the string was read
  bool is_raw_ = false;    // backslashes of the string stand for themselves
  bool is_open_ = false;   // the string's closing quote waits: another string may follow
  std::string word_;       // key, number or word that is read
  std::size_t digits_left_ = 0;
  std::string digits_;
};

}  // namespace sluice
