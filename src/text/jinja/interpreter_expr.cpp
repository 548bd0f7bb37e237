// The expression half of the interpreter.
#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/markup.h"
#include "text/jinja/operations.h"

namespace sluice::jinja {
namespace {

bool compare(CompareOp op, const Value& a, const Value& b, Budget& budget) {
  switch (op) {
    case CompareOp::kEqual:
      return equal(a, b, budget);
    case CompareOp::kNotEqual:
      return !equal(a, b, budget);
    case CompareOp::kLess:
      return ordered(a, b, Order::kLess, budget);
    case CompareOp::kLessEqual:
      return ordered(a, b, Order::kLessEqual, budget);
    case CompareOp::kGreater:
      return ordered(a, b, Order::kGreater, budget);
    case CompareOp::kGreaterEqual:
      return ordered(a, b, Order::kGreaterEqual, budget);
    case CompareOp::kIn:
      return contains(b, a, budget);
    case CompareOp::kNotIn:
      return !contains(b, a, budget);
  }
  return false;
}

}  // namespace

Value Interpreter::eval(const Expr& expr) {
  budget_.charge();
  if (++depth_ > budget_.limits().max_depth) raise_recursion();
  Value value = eval_node(expr);
  --depth_;
  return value;
}

Value Interpreter::eval_node(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kConst:
      return expr.constant;
    case ExprKind::kName:
      return lookup(expr.symbol);
    case ExprKind::kList:
    case ExprKind::kTuple:
      return eval_sequence(expr);
    case ExprKind::kDict:
      return eval_dict(expr);
    case ExprKind::kAttribute:
      return get_attribute(*this, eval(*expr.children[0]), expr.name);
    case ExprKind::kItem:
      return eval_item(expr);
    case ExprKind::kCall:
      return eval_call(expr);
    case ExprKind::kFilter:
      return eval_filter(expr, eval(*expr.children[0]));
    case ExprKind::kTest:
      return eval_test(expr);
    case ExprKind::kNegate:
      return negate(eval(*expr.children[0]));
    case ExprKind::kPlus: {
      const Value value = eval(*expr.children[0]);
      if (value.is_undefined()) value.fail_undefined();
      if (!value.is_number())
        raise_type_error("bad operand type for unary +: '" + type_name(value) + "'");
      return value.is(Type::kBool) ? Value(value.integer()) : value;
    }
    case ExprKind::kNot:
      return !truthy(eval(*expr.children[0]));
    case ExprKind::kBinary: {
      const Value left = eval(*expr.children[0]);
      return binary(expr.binary, left, eval(*expr.children[1]), budget_);
    }
    case ExprKind::kAnd: {
      Value left = eval(*expr.children[0]);
      return truthy(left) ? eval(*expr.children[1]) : left;
    }
    case ExprKind::kOr: {
      Value left = eval(*expr.children[0]);
      return truthy(left) ? left : eval(*expr.children[1]);
    }
    case ExprKind::kConcat:
      return eval_concat(expr);
    case ExprKind::kCompare:
      return eval_compare(expr);
    case ExprKind::kConditional:
      if (truthy(eval(*expr.children[0]))) return eval(*expr.children[1]);
      if (expr.children[2]) return eval(*expr.children[2]);
      return Value::undefined("the inline if-expression on line " + std::to_string(expr.line) +
                              " evaluated to false and no else section was defined.");
    case ExprKind::kSlice:
      raise_type_error("a slice cannot stand here");
    case ExprKind::kTargetAttribute:
      break;
  }
  return {};
}

Value Interpreter::eval_sequence(const Expr& expr) {
  std::vector<Value> items;
  items.reserve(expr.children.size());
  for (const auto& child : expr.children) items.push_back(eval(*child));
  return Value::list(std::move(items),
                     expr.kind == ExprKind::kList ? SequenceKind::kList : SequenceKind::kTuple);
}

Value Interpreter::eval_dict(const Expr& expr) {
  DictData data;
  for (std::size_t i = 0; i + 1 < expr.children.size(); i += 2) {
    const Value key = eval(*expr.children[i]);
    data.set(key, eval(*expr.children[i + 1]), budget_);
  }
  return Value::dict(std::move(data));
}

Value Interpreter::eval_item(const Expr& expr) {
  const Value object = eval(*expr.children[0]);
  const Expr& index = *expr.children[1];
  if (index.kind != ExprKind::kSlice) return get_item(*this, object, eval(index));
  Value parts[3];
  for (std::size_t i = 0; i < 3; ++i)
    parts[i] = index.children[i] ? eval(*index.children[i]) : Value::none();
  return get_slice(object, parts[0], parts[1], parts[2], budget_);
}

Arguments Interpreter::eval_arguments(const CallArgs& args) {
  Arguments out;
  out.positional.reserve(args.positional.size());
  for (const auto& arg : args.positional) out.positional.push_back(eval(*arg));
  if (args.star)
    for (Value& item : iterate(eval(*args.star), budget_))
      out.positional.push_back(std::move(item));
  for (const auto& [name, arg] : args.named) out.named.emplace_back(name, eval(*arg));
  if (args.star_star) {
    const Value map = eval(*args.star_star);
    if (!map.is_dict())
      raise_type_error("argument after ** must be a mapping, not " + type_name(map));
    for (const auto& [key, value] : map.dict().entries) {
      if (!key.is_string()) raise_type_error("keywords must be strings");
      out.named.emplace_back(key.text(), value);
    }
  }
  return out;
}

Value Interpreter::eval_call(const Expr& expr) {
  const Value callee = eval(*expr.children[0]);
  const Arguments arguments = eval_arguments(expr.args);
  const int line = expr.line;
  Value result = call(callee, arguments);
  line_ = line;
  return result;
}

Value Interpreter::eval_filter(const Expr& expr, const Value& input) {
  if (!expr.filter) raise_runtime("No filter named '" + expr.name + "'.");
  return expr.filter->apply(*this, input, eval_arguments(expr.args));
}

// A chain without an innermost input in the tree: the chain of a filter block.
Value Interpreter::eval_filter_chain(const Expr& expr, const Value& input) {
  std::vector<const Expr*> chain;
  for (const Expr* at = &expr; at; at = at->children[0].get()) chain.push_back(at);
  Value value = input;
  for (auto at = chain.rbegin(); at != chain.rend(); ++at) value = eval_filter(**at, value);
  return value;
}

Value Interpreter::eval_test(const Expr& expr) {
  const Value input = eval(*expr.children[0]);
  if (!expr.test) raise_runtime("No test named '" + expr.name + "'.");
  return expr.test->call(*this, input, eval_arguments(expr.args));
}

Value Interpreter::eval_concat(const Expr& expr) {
  std::vector<Value> parts;
  bool markup = false;
  for (const auto& child : expr.children) {
    parts.push_back(eval(*child));
    markup |= prints_escaped_ && is_markup(parts.back());
  }
  std::string text;
  for (const Value& part : parts)
    text += markup ? escaped_text(part, budget_) : to_text(part, budget_);
  budget_.charge_bytes(text.size());
  return markup ? Value::markup(std::move(text)) : Value(std::move(text));
}

Value Interpreter::eval_compare(const Expr& expr) {
  Value left = eval(*expr.children[0]);
  for (std::size_t i = 0; i < expr.compare.size(); ++i) {
    Value right = eval(*expr.children[i + 1]);
    if (!compare(expr.compare[i], left, right, budget_)) return false;
    left = std::move(right);
  }
  return true;
}

}  // namespace sluice::jinja
