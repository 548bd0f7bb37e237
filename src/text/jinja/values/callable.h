// The callable values of a template, and the state of a running for loop.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/values/value.h"

namespace sluice::jinja {

class Interpreter;
struct MacroSpec;
struct Stmt;

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // The argument by position or name; nullptr if it was not given.
  const Value* find(std::size_t position, std::string_view name) const;
  // Raises a TypeError for an argument outside `names` (in order of position).
  void check(std::string_view function, std::initializer_list<std::string_view> names) const;
};

// Variables of a block with its own scope.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> outer) : parent(std::move(outer)) {}
  const Value* find(int symbol) const;  // in this scope only
  void set(int symbol, Value value);

  std::shared_ptr<Scope> parent;
  std::vector<std::pair<int, Value>> values;
};

class Callable {
 public:
  using Function = Value (*)(Interpreter&, Callable&, const Arguments&);

  Callable(std::string name, Function function, Value self = {})
      : name_(std::move(name)), function_(function), self_(std::move(self)) {}
  Callable(const MacroSpec& macro, std::shared_ptr<Scope> scope);

  bool is_macro() const { return macro_ != nullptr; }
  const MacroSpec& macro() const { return *macro_; }
  const std::shared_ptr<Scope>& scope() const { return scope_; }
  const std::string& name() const { return name_; }
  const Value& self() const { return self_; }
  std::string representation() const;
  int depth() const;  // depth of the values in it, plus one
  Value call(Interpreter& interpreter, const Arguments& arguments);

  // State of a joiner or cycler.
  std::vector<Value> items;
  std::size_t position = 0;

 private:
  std::string name_;
  Function function_ = nullptr;
  Value self_;
  const MacroSpec* macro_ = nullptr;
  std::shared_ptr<Scope> scope_;
};

// `loop`: iterates over an iterable, skips items for which the loop's condition is false, and looks
// ahead only on demand.
class Loop {
 public:
  Loop(Interpreter& interpreter, const Stmt& stmt, std::shared_ptr<Scope> scope, Value iterable,
       int depth);

  bool advance();  // to the next item; false at the end
  void finish();   // releases everything it holds, which may include the loop itself
  const Value& current() const { return current_; }
  Value attribute(std::string_view name, bool& found);
  std::size_t length();
  std::string representation();

  const Stmt& stmt() const { return stmt_; }
  const std::shared_ptr<Scope>& scope() const { return scope_; }
  int depth() const { return depth_; }
  Value cycle(const Arguments& arguments) const;
  bool changed(const Arguments& arguments, Budget& budget);

 private:
  bool fetch(Value& item);
  bool fetch_any(Value& item);
  bool look_ahead();

  Interpreter& interpreter_;
  const Stmt& stmt_;
  std::shared_ptr<Scope> scope_;
  Value iterable_;
  std::vector<Value> items_;  // items of an iterable that cannot be indexed
  std::size_t cursor_ = 0;
  int depth_;
  std::int64_t index0_ = -1;
  Value previous_, current_;
  bool has_length_ = false;
  std::size_t length_ = 0;
  std::deque<Value> ahead_;
  std::string last_changed_;
};

}  // namespace sluice::jinja
