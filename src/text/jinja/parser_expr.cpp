// The expression half of the parser; the precedences are those of jinja2/parser.py.
#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "text/jinja/filters.h"
#include "text/jinja/parser.h"
#include "text/jinja/parser_nest.h"

namespace sluice::jinja {
namespace {

constexpr int kMaxTreeDepth = 400;

Value integer_constant(const std::string& text, int line) {
  int base = 10;
  std::size_t begin = 0;
  if (text.size() > 2 && text[0] == '0') {
    const char mark = static_cast<char>(text[1] | 0x20);
    base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
    if (base != 10) begin = 2;
  }
  for (std::size_t i = begin; i < text.size(); ++i) {
    const int digit = text[i] <= '9' ? text[i] - '0' : (text[i] | 0x20) - 'a' + 10;
    if (digit >= base) raise_syntax("invalid integer", line);
  }
  if (text.size() - begin > kMaxIntegerDigits)
    raise_syntax("an integer has at most " + std::to_string(kMaxIntegerDigits) + " digits", line);
  return Value(BigInt::parse(std::string_view(text).substr(begin), base));
}

}  // namespace

ExprPtr Parser::node(ExprKind kind) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = current().line;
  return expr;
}

ExprPtr Parser::node(ExprKind kind, ExprPtr child) const {
  ExprPtr expr = node(kind);
  expr->children.push_back(std::move(child));
  return expr;
}

// Sets the depth of a node from its parts.
ExprPtr Parser::finish(ExprPtr expr) const {
  int depth = 0;
  const auto look_at = [&](const ExprPtr& e) {
    if (e) depth = std::max(depth, e->depth);
  };
  for (const auto& child : expr->children) look_at(child);
  for (const auto& arg : expr->args.positional) look_at(arg);
  for (const auto& arg : expr->args.named) look_at(arg.second);
  look_at(expr->args.star);
  look_at(expr->args.star_star);
  expr->depth = depth + 1;
  if (expr->depth > kMaxTreeDepth) raise_syntax("expression nests too deeply", expr->line);
  return expr;
}

ExprPtr Parser::parse_expression(bool conditional) {
  const Nest nest(*this);
  const std::size_t before = deferred_.size();
  ExprPtr expr = parse_or();
  while (conditional && skip_name("if")) {
    // An unknown filter in a branch is a fault of the render.
    const auto in_branch = deferred_.begin() + static_cast<std::ptrdiff_t>(before);
    deferred_.erase(std::remove_if(in_branch, deferred_.end(),
                                   [](const TemplateError& fault) {
                                     return std::string_view(fault.what()).starts_with("No ");
                                   }),
                    deferred_.end());
    ++conditional_;
    ExprPtr choice = node(ExprKind::kConditional);
    choice->children.push_back(parse_or());
    choice->children.push_back(std::move(expr));
    choice->children.push_back(skip_name("else") ? parse_expression() : nullptr);
    --conditional_;
    expr = finish(std::move(choice));
  }
  return expr;
}

ExprPtr Parser::parse_or() {
  ExprPtr left = parse_and();
  while (skip_name("or")) {
    left = node(ExprKind::kOr, std::move(left));
    left->children.push_back(parse_and());
    left = finish(std::move(left));
  }
  return left;
}

ExprPtr Parser::parse_and() {
  ExprPtr left = parse_not();
  while (skip_name("and")) {
    left = node(ExprKind::kAnd, std::move(left));
    left->children.push_back(parse_not());
    left = finish(std::move(left));
  }
  return left;
}

ExprPtr Parser::parse_not() {
  if (!current().is_name("not")) return parse_compare();
  const Nest nest(*this);
  next();
  return finish(node(ExprKind::kNot, parse_not()));
}

ExprPtr Parser::parse_compare() {
  static const std::pair<std::string_view, CompareOp> kOps[] = {
      {"==", CompareOp::kEqual},  {"!=", CompareOp::kNotEqual},
      {"<", CompareOp::kLess},    {"<=", CompareOp::kLessEqual},
      {">", CompareOp::kGreater}, {">=", CompareOp::kGreaterEqual}};
  ExprPtr left = parse_sum();
  ExprPtr chain;
  for (;;) {
    const CompareOp* found = nullptr;
    CompareOp named;
    for (const auto& [text, op] : kOps)
      if (current().is_operator(text)) found = &op;
    if (found) {
      next();
    } else if (skip_name("in")) {
      named = CompareOp::kIn;
      found = &named;
    } else if (current().is_name("not") && look().is_name("in")) {
      next();
      next();
      named = CompareOp::kNotIn;
      found = &named;
    } else {
      break;
    }
    if (!chain) chain = node(ExprKind::kCompare, std::move(left));
    chain->compare.push_back(*found);
    chain->children.push_back(parse_sum());
  }
  return chain ? finish(std::move(chain)) : std::move(left);
}

