#include "text/jinja/filters.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "text/jinja/filters_list.h"
#include "text/jinja/filters_text.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operations.h"

namespace sluice::jinja {
namespace {

using namespace filters;

constexpr FilterRow kFilters[] = {{"abs", filters::abs},
                                  {"attr", attr},
                                  {"batch", batch},
                                  {"capitalize", filters::capitalize},
                                  {"center", center},
                                  {"count", length},
                                  {"d", default_value},
                                  {"default", default_value},
                                  {"dictsort", dictsort},
                                  {"e", escape},
                                  {"escape", escape},
                                  {"filesizeformat", filesizeformat},
                                  {"first", first},
                                  {"float", to_float},
                                  {"forceescape", force_escape},
                                  {"format", filters::format},
                                  {"groupby", groupby},
                                  {"indent", indent},
                                  {"int", to_int},
                                  {"items", items},
                                  {"join", join},
                                  {"last", last},
                                  {"length", length},
                                  {"list", filters::list},
                                  {"lower", lower},
                                  {"map", filters::map},
                                  {"max", filters::max},
                                  {"min", filters::min},
                                  {"pprint", pprint},
                                  {"random", filters::random},
                                  {"reject", reject},
                                  {"rejectattr", rejectattr},
                                  {"replace", filters::replace},
                                  {"reverse", filters::reverse},
                                  {"round", filters::round},
                                  {"safe", safe},
                                  {"select", select},
                                  {"selectattr", selectattr},
                                  {"slice", slice},
                                  {"sort", filters::sort},
                                  {"string", filters::string},
                                  {"striptags", striptags},
                                  {"sum", sum},
                                  {"title", title},
                                  {"tojson", tojson},
                                  {"trim", trim},
                                  {"truncate", truncate},
                                  {"unique", filters::unique},
                                  {"upper", upper},
                                  {"urlencode", urlencode},
                                  {"urlize", urlize},
                                  {"wordcount", wordcount},
                                  {"wordwrap", wordwrap},
                                  {"xmlattr", xmlattr}};

// The one argument of a test that has one (Interpreter::run_test has checked).
const Value& operand(const Arguments& a) {
  return a.positional.empty() ? a.named[0].second : a.positional[0];
}

template <Order O>
bool compares(Interpreter& in, const Value& v, const Arguments& a) {
  return ordered(v, operand(a), O, in.budget());
}

bool test_equal(Interpreter& in, const Value& v, const Arguments& a) {
  return equal(v, operand(a), in.budget());
}
bool test_not_equal(Interpreter& in, const Value& v, const Arguments& a) {
  return !equal(v, operand(a), in.budget());
}
bool test_in(Interpreter& in, const Value& v, const Arguments& a) {
  return contains(operand(a), v, in.budget());
}
bool test_defined(Interpreter&, const Value& v, const Arguments&) {
  return !v.is_undefined();
}
bool test_undefined(Interpreter&, const Value& v, const Arguments&) {
  return v.is_undefined();
}
bool test_none(Interpreter&, const Value& v, const Arguments&) {
  return v.is_none();
}
bool test_boolean(Interpreter&, const Value& v, const Arguments&) {
  return v.is(Type::kBool);
}
bool test_true(Interpreter&, const Value& v, const Arguments&) {
  return v.is(Type::kBool) && v.boolean();
}
bool test_false(Interpreter&, const Value& v, const Arguments&) {
  return v.is(Type::kBool) && !v.boolean();
}
bool test_integer(Interpreter&, const Value& v, const Arguments&) {
  return v.is(Type::kInt);
}
bool test_float(Interpreter&, const Value& v, const Arguments&) {
  return v.is(Type::kFloat);
}
bool test_number(Interpreter&, const Value& v, const Arguments&) {
  return v.is_number();
}
bool test_string(Interpreter&, const Value& v, const Arguments&) {
  return v.is_string();
}
bool test_mapping(Interpreter&, const Value& v, const Arguments&) {
  return v.is_dict();
}
bool test_iterable(Interpreter&, const Value& v, const Arguments&) {
  return is_iterable(v);
}
bool test_sequence(Interpreter&, const Value& v, const Arguments&) {
  if (v.is_sequence()) {
    const SequenceKind kind = v.sequence().kind;
    return kind != SequenceKind::kKeys && kind != SequenceKind::kValues &&
           kind != SequenceKind::kItems;
  }
  return v.is_undefined() || v.is_string() || v.is_dict() || v.is(Type::kRange) ||
         v.is(Type::kBytes);
}
bool test_callable(Interpreter&, const Value& v, const Arguments&) {
  // A cycler is no function, though it has methods.
  return (v.is(Type::kCallable) && v.callable().name() != "cycler()") || v.is(Type::kLoop) ||
         v.is_undefined();
}
// value % by == rest, as jinja2 tests it: `'%s' % x` is text, and no number.
bool leaves(Interpreter& in, const Value& v, const Value& by, int rest) {
  return equal(binary(BinaryOp::kModulo, v, by, in.budget()), Value(rest), in.budget());
}
bool test_even(Interpreter& in, const Value& v, const Arguments&) {
  return leaves(in, v, Value(2), 0);
}
bool test_odd(Interpreter& in, const Value& v, const Arguments&) {
  return leaves(in, v, Value(2), 1);
}
bool test_divisible(Interpreter& in, const Value& v, const Arguments& a) {
  return leaves(in, v, operand(a), 0);
}
bool test_lower(Interpreter& in, const Value& v, const Arguments&) {
  return has_case(to_text(v, in.budget()), false);
}
bool test_upper(Interpreter& in, const Value& v, const Arguments&) {
  return has_case(to_text(v, in.budget()), true);
}
bool test_escaped(Interpreter&, const Value& v, const Arguments&) {
  return v.is_string() && v.string().markup;
}
bool test_same(Interpreter& in, const Value& v, const Arguments& a) {
  const Value& other = operand(a);
  if (v.type() != other.type()) return false;
  if (v.identity())
    return v.identity() == other.identity() || (v.is_string() && equal(v, other, in.budget()));
  return equal(v, other, in.budget());
}
// A name is looked up in a dict, so it must be hashable.
bool is_known(Interpreter& in, const Value& v) {
  hash_value(v, in.budget());
  return v.is_string();
}
bool test_filter(Interpreter& in, const Value& v, const Arguments&) {
  return is_known(in, v) && find_filter(v.text());
}
bool test_test(Interpreter& in, const Value& v, const Arguments&) {
  return is_known(in, v) && find_test(v.text());
}

constexpr TestRow kTests[] = {{"boolean", test_boolean},
                              {"callable", test_callable},
                              {"defined", test_defined},
                              {"divisibleby", test_divisible, 1},
                              {"eq", test_equal, 1},
                              {"equalto", test_equal, 1},
                              {"==", test_equal, 1},
                              {"escaped", test_escaped},
                              {"even", test_even},
                              {"odd", test_odd},
                              {"false", test_false},
                              {"true", test_true},
                              {"float", test_float},
                              {"filter", test_filter},
                              {"test", test_test},
                              {"ge", compares<Order::kGreaterEqual>, 1},
                              {">=", compares<Order::kGreaterEqual>, 1},
                              {"gt", compares<Order::kGreater>, 1},
                              {">", compares<Order::kGreater>, 1},
                              {"greaterthan", compares<Order::kGreater>, 1},
                              {"le", compares<Order::kLessEqual>, 1},
                              {"<=", compares<Order::kLessEqual>, 1},
                              {"lt", compares<Order::kLess>, 1},
                              {"<", compares<Order::kLess>, 1},
                              {"lessthan", compares<Order::kLess>, 1},
                              {"in", test_in, 1},
                              {"integer", test_integer},
                              {"iterable", test_iterable},
                              {"lower", test_lower},
                              {"upper", test_upper},
                              {"mapping", test_mapping},
                              {"ne", test_not_equal, 1},
                              {"!=", test_not_equal, 1},
                              {"none", test_none},
                              {"number", test_number},
                              {"sameas", test_same, 1},
                              {"sequence", test_sequence},
                              {"string", test_string},
                              {"undefined", test_undefined}};

}  // namespace

bool TestRow::call(Interpreter& in, const Value& input, const Arguments& a) const {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"divisibleby", "num"}, {"sameas", "other"}, {"in", "seq"}};
  for (const auto& [key, value] : a.named) {
    const bool known = std::any_of(std::begin(kNames), std::end(kNames), [&](const auto& row) {
      return row.first == name && row.second == key;
    });
    if (!known)
      raise_type_error(std::string(name) + "() got an unexpected keyword argument '" + key + "'");
  }
  if (a.positional.size() + a.named.size() != num_arguments)
    raise_type_error(std::string(name) + "() takes " + std::to_string(num_arguments + 1) +
                     " arguments but " + std::to_string(a.positional.size() + 1) + " were given");
  return apply(in, input, a);
}

const FilterRow* find_filter(std::string_view name) {
  const auto* row = std::find_if(std::begin(kFilters), std::end(kFilters),
                                 [&](const FilterRow& r) { return r.name == name; });
  return row == std::end(kFilters) ? nullptr : row;
}

const TestRow* find_test(std::string_view name) {
  const auto* row = std::find_if(std::begin(kTests), std::end(kTests),
                                 [&](const TestRow& r) { return r.name == name; });
  return row == std::end(kTests) ? nullptr : row;
}

}  // namespace sluice::jinja
