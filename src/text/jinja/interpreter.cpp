#include "text/jinja/interpreter.h"

#include <algorithm>

#include "text/jinja/filters.h"
#include "text/jinja/markup.h"
#include "text/jinja/operations.h"
#include "text/jinja/values/unicode.h"

namespace sluice::jinja {

// One level of nesting, with its scope and its output.
class Interpreter::Frame {
 public:
  Frame(Interpreter& in, std::shared_ptr<Scope> scope, std::string* out)
      : in_(in),
        scope_(std::exchange(in.scope_, std::move(scope))),
        out_(std::exchange(in.out_, out)) {}
  ~Frame() {
    in_.scope_ = std::move(scope_);
    in_.out_ = out_;
  }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

 private:
  Interpreter& in_;
  std::shared_ptr<Scope> scope_;
  std::string* out_;
};

// Sets autoescape during its lifetime.
class Interpreter::Escape {
 public:
  Escape(Interpreter& in, bool escapes, bool prints_escaped)
      : in_(in),
        escapes_(std::exchange(in.autoescape_, escapes)),
        prints_(std::exchange(in.prints_escaped_, prints_escaped)) {}
  ~Escape() {
    in_.autoescape_ = escapes_;
    in_.prints_escaped_ = prints_;
  }
  Escape(const Escape&) = delete;
  Escape& operator=(const Escape&) = delete;

