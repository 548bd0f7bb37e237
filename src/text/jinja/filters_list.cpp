// Filters of lists and maps (jinja2/filters.py).
#include "text/jinja/filters_list.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "text/jinja/interpreter.h"
#include "text/jinja/markup.h"
#include "text/jinja/operations.h"
#include "text/jinja/values/unicode.h"

namespace sluice::jinja::filters {
namespace {

bool flag(const Value* value, bool otherwise) {
  return value ? truthy(*value) : otherwise;
}

// Follows "a.b.0" through an item; `attribute` None is the item itself.
class Getter {
 public:
  Getter(Interpreter& in, const Value* attribute, const Value* otherwise = nullptr,
         bool fold = false)
      : in_(in), otherwise_(otherwise), fold_(fold) {
    if (!attribute || attribute->is_none()) return;
    if (attribute->is_integer()) {
      path_.push_back(*attribute);
      return;
    }
    const std::string& text = as_string(*attribute, "attribute name");
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find('.', begin), text.size());
      const std::string part = text.substr(begin, end - begin);
      const bool number =
          !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
      const auto index = number ? parse_int(part, 10) : std::nullopt;
      path_.push_back(index ? *index : Value(part));
      begin = end + 1;
    }
  }

  Value operator()(const Value& item) const {
    Value value = item;
    for (const Value& part : path_) {
      in_.budget().charge();
      value = get_item(in_, value, part);
      if (otherwise_ && value.is_undefined()) value = *otherwise_;
    }
    if (fold_ && value.is_string()) value = Value(to_lower(value.text()));
    return value;
  }

 private:
  Interpreter& in_;
  std::vector<Value> path_;
  const Value* otherwise_;
  bool fold_;
};

using Keyed = std::pair<Value, Value>;  // the key, the item

std::vector<Keyed> keyed(Interpreter& in, const Value& v, const Getter& key) {
  std::vector<Keyed> out;
  for (const Value& item : iterate(v, in.budget())) out.emplace_back(key(item), item);
  return out;
}

void sort_keyed(std::vector<Keyed>& items, bool reverse, Budget& budget) {
  // A comparison may throw and leave std::stable_sort midway. That is harmless, because the list is
  // a copy.
  const auto less = [&](const Keyed& a, const Keyed& b) {
    return ordered(a.first, b.first, Order::kLess, budget);
  };
  if (items.size() == 2) {  // Python compares the second with the first
    const bool swap = reverse ? less(items[0], items[1]) : less(items[1], items[0]);
    if (swap) std::swap(items[0], items[1]);
    return;
  }
  if (reverse) std::reverse(items.begin(), items.end());
  std::stable_sort(items.begin(), items.end(), less);
  if (reverse) std::reverse(items.begin(), items.end());
}

Value values_of(std::vector<Keyed> items) {
  std::vector<Value> out;
  for (Keyed& item : items) out.push_back(std::move(item.second));
  return Value::list(std::move(out));
}

Value extreme(Interpreter& in, const Value& v, const Arguments& a, std::string_view name,
              Order order) {
  a.check(name, {"case_sensitive", "attribute"});
  const Getter key(in, a.find(1, "attribute"), nullptr, !flag(a.find(0, "case_sensitive"), false));
  const std::vector<Keyed> items = keyed(in, v, key);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const Keyed* best = &items[0];
  for (std::size_t i = 1; i < items.size(); ++i)
    if (ordered(items[i].first, best->first, order, in.budget())) best = &items[i];
  return best->second;
}

Arguments rest_of(const Arguments& a, std::size_t from) {
  Arguments out;
  for (std::size_t i = from; i < a.positional.size(); ++i)
    out.positional.push_back(a.positional[i]);
  out.named = a.named;
  return out;
}

// jinja2 makes generators: what fails in them fails when a template reads so far, or never.
template <class F>
Value generate(F&& fill) {
  std::vector<Value> out;
  std::exception_ptr error;
  try {
    fill(out);
  } catch (const TemplateError& failure) {
    if (failure.kind() == ErrorKind::kFuel) throw;
    error = std::current_exception();
  }
  return Value::iterator(std::move(out), std::move(error));
}

