// Template text -> Program, with Jinja's grammar and messages. Raises TemplateSyntaxError (or
// TemplateAssertionError for an unknown filter or test) with the line. Nesting is limited to 100
// levels of brackets or blocks.
#pragma once

#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"
#include "text/jinja/values/error.h"

namespace sluice::jinja {

Program parse(std::string_view source);

// One parse; parser.cpp has the statements and parser_expr.cpp the expressions.
class Parser {
 public:
  explicit Parser(std::string_view source);
  Program run();

 private:
  using Names = std::initializer_list<std::string_view>;
  class Nest;

  // Tokens.
  const Token& current() const { return tokens_[pos_]; }
  const Token& look() const { return tokens_[std::min(pos_ + 1, tokens_.size() - 1)]; }
  const Token& next() { return tokens_[pos_ + 1 < tokens_.size() ? pos_++ : pos_]; }
  bool skip_operator(std::string_view text);
  bool skip_name(std::string_view text);
  const Token& expect(TokenKind kind, std::string_view description);
  const Token& expect_operator(std::string_view text);
  void expect_name(std::string_view text);
  [[noreturn]] void fail(const std::string& message) const;
  [[noreturn]] void fail_unexpected(std::string_view expected) const;
  int symbol(const std::string& name);

  // Statements.
  Body body_until(Names ends, std::string_view tag);
  void statement(Body& out, std::string_view tag_name);
  std::unique_ptr<Stmt> make(StmtKind kind) const;
  std::unique_ptr<Stmt> parse_for();
  std::unique_ptr<Stmt> parse_if();
  std::unique_ptr<Stmt> parse_set();
  std::unique_ptr<Stmt> parse_with();
  std::unique_ptr<Stmt> parse_macro();
  std::unique_ptr<Stmt> parse_call_block();
  std::unique_ptr<Stmt> parse_filter_block();
  std::unique_ptr<Stmt> parse_block();
  std::unique_ptr<Stmt> parse_autoescape();
  std::unique_ptr<Stmt> parse_include();
  std::unique_ptr<Stmt> parse_import();
  std::unique_ptr<Stmt> parse_from();
  std::unique_ptr<Stmt> parse_extends();
  bool skip_context();
  void parse_signature(MacroSpec& macro);
  void parse_macro_body(MacroSpec& macro, std::string_view end);
  [[noreturn]] void fail_unknown_tag(const std::string& name) const;
  [[noreturn]] void fail_end_of_template() const;
  // Faults that jinja2 finds when it compiles the parsed template: a syntax error anywhere comes
  // first. A fault in Python's own compilation (`python`) comes last.
  void defer(std::string type, const std::string& message, int line);
  std::string expected_tags() const;

  // Expressions.
  ExprPtr node(ExprKind kind) const;
  ExprPtr node(ExprKind kind, ExprPtr child) const;
  ExprPtr finish(ExprPtr expr) const;
  ExprPtr parse_expression(bool conditional = true);
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filters = true);
  ExprPtr parse_primary();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_tuple(bool conditional = true, bool explicit_parentheses = false,
                      std::string_view end_name = {});
  bool is_tuple_end(std::string_view end_name) const;
  ExprPtr parse_postfix(ExprPtr expr);
  ExprPtr parse_filters(ExprPtr expr);
  ExprPtr parse_filter(ExprPtr input, bool first_without_pipe = false);
  ExprPtr parse_test(ExprPtr input);
  ExprPtr parse_subscript(ExprPtr expr);
  ExprPtr parse_index();
  void parse_arguments(CallArgs& args);
  ExprPtr parse_target(bool with_namespace, std::string_view end_name = {});
  ExprPtr parse_target_name(bool with_namespace);
  std::string parse_dotted_name();

  std::vector<Token> tokens_;
  std::size_t pos_ = 0;
  Program program_;
  std::map<std::string, int> symbol_ids_;
  std::vector<std::vector<std::string>> end_tags_;  // end tags of the open blocks
  std::vector<std::string> open_tags_;
  // A name is read in the macros around it, or set. A macro has caller, varargs and kwargs if its
  // body reads them before anything in it sets them.
  void note_special(std::string_view name, bool is_read);

  struct OpenMacro {
    MacroSpec* macro;
    bool sets_caller = false, sets_varargs = false, sets_kwargs = false;
  };
  std::vector<OpenMacro> macros_;        // being parsed
  std::optional<bool> escapes_ = false;  // autoescape, where it is known
  int nest_ = 0;
  int fors_ = 0;   // open for statements
  int loops_ = 0;  // loops to which a break can refer
  std::vector<TemplateError> deferred_;
  int depth_of_blocks_ = 0;  // an extends stands outside all of them
  int conditional_ = 0;      // inside an if: unknown filters raise only when reached
};

}  // namespace sluice::jinja
