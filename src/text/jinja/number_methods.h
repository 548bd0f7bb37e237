// Attributes and methods of int, bool and float.
#pragma once

#include <optional>
#include <string_view>

#include "text/jinja/values/callable.h"
#include "text/jinja/values/value.h"

namespace sluice::jinja {

// `number.name` that is no method; nothing if there is none.
std::optional<Value> number_property(const Value& number, std::string_view name);
// nullptr for an unknown name.
Callable::Function find_number_method(const Value& number, std::string_view name);

}  // namespace sluice::jinja
