// obj.name and obj[index].
#include <algorithm>
#include <array>
#include <cmath>

#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/markup.h"
#include "text/jinja/number_methods.h"
#include "text/jinja/operations.h"
#include "text/jinja/text_coding.h"
#include "text/jinja/values/unicode.h"

namespace sluice::jinja {
namespace {

struct MethodRow {
  std::string_view name;
  Callable::Function function;
};

Value dict_get(Interpreter& in, Callable& c, const Arguments& a) {
  if (!a.named.empty()) raise_type_error("dict.get() takes no keyword arguments");
  a.check("get", {"key", "default"});
  const Value* key = a.find(0, "key");
  if (!key) raise_type_error("get expected at least 1 argument, got 0");
  if (const Value* value = c.self().dict().find(*key, in.budget())) return *value;
  const Value* otherwise = a.find(1, "default");
  return otherwise ? *otherwise : Value::none();
}

Value dict_view(Interpreter& in, const Value& dict, SequenceKind kind) {
  std::vector<Value> items;
  in.budget().charge(dict.dict().entries.size() * 2);
  for (const auto& [key, value] : dict.dict().entries)
    items.push_back(kind == SequenceKind::kKeys     ? key
                    : kind == SequenceKind::kValues ? value
                                                    : Value::tuple({key, value}));
  return Value::list(std::move(items), kind);
}

Value dict_keys(Interpreter& in, Callable& c, const Arguments& a) {
  a.check("keys", {});
  return dict_view(in, c.self(), SequenceKind::kKeys);
}
Value dict_values(Interpreter& in, Callable& c, const Arguments& a) {
  a.check("values", {});
  return dict_view(in, c.self(), SequenceKind::kValues);
}
Value dict_items(Interpreter& in, Callable& c, const Arguments& a) {
  a.check("items", {});
  return dict_view(in, c.self(), SequenceKind::kItems);
}
Value copy(Interpreter&, Callable& c, const Arguments& a) {
  a.check("copy", {});
  return c.self();
}

Value count_items(Interpreter& in, Callable& c, const Arguments& a) {
  a.check("count", {"value"});
  if (a.positional.empty()) raise_type_error("count() takes exactly one argument (0 given)");
  int count = 0;
  for (const Value& item : c.self().items()) count += equal(item, a.positional[0], in.budget());
  return count;
}

Value index_of(Interpreter& in, Callable& c, const Arguments& a) {
  a.check("index", {"value", "start", "stop"});
  if (a.positional.empty()) raise_type_error("index expected at least 1 argument, got 0");
  const auto& items = c.self().items();
  const auto size = static_cast<std::int64_t>(items.size());
  const auto bound = [&](std::size_t at, std::int64_t otherwise) {
    if (a.positional.size() <= at) return otherwise;
    const std::int64_t i = as_index(a.positional[at]);
    return std::clamp<std::int64_t>(i < 0 ? i + size : i, 0, size);
  };
  for (std::int64_t i = bound(1, 0); i < bound(2, size); ++i)
    if (equal(items[static_cast<std::size_t>(i)], a.positional[0], in.budget())) return i;
  raise_value_error(c.self().sequence().kind == SequenceKind::kList
                        ? to_repr(a.positional[0], in.budget()) + " is not in list"
                        : "tuple.index(x): x not in tuple");
}

Value range_index(Interpreter& in, Callable& c, const Arguments& a) {
  a.check("index", {"value"});
  if (a.positional.empty()) raise_type_error("range.index() takes exactly one argument (0 given)");
  const RangeData& range = c.self().range();
  if (!contains(c.self(), a.positional[0], in.budget()))
    raise_value_error(to_repr(a.positional[0], in.budget()) + " is not in range");
  return (static_cast<std::int64_t>(a.positional[0].real()) - range.start) / range.step;
}
Value range_count(Interpreter& in, Callable& c, const Arguments& a) {
  a.check("count", {"value"});
  if (a.positional.empty()) raise_type_error("range.count() takes exactly one argument (0 given)");
  return contains(c.self(), a.positional[0], in.budget()) ? 1 : 0;
}

Value cycler_next(Interpreter&, Callable& c, const Arguments& a) {
  a.check("next", {});
  Callable& cycler = c.self().callable();
  const Value value = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return value;
}
Value cycler_reset(Interpreter&, Callable& c, const Arguments& a) {
  a.check("reset", {});
  c.self().callable().position = 0;
  return Value::none();
}

Value dict_from_keys(Interpreter& in, Callable&, const Arguments& a) {
  a.check("fromkeys", {"iterable", "value"});
  if (a.positional.empty()) raise_type_error("fromkeys expected at least 1 argument, got 0");
  DictData data;
  for (const Value& key : iterate(a.positional[0], in.budget()))
    data.set(key, a.positional.size() > 1 ? a.positional[1] : Value::none(), in.budget());
  return Value::dict(std::move(data));
}

Value loop_cycle(Interpreter&, Callable& c, const Arguments& a) {
  return c.self().loop().cycle(a);
}
Value loop_changed(Interpreter& in, Callable& c, const Arguments& a) {
  return c.self().loop().changed(a, in.budget());
}

// self.name() of a template with a block of that name.
Value render_block(Interpreter& in, Callable& c, const Arguments& a) {
  a.check(c.name(), {});
  return in.block_text(c.name());
}

constexpr MethodRow kDictMethods[] = {{"get", dict_get},       {"keys", dict_keys},
                                      {"values", dict_values}, {"items", dict_items},
                                      {"copy", copy},          {"fromkeys", dict_from_keys}};
constexpr MethodRow kListMethods[] = {{"count", count_items}, {"index", index_of}, {"copy", copy}};
constexpr MethodRow kLoopMethods[] = {{"cycle", loop_cycle}, {"changed", loop_changed}};
constexpr MethodRow kCyclerMethods[] = {{"next", cycler_next}, {"reset", cycler_reset}};

// Methods that change a value in place: the sandbox forbids them.
constexpr std::string_view kDictForbidden[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListForbidden[] = {"append", "clear", "pop",    "reverse",
                                               "insert", "sort",  "extend", "remove"};

template <std::size_t N>
Callable::Function find_method(const MethodRow (&rows)[N], std::string_view name) {
  for (const MethodRow& row : rows)
    if (row.name == name) return row.function;
  return nullptr;
}

template <std::size_t N>
bool lists(const std::string_view (&names)[N], std::string_view name) {
  return std::find(names, names + N, name) != names + N;
}

Value forbidden(const Value& object, std::string_view name) {
  return Value::undefined("access to attribute '" + std::string(name) + "' of '" +
                              type_name(object) + "' object is unsafe.",
                          true);
}

std::optional<Value> macro_attribute(const Value& object, std::string_view name) {
  const MacroSpec& macro = object.callable().macro();
  if (name == "name") return macro.name.empty() ? Value::none() : Value(macro.name);
  if (name == "caller") return Value(macro.uses_caller);
  if (name == "catch_kwargs") return Value(macro.uses_kwargs);
  if (name == "catch_varargs") return Value(macro.uses_varargs);
  if (name != "arguments") return std::nullopt;
  std::vector<Value> params;
  for (const std::string& param : macro.params) params.emplace_back(param);
  return Value::tuple(std::move(params));
}

// obj[index]; nothing where Python raises a LookupError or TypeError.
std::optional<Value> subscript(const Value& object, const Value& index, Budget& budget) {
  switch (object.type()) {
    case Type::kDict: {
      if (index.is_sequence() && index.sequence().kind == SequenceKind::kList) return std::nullopt;
      if (index.is_dict()) return std::nullopt;
      const Value* found = object.dict().find(index, budget);
      return found ? std::optional<Value>(*found) : std::nullopt;
    }
    case Type::kSequence: {
      const SequenceKind kind = object.sequence().kind;
      if (kind == SequenceKind::kKeys || kind == SequenceKind::kValues ||
          kind == SequenceKind::kItems)
        return std::nullopt;
      break;
    }
    case Type::kString:
    case Type::kBytes:
    case Type::kRange:
      break;
    default:
      return std::nullopt;
  }
  if (!index.is_integer() || index.integer() != static_cast<std::int64_t>(index.integer()))
    return std::nullopt;
  const auto size = static_cast<std::int64_t>(length_of(object));
  std::int64_t at = as_index(index);
  if (at < 0) at += size;
  if (at < 0 || at >= size) return std::nullopt;
  if (object.is_sequence()) return object.items()[static_cast<std::size_t>(at)];
  if (object.is(Type::kRange)) return Value(object.range().at(at));
  if (object.is(Type::kBytes))
    return Value(static_cast<std::int64_t>(
        static_cast<unsigned char>(object.text()[static_cast<std::size_t>(at)])));
  const StringData& data = object.string();
  if (data.ascii()) return text_like(object, data.text.substr(static_cast<std::size_t>(at), 1));
  budget.charge_bytes(data.text.size());
  const std::size_t begin = byte_offset(data.text, static_cast<std::size_t>(at));
  std::size_t end = begin;
  next_code_point(data.text, end);
  return text_like(object, data.text.substr(begin, end - begin));
}

}  // namespace

std::optional<Value> own_attribute(Interpreter& in, const Value& object, std::string_view name) {
  if (name.starts_with("__")) return forbidden(object, name);
  Callable::Function method = nullptr;
  switch (object.type()) {
    case Type::kString:
      if (is_markup(object)) method = find_markup_method(name);
      if (!method) method = find_string_method(name);
      break;
    case Type::kDict:
      if (lists(kDictForbidden, name)) return forbidden(object, name);
      method = find_method(kDictMethods, name);
      break;
    case Type::kSequence: {
      const SequenceKind kind = object.sequence().kind;
      if (kind == SequenceKind::kList && lists(kListForbidden, name))
        return forbidden(object, name);
      if (kind == SequenceKind::kGroup && name == "grouper") return object.items()[0];
      if (kind == SequenceKind::kGroup && name == "list") return object.items()[1];
      if (name == "copy" && kind != SequenceKind::kList) break;
      if (kind == SequenceKind::kList || kind == SequenceKind::kTuple ||
          kind == SequenceKind::kGroup)
        method = find_method(kListMethods, name);
      break;
    }
    case Type::kBool:
    case Type::kInt:
    case Type::kFloat:
      if (auto property = number_property(object, name)) return *property;
      method = find_number_method(object, name);
      break;
    case Type::kBytes:
      if (name == "decode") method = decode_bytes;
      break;
    case Type::kObject:
      if (in.has_block(name)) method = render_block;
      break;
    case Type::kRange:
      if (name == "start") return Value(object.range().start);
      if (name == "stop") return Value(object.range().stop);
      if (name == "step") return Value(object.range().step);
      if (name == "index") method = range_index;
      if (name == "count") method = range_count;
      break;
    case Type::kNamespace:
      if (const Value* value = object.name_space_data().find(name)) return *value;
      break;
    case Type::kLoop: {
      bool found = false;
      Value value = object.loop().attribute(name, found);
      if (found) return value;
      method = find_method(kLoopMethods, name);
      break;
    }
    case Type::kCallable: {
      Callable& callable = object.callable();
      if (callable.is_macro()) return macro_attribute(object, name);
      if (callable.name() == "dict" && name == "fromkeys") method = dict_from_keys;
      if (callable.name() == "cycler()") {
        if (name == "current") return callable.items[callable.position];
        method = find_method(kCyclerMethods, name);
      }
      break;
    }
    default:
      break;
  }
  if (!method) return std::nullopt;
  in.budget().charge();
  return Value::callable(std::make_shared<Callable>(std::string(name), method, object));
}

Value get_attribute(Interpreter& in, const Value& object, const std::string& name) {
  if (object.is_undefined() && name == "__class__") return forbidden(object, name);
  if (object.is_undefined()) object.fail_undefined();
  if (auto own = own_attribute(in, object, name)) return *own;
  if (object.is_dict())
    if (auto item = subscript(object, Value(name), in.budget())) return *item;
  return Value::undefined("'" + describe(object) + "' has no attribute '" + name + "'");
}

Value get_item(Interpreter& in, const Value& object, const Value& index) {
  if (object.is_undefined()) object.fail_undefined();
  if (auto item = subscript(object, index, in.budget())) return *item;
  if (index.is_string())
    if (auto own = own_attribute(in, object, index.text())) return *own;
  if (index.is_string())
    return Value::undefined("'" + describe(object) + "' has no attribute " +
                            to_repr(index, in.budget()));
  return Value::undefined(describe(object) + " has no element " + to_repr(index, in.budget()));
}

}  // namespace sluice::jinja
