#include "text/jinja/values/callable.h"

#include <algorithm>

#include "text/jinja/ast.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/values/unicode.h"

namespace sluice::jinja {

const Value* Arguments::find(std::size_t position, std::string_view name) const {
  if (position < positional.size()) return &positional[position];
  for (const auto& [key, value] : named)
    if (key == name) return &value;
  return nullptr;
}

void Arguments::check(std::string_view function,
                      std::initializer_list<std::string_view> names) const {
  if (positional.size() > names.size())
    raise_type_error(std::string(function) + "() takes at most " + std::to_string(names.size()) +
                     " arguments (" + std::to_string(positional.size()) + " given)");
  for (const auto& [key, value] : named) {
    const auto* at = std::find(names.begin(), names.end(), key);
    if (at == names.end())
      raise_type_error(std::string(function) + "() got an unexpected keyword argument '" + key +
                       "'");
    if (static_cast<std::size_t>(at - names.begin()) < positional.size())
      raise_type_error(std::string(function) + "() got multiple values for argument '" + key + "'");
  }
}

const Value* Scope::find(int symbol) const {
  for (const auto& [id, value] : values)
    if (id == symbol) return &value;
  return nullptr;
}

void Scope::set(int symbol, Value value) {
  for (auto& [id, old] : values) {
    if (id != symbol) continue;
    old = std::move(value);
    return;
  }
  values.emplace_back(symbol, std::move(value));
}

Callable::Callable(const MacroSpec& macro, std::shared_ptr<Scope> scope)
    : name_(macro.name), macro_(&macro), scope_(std::move(scope)) {}

std::string Callable::representation() const {
  if (macro_) return name_.empty() ? "<Macro anonymous>" : "<Macro '" + name_ + "'>";
  return (self_.is_undefined() ? "<function " : "<built-in method ") + name_ + ">";
}

int Callable::depth() const {
  int depth = depth_of(self_);
  for (const Value& item : items) depth = std::max(depth, depth_of(item));
  return depth + 1;
}

Value Callable::call(Interpreter& interpreter, const Arguments& arguments) {
  if (macro_) return interpreter.call_macro(*this, arguments);
  return function_(interpreter, *this, arguments);
}

Loop::Loop(Interpreter& interpreter, const Stmt& stmt, std::shared_ptr<Scope> scope, Value iterable,
           int depth)
    : interpreter_(interpreter),
      stmt_(stmt),
      scope_(std::move(scope)),
      iterable_(std::move(iterable)),
      depth_(depth) {
  switch (iterable_.type()) {
    case Type::kSequence:
    case Type::kDict:
    case Type::kRange:
    case Type::kIterator:
      break;
    default:
      items_ = iterate(iterable_, interpreter_.budget());
      iterable_ = Value::none();
  }
  if (!stmt_.condition && !iterable_.is(Type::kIterator)) {
    has_length_ = true;
    length_ = iterable_.is_none() ? items_.size() : length_of(iterable_);
  }
}

bool Loop::fetch_any(Value& item) {
  interpreter_.budget().charge(2);  // the item, and the scope of the round
  const std::size_t at = cursor_++;
  switch (iterable_.type()) {
    case Type::kSequence:
      if (at >= iterable_.items().size()) return false;
      item = iterable_.items()[at];
      return true;
    case Type::kDict:
      if (at >= iterable_.dict().entries.size()) return false;
      item = iterable_.dict().entries[at].first;
      return true;
    case Type::kRange:
      if (at >= static_cast<std::size_t>(iterable_.range().size())) return false;
      item = iterable_.range().at(static_cast<std::int64_t>(at));
      return true;
    case Type::kIterator: {
      IteratorData& data = iterable_.iterator();
      if (data.next >= data.items.size() && data.error)
        std::rethrow_exception(std::exchange(data.error, nullptr));
      if (data.next >= data.items.size()) return false;
      item = data.items[data.next++];
      return true;
    }
    default:
      if (at >= items_.size()) return false;
      item = items_[at];
      return true;
  }
}

bool Loop::fetch(Value& item) {
  while (fetch_any(item))
    if (!stmt_.condition || interpreter_.loop_condition(stmt_, scope_, item)) return true;
  return false;
}

bool Loop::look_ahead() {
  if (!ahead_.empty()) return true;
  Value item;
  if (!fetch(item)) return false;
  ahead_.push_back(std::move(item));
  return true;
}

bool Loop::advance() {
  Value item;
  if (!ahead_.empty()) {
    item = std::move(ahead_.front());
    ahead_.pop_front();
  } else if (!fetch(item)) {
    return false;
  }
  previous_ = std::move(current_);
  current_ = std::move(item);
  ++index0_;
  return true;
}

void Loop::finish() {
  length_ = has_length_ ? length_ : static_cast<std::size_t>(index0_ + 1);
  has_length_ = true;
  scope_.reset();
  iterable_ = Value::none();
  items_.clear();
  ahead_.clear();
  previous_ = current_ = Value();
}

std::size_t Loop::length() {
  if (!has_length_) {
    for (Value item; fetch(item);) ahead_.push_back(item);
    length_ = static_cast<std::size_t>(index0_ + 1) + ahead_.size();
    has_length_ = true;
  }
  return length_;
}

std::string Loop::representation() {
  return "<LoopContext " + std::to_string(index0_ + 1) + "/" + std::to_string(length()) + ">";
}

Value Loop::attribute(std::string_view name, bool& found) {
  found = true;
  if (name == "index") return index0_ + 1;
  if (name == "index0") return index0_;
  if (name == "first") return index0_ == 0;
  if (name == "last") return !look_ahead();
  if (name == "length") return length();
  if (name == "revindex") return static_cast<std::int64_t>(length()) - index0_;
  if (name == "revindex0") return static_cast<std::int64_t>(length()) - index0_ - 1;
  if (name == "depth") return depth_ + 1;
  if (name == "depth0") return depth_;
  if (name == "previtem")
    return index0_ == 0 ? Value::undefined("there is no previous item") : previous_;
  if (name == "nextitem")
    return look_ahead() ? ahead_.front() : Value::undefined("there is no next item");
  found = false;
  return {};
}

Value Loop::cycle(const Arguments& arguments) const {
  if (arguments.positional.empty()) raise_type_error("no items for cycling given");
  return arguments.positional[static_cast<std::size_t>(index0_) % arguments.positional.size()];
}

bool Loop::changed(const Arguments& arguments, Budget& budget) {
  std::string now = to_repr(Value::tuple(arguments.positional), budget);
  if (now == last_changed_) return false;
  last_changed_ = std::move(now);
  return true;
}

}  // namespace sluice::jinja