ExprPtr Parser::parse_sum() {
  ExprPtr left = parse_concat();
  while (current().is_operator("+") || current().is_operator("-")) {
    left = node(ExprKind::kBinary, std::move(left));
    left->binary = next().text == "+" ? BinaryOp::kAdd : BinaryOp::kSubtract;
    left->children.push_back(parse_concat());
    left = finish(std::move(left));
  }
  return left;
}

ExprPtr Parser::parse_concat() {
  ExprPtr left = parse_product();
  if (!current().is_operator("~")) return left;
  ExprPtr all = node(ExprKind::kConcat, std::move(left));
  while (skip_operator("~")) all->children.push_back(parse_product());
  return finish(std::move(all));
}

ExprPtr Parser::parse_product() {
  static const std::pair<std::string_view, BinaryOp> kOps[] = {{"*", BinaryOp::kMultiply},
                                                               {"/", BinaryOp::kDivide},
                                                               {"//", BinaryOp::kFloorDivide},
                                                               {"%", BinaryOp::kModulo}};
  ExprPtr left = parse_power();
  for (;;) {
    const auto* row = std::find_if(std::begin(kOps), std::end(kOps),
                                   [&](const auto& r) { return current().is_operator(r.first); });
    if (row == std::end(kOps)) return left;
    next();
    left = node(ExprKind::kBinary, std::move(left));
    left->binary = row->second;
    left->children.push_back(parse_power());
    left = finish(std::move(left));
  }
}

ExprPtr Parser::parse_power() {
  ExprPtr left = parse_unary();
  while (skip_operator("**")) {
    left = node(ExprKind::kBinary, std::move(left));
    left->binary = BinaryOp::kPower;
    left->children.push_back(parse_unary());
    left = finish(std::move(left));
  }
  return left;
}

ExprPtr Parser::parse_unary(bool with_filters) {
  ExprPtr expr;
  if (current().is_operator("-") || current().is_operator("+")) {
    const Nest nest(*this);
    const ExprKind kind = next().text == "-" ? ExprKind::kNegate : ExprKind::kPlus;
    expr = finish(node(kind, parse_unary(false)));
  } else {
    expr = parse_primary();
  }
  expr = parse_postfix(std::move(expr));
  return with_filters ? parse_filters(std::move(expr)) : std::move(expr);
}

ExprPtr Parser::parse_primary() {
  const Token& token = current();
  ExprPtr expr = node(ExprKind::kConst);
  switch (token.kind) {
    case TokenKind::kName:
      next();
      if (token.text == "true" || token.text == "True") {
        expr->constant = true;
      } else if (token.text == "false" || token.text == "False") {
        expr->constant = false;
      } else if (token.text == "none" || token.text == "None") {
        expr->constant = Value::none();
      } else {
        expr->kind = ExprKind::kName;
        expr->symbol = symbol(token.text);
        note_special(token.text, true);
      }
      return expr;
    case TokenKind::kString: {
      std::string text;
      while (current().kind == TokenKind::kString) text += next().text;
      expr->constant = Value(std::move(text));
      return expr;
    }
    case TokenKind::kInteger:
      expr->constant = integer_constant(next().text, token.line);
      return expr;
    case TokenKind::kFloat:
      expr->constant = std::strtod(next().text.c_str(), nullptr);
      return expr;
    case TokenKind::kOperator:
      if (token.text == "(") {
        next();
        expr = parse_tuple(true, true);
        expect_operator(")");
        return expr;
      }
      if (token.text == "[") return parse_list();
      if (token.text == "{") return parse_dict();
      break;
    default:
      break;
  }
  fail("unexpected '" + describe(token) + "'");
}

ExprPtr Parser::parse_list() {
  next();
  ExprPtr list = node(ExprKind::kList);
  while (!current().is_operator("]")) {
    if (!list->children.empty()) expect_operator(",");
    if (current().is_operator("]")) break;
    list->children.push_back(parse_expression());
  }
  expect_operator("]");
  return finish(std::move(list));
}