 private:
  Interpreter& in_;
  bool escapes_, prints_;
};

Interpreter::Interpreter(const Program& program, std::vector<Value> context, const Limits& limits,
                         const Clock& clock)
    : program_(program),
      context_(std::move(context)),
      budget_(limits),
      clock_(clock),
      root_(std::make_shared<Scope>(nullptr)),
      scope_(root_) {}

Interpreter::~Interpreter() {
  for (const auto& scope : captured_scopes_) scope->values.clear();
  for (const Value& space : namespaces_) space.name_space_data().fields.clear();
}

std::string Interpreter::render() {
  try {
    unset(*root_, program_.unset);
    run(program_.body);
  } catch (TemplateError& error) {
    if (error.line() == 0) error.set_line(line_);
    throw;
  }
  return output_;
}

std::vector<std::pair<std::size_t, std::size_t>> Interpreter::generation_spans() const {
  std::vector<std::pair<std::size_t, std::size_t>> out;
  std::size_t byte = 0, point = 0;
  for (const auto& [start, count] : spans_) {
    point += count_code_points(std::string_view(output_).substr(byte, start - byte));
    byte = start;
    out.emplace_back(point, point + count);
  }
  return out;
}

Value Interpreter::make_namespace() {
  Value space = Value::name_space();
  namespaces_.push_back(space);
  return space;
}

Value Interpreter::lookup(int symbol) const {
  for (const Scope* scope = scope_.get(); scope; scope = scope->parent.get())
    if (const Value* value = scope->find(symbol)) return *value;
  const Value& global = context_[static_cast<std::size_t>(symbol)];
  if (!global.is_undefined()) return global;
  return Value::undefined("'" + program_.symbols[static_cast<std::size_t>(symbol)] +
                          "' is undefined");
}

bool Interpreter::has_block(std::string_view name) const {
  return program_.blocks.find(name) != program_.blocks.end();
}

Value Interpreter::block_text(std::string_view name) {
  if (++call_depth_ > budget_.limits().max_call_depth) raise_recursion();
  std::string text;
  {
    const Frame frame(*this, scope_, &text);
    run_block(*program_.blocks.find(name)->second, exported_scope());
  }
  --call_depth_;
  return safe_if_escaped(std::move(text));
}

// The names of the template that have a value by now.
std::shared_ptr<Scope> Interpreter::exported_scope() const {
  auto scope = std::make_shared<Scope>(nullptr);
  for (const auto& [symbol, value] : root_->values) {
    const auto index = static_cast<std::size_t>(symbol);
    const bool is_unset = index < unset_.size() && value.is_undefined() && value.identity() &&
                          value.identity() == unset_[index].identity();
    if (!is_unset) scope->set(symbol, value);
  }
  return scope;
}

void Interpreter::run_block(const Stmt& stmt, const std::shared_ptr<Scope>& outer) {
  auto inner = std::make_shared<Scope>(outer);
  unset(*inner, stmt.unset[0]);
  const Frame frame(*this, inner, out_);
  const Escape escape(*this, autoescape_, false);
  run(stmt.bodies[0]);
}

void Interpreter::unset(Scope& scope, const std::vector<int>& symbols) {
  for (const int symbol : symbols) {
    const auto index = static_cast<std::size_t>(symbol);
    if (unset_.size() <= index) unset_.resize(index + 1);
    if (!unset_[index].identity())
      unset_[index] = Value::undefined("'" + program_.symbols[index] + "' is undefined");
    scope.set(symbol, unset_[index]);
  }
}

std::shared_ptr<Scope> Interpreter::new_scope() {
  return std::make_shared<Scope>(scope_);
}

void Interpreter::write(std::string_view text) {
  budget_.charge_bytes(text.size());
  if (out_ == &output_ && output_.size() + text.size() > budget_.limits().max_output_bytes)
    throw TemplateError(ErrorKind::kFuel, "FuelError",
                        "the template renders more than " +
                            std::to_string(budget_.limits().max_output_bytes) + " bytes");
  *out_ += text;
}

void Interpreter::write_value(const Value& value) {
  if (prints_escaped_ && !is_markup(value)) {
    write(escaped_text(value, budget_));
  } else if (value.is_string()) {
    write(value.text());
  } else {
    write(to_text(value, budget_));
  }
}

// jinja2 joins the results of filter blocks with the texts around them, and does not convert them.
void Interpreter::write_filtered(const Value& value) {
  if (!value.is_string())
    raise_type_error("sequence item: expected str instance, " + type_name(value) + " found");
  write(value.text());
}

Interpreter::Signal Interpreter::run(const Body& body) {
  for (const auto& stmt : body) {
    const Signal signal = run(*stmt);
    if (signal != Signal::kNormal) return signal;
  }
  return Signal::kNormal;
}

Interpreter::Signal Interpreter::run(const Stmt& stmt) {
  budget_.charge();
  line_ = stmt.line;
  if (++depth_ > budget_.limits().max_depth) raise_recursion();
  Signal signal = Signal::kNormal;
  switch (stmt.kind) {
    case StmtKind::kText:
      write(stmt.text);
      break;
    case StmtKind::kPrint:
      write_value(eval(*stmt.expr));
      break;
    case StmtKind::kIf:
      signal = run_if(stmt);
      break;
    case StmtKind::kFor:
      run_for(stmt, scope_, eval(*stmt.expr), 0);
      break;
    case StmtKind::kSet:
      check_target(*stmt.target);
      assign(*stmt.target, eval(*stmt.expr));
      break;
    case StmtKind::kSetBlock:
      signal = run_set_block(stmt);
      break;
    case StmtKind::kMacro:
      captured_scopes_.push_back(scope_);
      scope_->set(stmt.symbol, Value::callable(std::make_shared<Callable>(stmt.macro, scope_)));
      break;
    case StmtKind::kCallBlock:
      run_call_block(stmt);
      break;
    case StmtKind::kFilterBlock:
      signal = run_filter_block(stmt);
      break;
    case StmtKind::kWith:
      signal = run_with(stmt);
      break;
    case StmtKind::kAutoescape:
      signal = run_autoescape(stmt);
      break;
    case StmtKind::kGeneration:
      run_generation(stmt);
      break;
    case StmtKind::kBlock:
      run_block(stmt, stmt.scoped ? scope_ : exported_scope());
      break;
    case StmtKind::kBreak:
      signal = Signal::kBreak;
      break;
    case StmtKind::kContinue:
      signal = Signal::kContinue;
      break;
    case StmtKind::kNoLoader:
      raise_type_error("no loader for this environment specified");
  }
  --depth_;
  return signal;
}

Interpreter::Signal Interpreter::run_if(const Stmt& stmt) {
  for (std::size_t i = 0; i < stmt.exprs.size(); ++i)
    if (truthy(eval(*stmt.exprs[i]))) return run(stmt.bodies[i]);
  return stmt.bodies.size() > stmt.exprs.size() ? run(stmt.bodies.back()) : Signal::kNormal;
}

void Interpreter::run_for(const Stmt& stmt, const std::shared_ptr<Scope>& scope, Value iterable,
                          int depth) {
  auto loop = std::make_shared<Loop>(*this, stmt, scope, std::move(iterable), depth);
  const Value loop_value = Value::loop(loop);
  struct Finish {
    Loop& loop;
    ~Finish() { loop.finish(); }
  } const finish{*loop};
  bool any = false;
  std::shared_ptr<Scope> inner;
  while (loop->advance()) {
    if (inner && inner.use_count() == 1) {
      inner->values.resize(1);
      if (inner->values[0].second.identity() != loop_value.identity())
        inner->values[0].second = loop_value;  // the body set `loop`
    } else {
      inner = std::make_shared<Scope>(scope);
      inner->set(kSymbolLoop, loop_value);
    }
    unset(*inner, stmt.unset[0]);
    const Frame frame(*this, inner, out_);
    assign(*stmt.target, loop->current());
    const Signal signal = run(stmt.bodies[0]);
    // As in jinja2: an iteration that a break or continue ends does not keep the else away.
    any |= signal == Signal::kNormal;
    if (signal == Signal::kBreak) break;
  }
  if (any || stmt.bodies.size() < 2) return;
  inner = std::make_shared<Scope>(scope);
  unset(*inner, stmt.unset[1]);
  const Frame frame(*this, inner, out_);
  run(stmt.bodies[1]);
}

bool Interpreter::loop_condition(const Stmt& stmt, const std::shared_ptr<Scope>& scope,
                                 Value& item) {
  const Frame frame(*this, std::make_shared<Scope>(scope), out_);
  assign(*stmt.target, item);
  if (!truthy(eval(*stmt.condition))) return false;
  if (stmt.target->kind != ExprKind::kName) item = eval(*stmt.target);
  return true;
}

// The text of a body; a break or continue drops it.
Interpreter::Signal Interpreter::capture(const Stmt& stmt, std::string& text) {
  auto inner = new_scope();
  unset(*inner, stmt.unset[0]);
  const Frame frame(*this, inner, &text);
  return run(stmt.bodies[0]);
}

Interpreter::Signal Interpreter::run_filter_block(const Stmt& stmt) {
  std::string text;
  const Signal signal = capture(stmt, text);
  if (signal == Signal::kNormal)
    write_filtered(eval_filter_chain(*stmt.expr, safe_if_escaped(std::move(text))));
  return signal;
}

Value Interpreter::safe_if_escaped(std::string text) const {
  return autoescape_ ? Value::markup(std::move(text)) : Value(std::move(text));
}

Interpreter::Signal Interpreter::run_autoescape(const Stmt& stmt) {
  const bool escapes = truthy(eval(*stmt.expr));
  const Escape escape(*this, escapes, escapes);
  auto inner = new_scope();
  unset(*inner, stmt.unset[0]);
  const Frame frame(*this, inner, out_);
  return run(stmt.bodies[0]);
}

Interpreter::Signal Interpreter::run_set_block(const Stmt& stmt) {
  std::string text;
  const Signal signal = capture(stmt, text);
  if (signal != Signal::kNormal) return signal;
  Value value = safe_if_escaped(std::move(text));
  if (stmt.expr) value = eval_filter_chain(*stmt.expr, value);
  assign(*stmt.target, value);
  return signal;
}

void Interpreter::run_call_block(const Stmt& stmt) {
  captured_scopes_.push_back(scope_);
  Arguments arguments = eval_arguments(stmt.expr->args);
  // Between the named arguments and those of **map.
  arguments.named.emplace(
      arguments.named.begin() + static_cast<std::ptrdiff_t>(stmt.expr->args.named.size()), "caller",
      Value::callable(std::make_shared<Callable>(stmt.macro, scope_)));
  write_value(call(eval(*stmt.expr->children[0]), arguments));
}

Interpreter::Signal Interpreter::run_with(const Stmt& stmt) {
  auto inner = new_scope();
  for (std::size_t i = 0; i < stmt.targets.size(); ++i)
    inner->set(stmt.targets[i]->symbol, eval(*stmt.exprs[i]));
  unset(*inner, stmt.unset[0]);
  const Frame frame(*this, inner, out_);
  return run(stmt.bodies[0]);
}

void Interpreter::run_generation(const Stmt& stmt) {
  std::string text;
  capture(stmt, text);
  spans_.emplace_back(output_.size(), count_code_points(text));
  write(text);
}

// A namespace is looked up before the value is evaluated.
void Interpreter::check_target(const Expr& target) const {
  if (target.kind == ExprKind::kTargetAttribute && !lookup(target.symbol).is(Type::kNamespace))
    raise_runtime("cannot assign attribute on non-namespace object");
  if (target.kind != ExprKind::kTuple) return;
  for (const ExprPtr& child : target.children) check_target(*child);
}

void Interpreter::assign(const Expr& target, const Value& value) {
  switch (target.kind) {
    case ExprKind::kName:
      scope_->set(target.symbol, value);
      return;
    case ExprKind::kTargetAttribute: {
      check_target(target);
      const Value space = lookup(target.symbol);
      if (target.name.starts_with('_'))
        raise_security(
            "Chat templates cannot store underscore-prefixed attributes on a namespace, but got '" +
            target.name + "'. Please rename the attribute.");
      space.name_space_data().set(target.name, value);
      return;
    }
    default:
      break;
  }
  if (value.is_undefined() && !value.identity()) value.fail_undefined();
  if (!is_iterable(value))
    raise_type_error("cannot unpack non-iterable " + type_name(value) + " object");
  const std::vector<Value> items = iterate(value, budget_);
  const std::size_t wanted = target.children.size();
  if (items.size() < wanted)
    raise_value_error("not enough values to unpack (expected " + std::to_string(wanted) + ", got " +
                      std::to_string(items.size()) + ")");
  if (items.size() > wanted)
    raise_value_error("too many values to unpack (expected " + std::to_string(wanted) + ")");
  for (std::size_t i = 0; i < wanted; ++i) assign(*target.children[i], items[i]);
}

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  if (callee.is_undefined()) callee.fail_undefined();
  if (callee.is(Type::kCallable)) return callee.callable().call(*this, arguments);
  if (!callee.is(Type::kLoop))
    raise_type_error("'" + type_name(callee) + "' object is not callable");
  Loop& loop = callee.loop();
  if (!loop.scope()) raise_type_error("the loop is over");
  if (!loop.stmt().recursive)
    raise_type_error("The loop must have the 'recursive' marker to be called recursively.");
  if (arguments.positional.size() != 1) raise_type_error("loop() takes one argument");
  if (++call_depth_ > budget_.limits().max_call_depth) raise_recursion();
  std::string text;
  {
    const Frame frame(*this, scope_, &text);
    run_for(loop.stmt(), loop.scope(), arguments.positional[0], loop.depth() + 1);
  }
  --call_depth_;
  return safe_if_escaped(std::move(text));
}

