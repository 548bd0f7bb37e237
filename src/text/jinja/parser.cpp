#include "text/jinja/parser.h"

#include <algorithm>

#include "text/jinja/parser_nest.h"
#include "text/jinja/scoping.h"
#include "text/jinja/values/error.h"
#include "text/jinja/values/unicode.h"

namespace sluice::jinja {
namespace {

constexpr std::size_t kMaxSourceBytes = 1u << 20;

}  // namespace

Parser::Parser(std::string_view source) {
  if (source.size() > kMaxSourceBytes)
    raise_syntax(
        "the template has " + std::to_string(source.size()) + " bytes; at most 1048576 are allowed",
        1);
  tokens_ = tokenize(source);
  for (const char* name : {"loop", "caller", "varargs", "kwargs"}) symbol(name);
}

Program Parser::run() {
  program_.body = body_until({}, {});
  for (const ErrorKind kind : {ErrorKind::kTemplate, ErrorKind::kPython})
    for (const TemplateError& fault : deferred_)
      if (fault.kind() == kind) throw fault;
  find_unset_names(program_);
  return std::move(program_);
}

Program parse(std::string_view source) {
  return Parser(source).run();
}

int Parser::symbol(const std::string& name) {
  const auto [it, added] = symbol_ids_.emplace(name, static_cast<int>(program_.symbols.size()));
  if (added) program_.symbols.push_back(name);
  return it->second;
}

bool Parser::skip_operator(std::string_view text) {
  if (!current().is_operator(text)) return false;
  next();
  return true;
}

bool Parser::skip_name(std::string_view text) {
  if (!current().is_name(text)) return false;
  next();
  return true;
}

void Parser::defer(std::string type, const std::string& message, int line) {
  const bool python = type == "SyntaxError";
  deferred_.emplace_back(python ? ErrorKind::kPython : ErrorKind::kTemplate, std::move(type),
                         message);
  deferred_.back().set_line(line);
}

void Parser::fail(const std::string& message) const {
  raise_syntax(message, current().line);
}

void Parser::fail_unexpected(std::string_view expected) const {
  if (current().kind == TokenKind::kEnd)
    fail("unexpected end of template, expected '" + std::string(expected) + "'.");
  fail("expected token '" + std::string(expected) + "', got '" + describe(current()) + "'");
}

const Token& Parser::expect(TokenKind kind, std::string_view description) {
  if (current().kind != kind) fail_unexpected(description);
  return next();
}

const Token& Parser::expect_operator(std::string_view text) {
  if (!current().is_operator(text)) fail_unexpected(text);
  return next();
}

void Parser::expect_name(std::string_view text) {
  if (!skip_name(text)) fail_unexpected(text);
}

std::unique_ptr<Stmt> Parser::make(StmtKind kind) const {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = kind;
  stmt->line = current().line;
  return stmt;
}

// Parses up to one of the tags in `ends`, which stays the current token. Without `ends`, up to the
// end of the template.
Body Parser::body_until(Names ends, std::string_view tag) {
  const Nest nest(*this);
  // Only the bodies of an if leave unknown filters to the render.
  const int conditional = std::exchange(conditional_, tag == "if" ? conditional_ : 0);
  if (!tag.empty()) {
    expect(TokenKind::kBlockEnd, "end of statement block");
    end_tags_.emplace_back(ends.begin(), ends.end());
    open_tags_.emplace_back(tag);
    if (tag != "if") ++depth_of_blocks_;
  }
  Body body;
  for (;;) {
    const Token& token = current();
    if (token.kind == TokenKind::kData) {
      auto stmt = make(StmtKind::kText);
      stmt->text = next().text;
      body.push_back(std::move(stmt));
    } else if (token.kind == TokenKind::kPrintBegin) {
      next();
      auto stmt = make(StmtKind::kPrint);
      stmt->expr = parse_tuple();
      expect(TokenKind::kPrintEnd, "end of print statement");
      body.push_back(std::move(stmt));
    } else if (token.kind == TokenKind::kBlockBegin) {
      next();
      const bool closes =
          std::any_of(ends.begin(), ends.end(), [&](auto end) { return current().is_name(end); });
      if (closes) break;
      if (current().kind != TokenKind::kName) fail("tag name expected");
      statement(body, current().text);
      expect(TokenKind::kBlockEnd, "end of statement block");
    } else {
      if (!tag.empty()) fail_end_of_template();
      break;
    }
  }
  if (!tag.empty()) {
    end_tags_.pop_back();
    open_tags_.pop_back();
    if (tag != "if") --depth_of_blocks_;
  }
  conditional_ = conditional;
  return body;
}

void Parser::statement(Body& out, std::string_view tag) {
  struct Row {
    std::string_view tag;
    std::unique_ptr<Stmt> (Parser::*parse)();
  };
  static constexpr Row kRows[] = {{"for", &Parser::parse_for},
                                  {"if", &Parser::parse_if},
                                  {"set", &Parser::parse_set},
                                  {"with", &Parser::parse_with},
                                  {"macro", &Parser::parse_macro},
                                  {"call", &Parser::parse_call_block},
                                  {"filter", &Parser::parse_filter_block},
                                  {"block", &Parser::parse_block},
                                  {"autoescape", &Parser::parse_autoescape},
                                  {"include", &Parser::parse_include},
                                  {"import", &Parser::parse_import},
                                  {"from", &Parser::parse_from},
                                  {"extends", &Parser::parse_extends}};
  for (const Row& row : kRows) {
    if (row.tag != tag) continue;
    out.push_back((this->*row.parse)());
    return;
  }
  if (tag == "print") {
    next();
    while (current().kind != TokenKind::kBlockEnd) {
      if (!out.empty() && current().is_operator(",")) next();
      auto stmt = make(StmtKind::kPrint);
      stmt->expr = parse_expression();
      out.push_back(std::move(stmt));
    }
  } else if (tag == "break" || tag == "continue") {
    if (loops_ == 0)
      defer("SyntaxError",
            tag == "break" ? "'break' outside loop" : "'continue' not properly in loop",
            current().line);
    out.push_back(make(tag == "break" ? StmtKind::kBreak : StmtKind::kContinue));
    next();
  } else if (tag == "generation") {
    auto stmt = make(StmtKind::kGeneration);
    next();
    const int loops = std::exchange(loops_, 0);
    stmt->bodies.push_back(body_until({"endgeneration"}, "generation"));
    loops_ = loops;
    next();
    out.push_back(std::move(stmt));
  } else {
    fail_unknown_tag(std::string(tag));
  }
}

std::unique_ptr<Stmt> Parser::parse_for() {
  auto stmt = make(StmtKind::kFor);
  next();
  ++fors_;
  stmt->target = parse_target(false, "in");
  expect_name("in");
  stmt->expr = parse_tuple(false, false, "recursive");
  const int conditional = std::exchange(conditional_, 0);
  if (skip_name("if")) stmt->condition = parse_expression();
  conditional_ = conditional;
  stmt->recursive = skip_name("recursive");
  ++loops_;
  stmt->bodies.push_back(body_until({"endfor", "else"}, "for"));
  --loops_;
  if (next().text == "else") {
    stmt->bodies.push_back(body_until({"endfor"}, "for"));
    next();
  }
  --fors_;
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_if() {
  auto stmt = make(StmtKind::kIf);
  next();
  ++conditional_;
  for (;;) {
    stmt->exprs.push_back(parse_tuple(false));
    stmt->bodies.push_back(body_until({"elif", "else", "endif"}, "if"));
    const std::string tag = next().text;
    if (tag == "elif") continue;
    if (tag == "else") {
      stmt->bodies.push_back(body_until({"endif"}, "if"));
      next();
    }
    break;
  }
  --conditional_;
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_set() {
  auto stmt = make(StmtKind::kSet);
  next();
  stmt->target = parse_target(true);
  if (skip_operator("=")) {
    stmt->expr = parse_tuple();
    return stmt;
  }
  stmt->kind = StmtKind::kSetBlock;
  const int conditional = std::exchange(conditional_, 0);
  if (current().is_operator("|")) stmt->expr = parse_filter(nullptr);
  conditional_ = conditional;
  stmt->bodies.push_back(body_until({"endset"}, "set"));
  next();
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_with() {
  auto stmt = make(StmtKind::kWith);
  next();
  while (current().kind != TokenKind::kBlockEnd) {
    if (!stmt->targets.empty()) expect_operator(",");
    stmt->targets.push_back(parse_target_name(false));
    expect_operator("=");
    stmt->exprs.push_back(parse_expression());
  }
  stmt->bodies.push_back(body_until({"endwith"}, "with"));
  next();
  return stmt;
}

void Parser::parse_signature(MacroSpec& macro) {
  const int line = current().line;
  const int conditional = std::exchange(conditional_, 0);
  expect_operator("(");
  while (!current().is_operator(")")) {
    if (!macro.params.empty()) expect_operator(",");
    const std::string name = expect(TokenKind::kName, "name").text;
    macro.params.push_back(name);
    macro.symbols.push_back(symbol(name));
    note_special(name, false);
    if (skip_operator("=")) {
      macro.defaults.push_back(parse_expression());
    } else if (!macro.defaults.empty()) {
      fail("non-default argument follows default argument");
    }
  }
  expect_operator(")");
  conditional_ = conditional;
  const std::size_t plain = macro.params.size() - macro.defaults.size();
  for (std::size_t i = 0; i < macro.params.size(); ++i) {
    macro.needs_caller |= macro.params[i] == "caller" && i < plain;
    if (std::count(macro.params.begin(), macro.params.end(), macro.params[i]) > 1)
      defer("SyntaxError", "duplicate argument '" + macro.params[i] + "' in function definition",
            line);
  }
}

void Parser::note_special(std::string_view name, bool is_read) {
  for (OpenMacro& open : macros_) {
    const auto note = [&](std::string_view special, bool& sets, bool& uses) {
      if (name != special) return;
      uses |= is_read && !sets;
      sets |= !is_read;
    };
    note("caller", open.sets_caller, open.macro->uses_caller);
    note("varargs", open.sets_varargs, open.macro->uses_varargs);
    note("kwargs", open.sets_kwargs, open.macro->uses_kwargs);
  }
}

void Parser::parse_macro_body(MacroSpec& macro, std::string_view end) {
  macros_.push_back({&macro, false, false, false});
  macro.escapes = escapes_;
  const int loops = std::exchange(loops_, 0);
  const int conditional = std::exchange(conditional_, 0);
  macro.body = body_until({end}, end.substr(3));
  conditional_ = conditional;
  loops_ = loops;
  macros_.pop_back();
  if (macro.needs_caller && macro.uses_caller)
    defer("TemplateAssertionError",
          "When defining macros or call blocks the special \"caller\" argument must be omitted or "
          "be given a default.",
          current().line);
  next();
}

std::unique_ptr<Stmt> Parser::parse_macro() {
  auto stmt = make(StmtKind::kMacro);
  next();
  stmt->macro.name = expect(TokenKind::kName, "name").text;
  stmt->symbol = symbol(stmt->macro.name);
  parse_signature(stmt->macro);
  parse_macro_body(stmt->macro, "endmacro");
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_call_block() {
  auto stmt = make(StmtKind::kCallBlock);
  next();
  if (current().is_operator("(")) parse_signature(stmt->macro);
  stmt->expr = parse_expression();
  if (stmt->expr->kind != ExprKind::kCall) fail("expected call");
  for (const auto& [name, value] : stmt->expr->args.named)
    if (name == "caller") defer("SyntaxError", "keyword argument repeated: caller", stmt->line);
  parse_macro_body(stmt->macro, "endcall");
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_filter_block() {
  auto stmt = make(StmtKind::kFilterBlock);
  next();
  const int conditional = std::exchange(conditional_, 0);
  stmt->expr = parse_filter(nullptr, true);
  conditional_ = conditional;
  stmt->bodies.push_back(body_until({"endfilter"}, "filter"));
  next();
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_block() {
  auto stmt = make(StmtKind::kBlock);
  next();
  const std::string name = expect(TokenKind::kName, "name").text;
  stmt->scoped = skip_name("scoped");
  const bool required = skip_name("required");
  if (current().is_operator("-"))
    fail(
        "Block names in Jinja have to be valid Python identifiers and may not contain hyphens, "
        "use an underscore instead.");
  if (!program_.blocks.emplace(name, stmt.get()).second)
    defer("TemplateAssertionError", "block '" + name + "' defined twice", stmt->line);
  const int loops = std::exchange(loops_, 0);
  stmt->bodies.push_back(body_until({"endblock"}, "block"));
  loops_ = loops;
  next();
  for (const auto& part : stmt->bodies[0])
    if (required && (part->kind != StmtKind::kText || !right_strip(part->text).empty()))
      fail("Required blocks can only contain comments or whitespace");
  skip_name(name);
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_autoescape() {
  auto stmt = make(StmtKind::kAutoescape);
  next();
  stmt->expr = parse_expression();
  const std::optional<bool> escapes = stmt->expr->kind == ExprKind::kConst
                                          ? std::optional<bool>(truthy(stmt->expr->constant))
                                          : std::nullopt;
  const std::optional<bool> outside = std::exchange(escapes_, escapes);
  stmt->bodies.push_back(body_until({"endautoescape"}, "autoescape"));
  escapes_ = outside;
  next();
  return stmt;
}

bool Parser::skip_context() {
  if (!(current().is_name("with") || current().is_name("without")) || !look().is_name("context"))
    return false;
  next();
  next();
  return true;
}

std::unique_ptr<Stmt> Parser::parse_include() {
  auto stmt = make(StmtKind::kNoLoader);
  next();
  stmt->expr = parse_expression();
  if (current().is_name("ignore") && look().is_name("missing")) {
    next();
    next();
  }
  skip_context();
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_import() {
  auto stmt = make(StmtKind::kNoLoader);
  next();
  stmt->expr = parse_expression();
  expect_name("as");
  parse_target_name(false);
  skip_context();
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_from() {
  auto stmt = make(StmtKind::kNoLoader);
  next();
  stmt->expr = parse_expression();
  expect_name("import");
  for (bool first = true;; first = false) {
    if (!first) expect_operator(",");
    if (current().kind != TokenKind::kName) fail_unexpected("name");
    if (skip_context()) return stmt;
    if (current().text[0] == '_')
      raise_assertion("names starting with an underline can not be imported", current().line);
    parse_target_name(false);
    if (skip_name("as")) parse_target_name(false);
    if (skip_context() || !current().is_operator(",")) return stmt;
  }
}

std::unique_ptr<Stmt> Parser::parse_extends() {
  auto stmt = make(StmtKind::kNoLoader);
  if (depth_of_blocks_ > 0)
    defer("TemplateAssertionError", "cannot use extend from a non top-level scope", stmt->line);
  next();
  stmt->expr = parse_expression();
  return stmt;
}

std::string Parser::expected_tags() const {
  std::string text;
  for (const std::string& end : end_tags_.back())
    text += (text.empty() ? "'" : " or '") + end + "'";
  return text;
}

void Parser::fail_unknown_tag(const std::string& name) const {
  std::string message = "Encountered unknown tag '" + name + "'.";
  if (!open_tags_.empty())
    message += " Jinja was looking for the following tags: " + expected_tags() +
               ". The innermost block that needs to be closed is '" + open_tags_.back() + "'.";
  fail(message);
}

void Parser::fail_end_of_template() const {
  fail("Unexpected end of template. Jinja was looking for the following tags: " + expected_tags() +
       ". The innermost block that needs to be closed is '" + open_tags_.back() + "'.");
}

}  // namespace sluice::jinja