ExprPtr Parser::parse_dict() {
  next();
  ExprPtr dict = node(ExprKind::kDict);
  while (!current().is_operator("}")) {
    if (!dict->children.empty()) expect_operator(",");
    if (current().is_operator("}")) break;
    dict->children.push_back(parse_expression());
    expect_operator(":");
    dict->children.push_back(parse_expression());
  }
  expect_operator("}");
  return finish(std::move(dict));
}

bool Parser::is_tuple_end(std::string_view end_name) const {
  const TokenKind kind = current().kind;
  return kind == TokenKind::kPrintEnd || kind == TokenKind::kBlockEnd ||
         current().is_operator(")") || (!end_name.empty() && current().is_name(end_name));
}

ExprPtr Parser::parse_tuple(bool conditional, bool explicit_parentheses,
                            std::string_view end_name) {
  ExprPtr tuple = node(ExprKind::kTuple);
  bool is_tuple = false;
  for (;;) {
    if (!tuple->children.empty() && !skip_operator(",")) break;
    if (!tuple->children.empty()) is_tuple = true;
    if (is_tuple_end(end_name)) break;
    tuple->children.push_back(parse_expression(conditional));
  }
  if (!is_tuple) {
    if (!tuple->children.empty()) return std::move(tuple->children.front());
    if (!explicit_parentheses) fail("Expected an expression, got '" + describe(current()) + "'");
  }
  return finish(std::move(tuple));
}