Value Interpreter::call_macro(Callable& callable, const Arguments& arguments) {
  const MacroSpec& macro = callable.macro();
  if (++call_depth_ > budget_.limits().max_call_depth) raise_recursion();
  auto inner = std::make_shared<Scope>(callable.scope());
  unset(*inner, macro.unset);
  const std::size_t params = macro.params.size(), given = arguments.positional.size();
  std::string text;
  const Frame frame(*this, inner, &text);
  // A default may read the other parameters; one without a value yet is undefined.
  const std::size_t first_default = params - macro.defaults.size();
  for (std::size_t i = 0; i < params; ++i) {
    const Value* value = arguments.find(i, macro.params[i]);
    inner->set(macro.symbols[i],
               value ? *value
                     : Value::undefined(i < first_default
                                            ? "parameter '" + macro.params[i] + "' was not provided"
                                            : "'" + macro.params[i] + "' is undefined"));
  }
  for (std::size_t i = first_default; i < params; ++i)
    if (!arguments.find(i, macro.params[i]))
      inner->set(macro.symbols[i], eval(*macro.defaults[i - first_default]));
  DictData extra;
  const bool explicit_caller =
      std::find(macro.params.begin(), macro.params.end(), "caller") != macro.params.end();
  bool has_caller = false;
  for (const auto& [name, value] : arguments.named) {
    bool known = false;
    for (std::size_t i = std::min(given, params); i < params; ++i) known |= macro.params[i] == name;
    if (known) continue;
    if (name == "caller" && macro.uses_caller && !explicit_caller) {
      has_caller = true;
      inner->set(kSymbolCaller, value);
    } else if (macro.uses_kwargs) {
      extra.set(Value(name), value, budget_);
    } else {
      raise_type_error("macro '" + macro.name + "' takes no keyword argument '" + name + "'");
    }
  }
  if (macro.uses_caller && !has_caller && !explicit_caller)
    inner->set(kSymbolCaller, Value::undefined("No caller defined"));
  if (macro.uses_kwargs) inner->set(kSymbolKwargs, Value::dict(std::move(extra)));
  if (macro.uses_varargs) {
    std::vector<Value> rest;
    for (std::size_t i = params; i < given; ++i) rest.push_back(arguments.positional[i]);
    inner->set(kSymbolVarargs, Value::tuple(std::move(rest)));
  } else if (given > params) {
    raise_type_error("macro '" + macro.name + "' takes not more than " + std::to_string(params) +
                     " argument(s)");
  }
  {
    const Escape escape(*this, autoescape_, macro.escapes.value_or(autoescape_));
    run(macro.body);
  }
  --call_depth_;
  return safe_if_escaped(std::move(text));
}

Value Interpreter::run_filter(std::string_view name, const Value& input,
                              const Arguments& arguments) {
  budget_.charge();
  const FilterRow* row = find_filter(name);
  if (!row) raise_runtime("No filter named '" + std::string(name) + "'.");
  return row->apply(*this, input, arguments);
}

bool Interpreter::run_test(std::string_view name, const Value& input, const Arguments& arguments) {
  budget_.charge();
  const TestRow* row = find_test(name);
  if (!row) raise_runtime("No test named '" + std::string(name) + "'.");
  return row->call(*this, input, arguments);
}

}  // namespace sluice::jinja