// select, reject, selectattr, rejectattr.
void choose_into(std::vector<Value>& out, Interpreter& in, const Value& v, const Arguments& a,
                 bool keep, bool by_attribute) {
  if (!truthy(v)) return;  // also for values that cannot be iterated
  if (by_attribute && a.positional.empty())
    raise_python("FilterArgumentError", "Missing parameter for attribute name");
  const Value* attribute = by_attribute ? &a.positional[0] : nullptr;
  const Getter get(in, attribute);
  const std::size_t at = by_attribute ? 1 : 0;
  const bool tested = a.positional.size() > at;
  const std::string test = tested ? as_string(a.positional[at], "test name") : "";
  const Arguments rest = tested ? rest_of(a, at + 1) : Arguments{};
  for (const Value& item : iterate(v, in.budget())) {
    const Value subject = get(item);
    const bool holds = tested ? in.run_test(test, subject, rest) : truthy(subject);
    if (holds == keep) out.push_back(item);
  }
}

Value choose(Interpreter& in, const Value& v, const Arguments& a, bool keep, bool by_attribute) {
  return generate([&](std::vector<Value>& out) { choose_into(out, in, v, a, keep, by_attribute); });
}

}  // namespace

Value length(Interpreter&, const Value& v, const Arguments& a) {
  a.check("len", {});
  return length_of(v);
}

Value list(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_list", {});
  return Value::list(iterate(v, in.budget()));
}

Value first(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_first", {});
  if (v.is(Type::kIterator)) {
    IteratorData& data = v.iterator();
    if (data.next < data.items.size()) return data.items[data.next++];
    if (data.error) std::rethrow_exception(std::exchange(data.error, nullptr));
    return Value::undefined("No first item, sequence was empty.");
  }
  if (v.is_sequence() && !v.items().empty()) return v.items().front();
  std::vector<Value> items = iterate(v, in.budget());
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
}

Value last(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_last", {});
  if (v.is(Type::kIterator)) raise_type_error("'generator' object is not reversible");
  if (v.is_sequence() && !v.items().empty()) return v.items().back();
  std::vector<Value> items = iterate(v, in.budget());
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value join(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_join", {"d", "attribute"});
  const Value* between = a.find(0, "d");
  const Getter get(in, a.find(1, "attribute"));
  std::vector<Value> items;
  bool escapes = between && is_markup(*between);
  for (const Value& item : iterate(v, in.budget())) {
    items.push_back(get(item));
    escapes |= is_markup(items.back());
  }
  escapes &= in.autoescape();
  const auto text_of = [&](const Value& value) {
    return escapes ? escaped_text(value, in.budget()) : to_text(value, in.budget());
  };
  const std::string mark = between ? text_of(*between) : "";
  std::string out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += mark;
    const std::string text = text_of(items[i]);
    in.budget().charge_bytes(text.size() + mark.size());
    out += text;
  }
  return escapes ? Value::markup(std::move(out)) : Value(std::move(out));
}

Value reverse(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_reverse", {});
  if (v.is_string()) return get_slice(v, Value::none(), Value::none(), Value(-1), in.budget());
  if (!is_iterable(v)) raise_python("FilterArgumentError", "argument must be iterable");
  std::vector<Value> items;
  try {
    items = iterate(v, in.budget());
  } catch (const TemplateError& error) {
    if (error.type() != "TypeError") throw;
    raise_python("FilterArgumentError", "argument must be iterable");
  }
  std::reverse(items.begin(), items.end());
  return v.is(Type::kIterator) ? Value::list(std::move(items)) : Value::iterator(std::move(items));
}

Value sort(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_sort", {"reverse", "case_sensitive", "attribute"});
  const bool fold = !flag(a.find(1, "case_sensitive"), false);
  const Value* attribute = a.find(2, "attribute");
  // A key is a list, so that equal keys without an order do not fail.
  std::vector<Getter> getters;
  if (attribute && attribute->is_string()) {
    const std::string& text = attribute->text();
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      const Value part(text.substr(begin, end - begin));
      getters.emplace_back(in, &part, nullptr, fold);
      begin = end + 1;
    }
  } else {
    getters.emplace_back(in, attribute, nullptr, fold);
  }
  std::vector<Keyed> items;
  for (const Value& item : iterate(v, in.budget())) {
    std::vector<Value> keys;
    for (const Getter& get : getters) keys.push_back(get(item));
    items.emplace_back(Value::list(std::move(keys)), item);
  }
  sort_keyed(items, flag(a.find(0, "reverse"), false), in.budget());
  return values_of(std::move(items));
}

