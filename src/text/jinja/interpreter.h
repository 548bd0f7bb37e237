// One render of a Program.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/values/callable.h"
#include "text/jinja/values/value.h"

namespace sluice::jinja {

// The clock of strftime_now: local time.
struct Clock {
  int year = 1970, month = 1, day = 1, hour = 0, minute = 0, second = 0;
};

class Interpreter {
 public:
  // `context[i]` is the value of program.symbols[i], or undefined. Both arguments outlive the
  // interpreter.
  Interpreter(const Program& program, std::vector<Value> context, const Limits& limits,
              const Clock& clock);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  std::string render();
  // Code point ranges of the generation blocks of the last render.
  std::vector<std::pair<std::size_t, std::size_t>> generation_spans() const;

  Budget& budget() { return budget_; }
  const Clock& clock() const { return clock_; }
  int line() const { return line_; }
  // Inside {% autoescape true %}.
  bool autoescape() const { return autoescape_; }

  Value call(const Value& callee, const Arguments& arguments);
  Value call_macro(Callable& macro, const Arguments& arguments);
  Value run_filter(std::string_view name, const Value& input, const Arguments& arguments);
  bool run_test(std::string_view name, const Value& input, const Arguments& arguments);
  // An item with several targets becomes a tuple of them, as jinja2's filter of a loop yields it.
  bool loop_condition(const Stmt& stmt, const std::shared_ptr<Scope>& scope, Value& item);
  Value make_namespace();
  // Of {% block name %}, for `self.name()`.
  bool has_block(std::string_view name) const;
  Value block_text(std::string_view name);

 private:
  enum class Signal { kNormal, kBreak, kContinue };
  class Frame;

  Signal run(const Body& body);
  Signal run(const Stmt& stmt);
  Signal run_if(const Stmt& stmt);
  void run_for(const Stmt& stmt, const std::shared_ptr<Scope>& scope, Value iterable, int depth);
  Signal run_set_block(const Stmt& stmt);
  Signal run_filter_block(const Stmt& stmt);
  void run_call_block(const Stmt& stmt);
  Signal run_with(const Stmt& stmt);
  void run_generation(const Stmt& stmt);
  Signal run_autoescape(const Stmt& stmt);
  void run_block(const Stmt& stmt, const std::shared_ptr<Scope>& outer);
  Signal capture(const Stmt& stmt, std::string& text);
  Value safe_if_escaped(std::string text) const;
  void write(std::string_view text);
  void write_value(const Value& value);
  void write_filtered(const Value& value);
  void check_target(const Expr& target) const;
  void assign(const Expr& target, const Value& value);
  Value lookup(int symbol) const;
  std::shared_ptr<Scope> new_scope();
  void unset(Scope& scope, const std::vector<int>& symbols);
  std::shared_ptr<Scope> exported_scope() const;

  class Escape;

  Value eval(const Expr& expr);
  Value eval_node(const Expr& expr);
  Value eval_sequence(const Expr& expr);
  Value eval_dict(const Expr& expr);
  Value eval_item(const Expr& expr);
  Value eval_call(const Expr& expr);
  Value eval_filter(const Expr& expr, const Value& input);
  Value eval_filter_chain(const Expr& expr, const Value& input);
  Value eval_test(const Expr& expr);
  Value eval_concat(const Expr& expr);
  Value eval_compare(const Expr& expr);
  Arguments eval_arguments(const CallArgs& args);

  const Program& program_;
  const std::vector<Value> context_;
  Budget budget_;
  const Clock clock_;
  std::string output_;
  std::string* out_ = &output_;
  std::shared_ptr<Scope> root_, scope_;
  std::vector<std::shared_ptr<Scope>>
      captured_scopes_;       // cleared at the end, because closures and scopes can form cycles
  std::vector<Value> unset_;  // by symbol: the undefined value of a name that is set later
  std::vector<Value> namespaces_;                           // cleared at the end too
  std::vector<std::pair<std::size_t, std::size_t>> spans_;  // byte offset, code points
  int line_ = 0;
  // Values are escaped where they are called (filters, macros), and where the template prints them:
  // a macro prints as the place of its definition does.
  bool autoescape_ = false, prints_escaped_ = false;
  int depth_ = 0;
  int call_depth_ = 0;
};

}  // namespace sluice::jinja
