// Markup: text that is safe in HTML (markupsafe). Its methods escape the texts that they are given
// and return Markup.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/values/callable.h"
#include "text/jinja/values/value.h"

namespace sluice::jinja {

bool is_markup(const Value& value);
// Markup if `like` is Markup, else a str.
Value text_like(const Value& like, std::string text);

// The text of a value with &, <, >, ' and " as entities. Markup stays as it is.
std::string escape_html(std::string_view text);
std::string escaped_text(const Value& value, Budget& budget);

// Markup's own version of a method of str, and the methods that only Markup has; nullptr for a
// method that is str's.
Callable::Function find_markup_method(std::string_view name);

// Text without tags and comments, each run of white space as one space, entities resolved.
std::string strip_tags(std::string_view text);
std::string unescape_html(std::string_view text);

}  // namespace sluice::jinja