Value dictsort(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_dictsort", {"case_sensitive", "by", "reverse"});
  const Value* by = a.find(1, "by");
  const std::string key = by ? as_string(*by, "by") : "key";
  if (key != "key" && key != "value")
    raise_python("FilterArgumentError", "You can only sort by either \"key\" or \"value\"");
  if (v.is_undefined()) v.fail_undefined();
  if (!v.is_dict())
    raise_python("AttributeError", "'" + type_name(v) + "' object has no attribute 'items'");
  const bool fold = !flag(a.find(0, "case_sensitive"), false);
  std::vector<Keyed> items;
  for (const auto& [name, value] : v.dict().entries) {
    const Value& subject = key == "key" ? name : value;
    items.emplace_back(fold && subject.is_string() ? Value(to_lower(subject.text())) : subject,
                       Value::tuple({name, value}));
    in.budget().charge(3);
  }
  sort_keyed(items, flag(a.find(2, "reverse"), false), in.budget());
  return values_of(std::move(items));
}

Value items(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_items", {});
  if (v.is_undefined()) return Value::iterator({});
  return generate([&](std::vector<Value>& out) {
    if (!v.is_dict()) raise_type_error("Can only get item pairs from a mapping.");
    in.budget().charge(v.dict().entries.size() * 3);
    for (const auto& [key, value] : v.dict().entries) out.push_back(Value::tuple({key, value}));
  });
}

Value unique(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_unique", {"case_sensitive", "attribute"});
  return generate([&](std::vector<Value>& out) {
    const Getter key(in, a.find(1, "attribute"), nullptr,
                     !flag(a.find(0, "case_sensitive"), false));
    DictData seen;
    for (const Value& item : iterate(v, in.budget())) {
      const Value k = key(item);
      if (seen.find(k, in.budget())) continue;
      seen.set(k, Value::none(), in.budget());
      out.push_back(item);
    }
  });
}

Value min(Interpreter& in, const Value& v, const Arguments& a) {
  return extreme(in, v, a, "do_min", Order::kLess);
}
Value max(Interpreter& in, const Value& v, const Arguments& a) {
  return extreme(in, v, a, "do_max", Order::kGreater);
}

