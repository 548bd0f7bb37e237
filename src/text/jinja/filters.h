// The tables of filters, tests and globals.
#pragma once

#include <string_view>

#include "text/jinja/values/callable.h"
#include "text/jinja/values/value.h"

namespace sluice::jinja {

struct FilterRow {
  std::string_view name;
  Value (*apply)(Interpreter&, const Value& input, const Arguments&);
};

struct TestRow {
  std::string_view name;
  bool (*apply)(Interpreter&, const Value& input, const Arguments&);
  std::size_t num_arguments = 0;
  // Raises a TypeError for another number of arguments.
  bool call(Interpreter& in, const Value& input, const Arguments& a) const;
};

// nullptr for an unknown name. The order of the tables means nothing.
const FilterRow* find_filter(std::string_view name);
const TestRow* find_test(std::string_view name);
// Undefined (type kUndefined without message) for an unknown name.
Value find_global(std::string_view name);

}  // namespace sluice::jinja
