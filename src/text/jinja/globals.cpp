// Functions that every template can call.
#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <iterator>

#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operations.h"

namespace sluice::jinja {
namespace {

Value range(Interpreter& in, Callable&, const Arguments& a) {
  if (!a.named.empty()) raise_type_error("range() takes no keyword arguments");
  const std::size_t n = a.positional.size();
  if (n < 1 || n > 3)
    raise_type_error("range expected " +
                     std::string(n < 1 ? "at least 1 argument" : "at most 3 arguments") + ", got " +
                     std::to_string(n));
  const std::int64_t first = as_index(a.positional[0]);
  const std::int64_t start = n > 1 ? first : 0, stop = n > 1 ? as_index(a.positional[1]) : first;
  const std::int64_t step = n > 2 ? as_index(a.positional[2]) : 1;
  if (step == 0) raise_value_error("range() arg 3 must not be zero");
  const Value result = Value::range(start, stop, step);
  if (result.range().size() > in.budget().limits().max_range)
    raise_python("OverflowError",
                 "Range too big. The sandbox blocks ranges larger than MAX_RANGE (" +
                     std::to_string(in.budget().limits().max_range) + ").");
  return result;
}

DictData dict_of(Interpreter& in, const Arguments& a) {
  DictData data;
  if (a.positional.size() > 1)
    raise_type_error("dict expected at most 1 argument, got " +
                     std::to_string(a.positional.size()));
  if (!a.positional.empty()) {
    const Value& source = a.positional[0];
    if (source.is_dict()) {
      in.budget().charge(source.dict().entries.size() * 2);
      for (const auto& [key, value] : source.dict().entries) data.set(key, value, in.budget());
    } else {
      for (const Value& item : iterate(source, in.budget())) {
        const std::vector<Value> pair = iterate(item, in.budget());
        if (pair.size() != 2)
          raise_value_error("dictionary update sequence element has length " +
                            std::to_string(pair.size()) + "; 2 is required");
        data.set(pair[0], pair[1], in.budget());
      }
    }
  }
  for (const auto& [name, value] : a.named) data.set(Value(name), value, in.budget());
  return data;
}

Value dict(Interpreter& in, Callable&, const Arguments& a) {
  return Value::dict(dict_of(in, a));
}

Value name_space(Interpreter& in, Callable&, const Arguments& a) {
  const DictData fields = dict_of(in, a);
  Value space = in.make_namespace();
  for (const auto& [key, value] : fields.entries) {
    const std::string name = to_text(key, in.budget());
    if (name.starts_with('_'))
      raise_security(
          "Chat templates cannot store underscore-prefixed attributes on a namespace, but got '" +
          name + "'. Please rename the attribute.");
    space.name_space_data().set(name, value);
  }
  return space;
}

Value join_once(Interpreter&, Callable& c, const Arguments&) {
  const bool first = c.position == 0;
  c.position = 1;
  return first ? Value("") : c.items[0];
}

Value joiner(Interpreter&, Callable&, const Arguments& a) {
  a.check("joiner", {"sep"});
  const Value* mark = a.find(0, "sep");
  auto state = std::make_shared<Callable>("joiner()", join_once);
  state->items.push_back(mark ? *mark : Value(", "));
  return Value::callable(std::move(state));
}

Value not_callable(Interpreter&, Callable&, const Arguments&) {
  raise_type_error("'Cycler' object is not callable");
}

Value cycler(Interpreter&, Callable&, const Arguments& a) {
  if (a.positional.empty()) raise_python("RuntimeError", "at least one item has to be provided");
  auto state = std::make_shared<Callable>("cycler()", not_callable);
  state->items = a.positional;
  return Value::callable(std::move(state));
}

Value lipsum(Interpreter&, Callable&, const Arguments&) {
  raise_security("random text has no place in a prompt");
}

Value raise_exception(Interpreter& in, Callable&, const Arguments& a) {
  a.check("raise_exception", {"message"});
  const Value* message = a.find(0, "message");
  if (!message)
    raise_type_error("raise_exception() missing 1 required positional argument: 'message'");
  throw TemplateError(ErrorKind::kRaised, "TemplateError", to_text(*message, in.budget()));
}

Value strftime_now(Interpreter& in, Callable&, const Arguments& a) {
  a.check("strftime_now", {"format"});
  const Value* format = a.find(0, "format");
  if (!format) raise_type_error("strftime_now() missing 1 required positional argument: 'format'");
  const std::string& text = as_string(*format, "strftime() argument 1");
  if (text.size() > 1000) raise_value_error("the time format is longer than 1000 bytes");
  const Clock& clock = in.clock();
  std::tm tm{};
  tm.tm_year = clock.year - 1900;
  tm.tm_mon = clock.month - 1;
  tm.tm_mday = clock.day;
  tm.tm_hour = clock.hour;
  tm.tm_min = clock.minute;
  tm.tm_sec = clock.second;
  timegm(&tm);  // sets the day of the week and of the year
  tm.tm_isdst = -1;
  tm.tm_zone = "";         // the clock is naive: %Z and %z are empty
  std::string directives;  // with the microseconds, which strftime does not know
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool micro = text[i] == '%' && i + 1 < text.size() && text[i + 1] == 'f';
    directives += micro ? "000000" : text.substr(i, text[i] == '%' ? 2 : 1);
    if (text[i] == '%') ++i;
  }
  // Every directive of two letters writes at most about 30 bytes. A leading mark distinguishes an
  // empty result from a failure.
  std::string buffer(text.size() * 20 + 64, '\0');
  const std::size_t size =
      std::strftime(buffer.data(), buffer.size(), ("x" + directives).c_str(), &tm);
  if (size == 0) raise_value_error("the time format writes too much");
  return Value(buffer.substr(1, size - 1));
}

struct Row {
  std::string_view name;
  Callable::Function function;
};

constexpr Row kRows[] = {{"range", range},
                         {"dict", dict},
                         {"namespace", name_space},
                         {"joiner", joiner},
                         {"cycler", cycler},
                         {"lipsum", lipsum},
                         {"raise_exception", raise_exception},
                         {"strftime_now", strftime_now}};

}  // namespace

Value find_global(std::string_view name) {
  for (const Row& row : kRows)
    if (row.name == name)
      return Value::callable(std::make_shared<Callable>(std::string(name), row.function));
  if (name == "self") return Value::object("<TemplateReference None>");
  return {};
}

}  // namespace sluice::jinja
