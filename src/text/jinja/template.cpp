#include "text/jinja/template.h"

#include <algorithm>

#include "text/jinja/filters.h"
#include "text/jinja/parser.h"
#include "text/unicode.h"

namespace sluice::jinja {
namespace {

// Functions that count or cut characters need UTF-8. The texts of a checkpoint's tokens may be
// invalid.
Value text_value(const std::string& text) {
  return Value(is_valid_utf8(text) ? text : to_valid_utf8(text));
}

// The line of the first byte that is not UTF-8.
int line_of_fault(std::string_view source) {
  int line = 1;
  while (!source.empty()) {
    const std::string_view first = source.substr(0, source.find('\n'));
    if (!is_valid_utf8(first)) break;
    source.remove_prefix(std::min(first.size() + 1, source.size()));
    ++line;
  }
  return line;
}

}  // namespace

// The parser of `json` has bounded its depth (base/json.h).
Value from_json(const Json& json) {
  switch (json.type()) {
    case Json::value_t::boolean:
      return json.get<bool>();
    case Json::value_t::number_integer:
      return json.get<std::int64_t>();
    case Json::value_t::number_unsigned:
      return static_cast<Int>(json.get<std::uint64_t>());
    case Json::value_t::number_float:
      return json.get<double>();
    case Json::value_t::string:
      return text_value(json.get_ref<const std::string&>());
    case Json::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const Json& item : json) items.push_back(from_json(item));
      return Value::list(std::move(items));
    }
    case Json::value_t::object: {
      DictData data;
      Budget unlimited{Limits{.fuel = std::int64_t{1} << 60}};
      for (const auto& [key, value] : json.items())
        data.set(text_value(key), from_json(value), unlimited);
      return Value::dict(std::move(data));
    }
    case Json::value_t::binary: {
      const std::string digits = big_integer_digits(json);
      const bool negative = digits[0] == '-';
      BigInt value = BigInt::parse(std::string_view(digits).substr(negative ? 1 : 0), 10);
      return negative ? -value : std::move(value);
    }
    default:
      return Value::none();
  }
}

Template Template::compile(std::string_view source) {
  if (!is_valid_utf8(source)) raise_syntax("the template is not UTF-8", line_of_fault(source));
  Template t;
  t.source_ = std::string(source);
  t.program_ = std::make_shared<const Program>(parse(source));
  return t;
}

Rendered Template::render(const Json& variables, const Limits& limits, const Clock& clock) const {
  std::vector<Value> context;
  context.reserve(program_->symbols.size());
  for (const std::string& name : program_->symbols) {
    const auto at = variables.find(name);
    context.push_back(at == variables.end() ? find_global(name) : from_json(*at));
  }
  Interpreter interpreter(*program_, std::move(context), limits, clock);
  Rendered out;
  out.text = interpreter.render();
  out.generation_spans = interpreter.generation_spans();
  out.fuel_used = interpreter.budget().used();
  return out;
}

}  // namespace sluice::jinja
