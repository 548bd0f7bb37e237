// Cuts a template into tokens, as Jinja does with trim_blocks and lstrip_blocks on and
// keep_trailing_newline off.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice::jinja {

enum class TokenKind {
  kData,
  kPrintBegin,
  kPrintEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind;
  std::string text;  // the value of a string, the letters of an operator or a name
  int line;
  bool is(TokenKind k, std::string_view t) const { return kind == k && text == t; }
  bool is_operator(std::string_view t) const { return is(TokenKind::kOperator, t); }
  bool is_name(std::string_view t) const { return is(TokenKind::kName, t); }
};

// The name of a token in messages: "end of print statement", "name", "+".
std::string describe(const Token& token);

// Raises TemplateSyntaxError with the line. The last token is kEnd.
std::vector<Token> tokenize(std::string_view source);

}  // namespace sluice::jinja