ExprPtr Parser::parse_postfix(ExprPtr expr) {
  for (;;) {
    if (current().is_operator(".") || current().is_operator("[")) {
      expr = parse_subscript(std::move(expr));
    } else if (current().is_operator("(")) {
      expr = node(ExprKind::kCall, std::move(expr));
      parse_arguments(expr->args);
      expr = finish(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::parse_filters(ExprPtr expr) {
  for (;;) {
    if (current().is_operator("|")) {
      expr = parse_filter(std::move(expr));
    } else if (current().is_name("is")) {
      expr = parse_test(std::move(expr));
    } else if (current().is_operator("(")) {
      expr = node(ExprKind::kCall, std::move(expr));
      parse_arguments(expr->args);
      expr = finish(std::move(expr));
    } else {
      return expr;
    }
  }
}

std::string Parser::parse_dotted_name() {
  std::string name = expect(TokenKind::kName, "name").text;
  while (skip_operator(".")) name += "." + expect(TokenKind::kName, "name").text;
  return name;
}

ExprPtr Parser::parse_filter(ExprPtr input, bool first_without_pipe) {
  while (first_without_pipe || current().is_operator("|")) {
    if (!first_without_pipe) next();
    first_without_pipe = false;
    ExprPtr filter = node(ExprKind::kFilter, std::move(input));
    filter->name = parse_dotted_name();
    filter->filter = find_filter(filter->name);
    if (!filter->filter && conditional_ == 0)
      defer("TemplateAssertionError", "No filter named '" + filter->name + "'.", filter->line);
    if (current().is_operator("(")) parse_arguments(filter->args);
    input = finish(std::move(filter));
  }
  return input;
}

ExprPtr Parser::parse_test(ExprPtr input) {
  next();
  ExprPtr test = node(ExprKind::kTest, std::move(input));
  const bool negated = skip_name("not");
  test->name = parse_dotted_name();
  test->test = find_test(test->name);
  if (!test->test && conditional_ == 0)
    defer("TemplateAssertionError", "No test named '" + test->name + "'.", test->line);
  const Token& token = current();
  const bool operand = token.kind == TokenKind::kName || token.kind == TokenKind::kString ||
                       token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat ||
                       token.is_operator("[") || token.is_operator("{");
  if (token.is_operator("(")) {
    parse_arguments(test->args);
  } else if (operand && !token.is_name("else") && !token.is_name("or") && !token.is_name("and")) {
    if (token.is_name("is")) fail("You cannot chain multiple tests with is");
    test->args.positional.push_back(parse_postfix(parse_primary()));
  }
  test = finish(std::move(test));
  return negated ? finish(node(ExprKind::kNot, std::move(test))) : std::move(test);
}

ExprPtr Parser::parse_subscript(ExprPtr expr) {
  if (next().text == ".") {
    const Token& token = next();
    if (token.kind == TokenKind::kName) {
      ExprPtr attribute = node(ExprKind::kAttribute, std::move(expr));
      attribute->name = token.text;
      attribute->constant = Value(token.text);
      return finish(std::move(attribute));
    }
    if (token.kind != TokenKind::kInteger) fail("expected name or number");
    ExprPtr item = node(ExprKind::kItem, std::move(expr));
    item->children.push_back(node(ExprKind::kConst));
    item->children.back()->constant = integer_constant(token.text, token.line);
    return finish(std::move(item));
  }
  ExprPtr item = node(ExprKind::kItem, std::move(expr));
  std::vector<ExprPtr> indices;
  while (!current().is_operator("]")) {
    if (!indices.empty()) expect_operator(",");
    indices.push_back(parse_index());
  }
  expect_operator("]");
  if (indices.size() == 1) {
    item->children.push_back(std::move(indices.front()));
  } else {
    ExprPtr tuple = node(ExprKind::kTuple);
    tuple->children = std::move(indices);
    item->children.push_back(finish(std::move(tuple)));
  }
  return finish(std::move(item));
}

// An index or a slice: `a`, `a:b`, `a:b:c`, each part optional.
ExprPtr Parser::parse_index() {
  ExprPtr slice = node(ExprKind::kSlice);
  slice->children.resize(3);
  if (!current().is_operator(":")) {
    slice->children[0] = parse_expression();
    if (!current().is_operator(":")) return std::move(slice->children[0]);
  }
  for (std::size_t part = 1; part < 3 && skip_operator(":"); ++part)
    if (!current().is_operator(":") && !current().is_operator("]") && !current().is_operator(","))
      slice->children[part] = parse_expression();
  return finish(std::move(slice));
}

void Parser::parse_arguments(CallArgs& args) {
  const Nest nest(*this);
  expect_operator("(");
  bool first = true;
  while (!current().is_operator(")")) {
    if (!first) {
      expect_operator(",");
      if (current().is_operator(")")) break;
    }
    first = false;
    const bool valid_star = !args.star && !args.star_star;
    if (skip_operator("*")) {
      if (!valid_star) fail("invalid syntax for function call expression");
      args.star = parse_expression();
    } else if (skip_operator("**")) {
      if (args.star_star) fail("invalid syntax for function call expression");
      args.star_star = parse_expression();
    } else if (current().kind == TokenKind::kName && look().is_operator("=")) {
      if (args.star_star) fail("invalid syntax for function call expression");
      std::string name = next().text;
      next();
      if (std::any_of(args.named.begin(), args.named.end(),
                      [&](const auto& arg) { return arg.first == name; }))
        defer("SyntaxError", "keyword argument repeated: " + name, current().line);
      args.named.emplace_back(std::move(name), parse_expression());
    } else {
      if (!valid_star || !args.named.empty()) fail("invalid syntax for function call expression");
      args.positional.push_back(parse_expression());
    }
  }
  expect_operator(")");
}

ExprPtr Parser::parse_target_name(bool with_namespace) {
  if (current().is_operator("(")) {
    const Nest nest(*this);
    next();
    ExprPtr inner = parse_target(false);
    expect_operator(")");
    return inner;
  }
  ExprPtr target = node(ExprKind::kName);
  const Token& token = expect(TokenKind::kName, "name");
  static constexpr std::string_view kReserved[] = {"true", "false", "none",
                                                   "True", "False", "None"};
  if (std::find(std::begin(kReserved), std::end(kReserved), token.text) != std::end(kReserved))
    fail("can't assign to 'const'");
  if (fors_ > 0 && token.text == "loop" && !current().is_operator("."))
    defer("TemplateAssertionError", "Can't assign to special loop variable in for-loop target",
          token.line);
  target->symbol = symbol(token.text);
  note_special(token.text, false);
  if (with_namespace && current().is_operator(".")) {
    next();
    target->kind = ExprKind::kTargetAttribute;
    target->name = expect(TokenKind::kName, "name").text;
  }
  return target;
}

ExprPtr Parser::parse_target(bool with_namespace, std::string_view end_name) {
  ExprPtr first = parse_target_name(with_namespace);
  if (!current().is_operator(",")) return first;
  ExprPtr tuple = node(ExprKind::kTuple, std::move(first));
  while (skip_operator(",")) {
    if (is_tuple_end(end_name) || current().is_operator("=")) break;
    tuple->children.push_back(parse_target_name(with_namespace));
  }
  return finish(std::move(tuple));
}

}  // namespace sluice::jinja