Value sum(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_sum", {"attribute", "start"});
  const Value* start = a.find(1, "start");
  const Getter get(in, a.find(0, "attribute"));
  Value total = start ? *start : Value(0);
  if (total.is_string()) raise_type_error("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : iterate(v, in.budget()))
    total = binary(BinaryOp::kAdd, total, get(item), in.budget());
  return total;
}

// A random choice would make a prompt unrepeatable, so the middle item is returned.
Value random(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_random", {});
  const std::vector<Value> items = iterate(v, in.budget());
  return items.empty() ? Value::undefined("No random item, sequence was empty.")
                       : items[items.size() / 2];
}

namespace {

void map_into(std::vector<Value>& out, Interpreter& in, const Value& v, const Arguments& a) {
  if (!truthy(v)) return;
  if (a.positional.empty()) {
    const Value* attribute = nullptr;
    const Value* otherwise = nullptr;
    for (const auto& [key, value] : a.named) {
      if (key == "attribute") {
        attribute = &value;
      } else if (key == "default") {
        otherwise = &value;
      } else {
        raise_python("FilterArgumentError", "Unexpected keyword argument '" + key + "'");
      }
    }
    if (!attribute) raise_python("FilterArgumentError", "map requires a filter argument");
    const Getter get(in, attribute, otherwise);
    for (const Value& item : iterate(v, in.budget())) out.push_back(get(item));
    return;
  }
  const std::string& name = as_string(a.positional[0], "filter name");
  const Arguments rest = rest_of(a, 1);
  for (const Value& item : iterate(v, in.budget())) out.push_back(in.run_filter(name, item, rest));
}

}  // namespace

Value map(Interpreter& in, const Value& v, const Arguments& a) {
  return generate([&](std::vector<Value>& out) { map_into(out, in, v, a); });
}

Value select(Interpreter& in, const Value& v, const Arguments& a) {
  return choose(in, v, a, true, false);
}
Value reject(Interpreter& in, const Value& v, const Arguments& a) {
  return choose(in, v, a, false, false);
}
Value selectattr(Interpreter& in, const Value& v, const Arguments& a) {
  return choose(in, v, a, true, true);
}
Value rejectattr(Interpreter& in, const Value& v, const Arguments& a) {
  return choose(in, v, a, false, true);
}

Value groupby(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_groupby", {"attribute", "default", "case_sensitive"});
  const Value *attribute = a.find(0, "attribute"), *otherwise = a.find(1, "default");
  if (!attribute)
    raise_type_error("do_groupby() missing 1 required positional argument: 'attribute'");
  const bool fold = !flag(a.find(2, "case_sensitive"), false);
  std::vector<Keyed> items = keyed(in, v, Getter(in, attribute, otherwise, fold));
  sort_keyed(items, false, in.budget());
  const Getter exact(in, attribute, otherwise);
  std::vector<Value> groups, members;
  for (std::size_t i = 0; i < items.size(); ++i) {
    members.push_back(items[i].second);
    if (i + 1 < items.size() && equal(items[i].first, items[i + 1].first, in.budget())) continue;
    const Value grouper = exact(members[0]);
    groups.push_back(Value::list({grouper, Value::list(std::move(members))}, SequenceKind::kGroup));
    members.clear();
  }
  return Value::list(std::move(groups));
}

Value batch(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_batch", {"linecount", "fill_with"});
  const Value *count = a.find(0, "linecount"), *fill = a.find(1, "fill_with");
  if (!count) raise_type_error("do_batch() missing 1 required positional argument: 'linecount'");
  return generate([&](std::vector<Value>& out) {
    std::vector<Value> row;
    const auto full = [&] { return equal(Value(row.size()), *count, in.budget()); };
    for (const Value& item : iterate(v, in.budget())) {
      if (full()) {
        out.push_back(Value::list(std::move(row)));
        row.clear();
      }
      row.push_back(item);
    }
    if (row.empty()) return;
    if (fill && !fill->is_none() && ordered(Value(row.size()), *count, Order::kLess, in.budget())) {
      const std::int64_t size = as_index(*count);
      in.budget().charge(static_cast<std::size_t>(size) * 2);
      row.resize(static_cast<std::size_t>(size), *fill);
    }
    out.push_back(Value::list(std::move(row)));
  });
}

Value slice(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_slice", {"slices", "fill_with"});
  const Value *count = a.find(0, "slices"), *fill = a.find(1, "fill_with");
  if (!count) raise_type_error("do_slice() missing 1 required positional argument: 'slices'");
  return generate([&](std::vector<Value>& out) {
    const std::vector<Value> all = iterate(v, in.budget());
    const Value size(all.size());
    const Value each_value = binary(BinaryOp::kFloorDivide, size, *count, in.budget()),
                extra_value = binary(BinaryOp::kModulo, size, *count, in.budget());
    const std::int64_t slices = as_index(*count);
    if (slices < 0) return;
    in.budget().charge(static_cast<std::size_t>(slices) * 4);
    const std::int64_t each = as_index(each_value), extra = as_index(extra_value);
    auto at = all.begin();
    for (std::int64_t i = 0; i < slices; ++i) {
      const auto end = at + each + (i < extra ? 1 : 0);
      std::vector<Value> row(at, end);
      if (fill && !fill->is_none() && i >= extra) row.push_back(*fill);
      out.push_back(Value::list(std::move(row)));
      at = end;
    }
  });
}

Value default_value(Interpreter&, const Value& v, const Arguments& a) {
  a.check("do_default", {"default_value", "boolean"});
  const Value* otherwise = a.find(0, "default_value");
  const bool falsy_too = flag(a.find(1, "boolean"), false);
  if (v.is_undefined() || (falsy_too && !truthy(v))) return otherwise ? *otherwise : Value("");
  return v;
}

Value attr(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_attr", {"name"});
  const Value* name = a.find(0, "name");
  if (!name) raise_type_error("do_attr() missing 1 required positional argument: 'name'");
  const std::string text = to_text(*name, in.budget());
  if (v.is_undefined() && !text.starts_with("__")) v.fail_undefined();
  if (auto own = own_attribute(in, v, text)) return *own;
  return Value::undefined("'" + describe(v) + "' has no attribute '" + text + "'");
}

}  // namespace sluice::jinja::filters
