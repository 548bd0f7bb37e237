// Filters of HTML: escapes, tags and addresses (jinja2/filters.py).
#include <cctype>

#include "text/jinja/filters_text.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/markup.h"
#include "text/jinja/operations.h"
#include "text/jinja/values/unicode.h"

namespace sluice::jinja::filters {
namespace {

std::string soft_text(Interpreter& in, const Value& value) {
  return to_text(value, in.budget());
}

bool flag(const Value* value, bool otherwise) {
  return value ? truthy(*value) : otherwise;
}

}  // namespace

Value escape(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("escape", {});
  if (v.is_string() && v.string().markup) return v;
  return Value::markup(escape_html(soft_text(in, v)));
}
Value force_escape(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_forceescape", {});
  return Value::markup(escape_html(soft_text(in, v)));
}
Value safe(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_mark_safe", {});
  return Value::markup(soft_text(in, v));
}

Value striptags(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_striptags", {});
  return Value(strip_tags(soft_text(in, v)));
}

namespace {

std::string quote_url(std::string_view text, bool query) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = std::isalnum(byte) ||
                       std::string_view("_.-~").find(c) != std::string_view::npos ||
                       (c == '/' && !query);
    if (plain && byte < 128) {
      out += c;
    } else if (c == ' ' && query) {
      out += '+';
    } else {
      out += '%';
      out += "0123456789ABCDEF"[byte >> 4];
      out += "0123456789ABCDEF"[byte & 15];
    }
  }
  return out;
}

}  // namespace

Value urlencode(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_urlencode", {});
  if (v.is_string() || !is_iterable(v)) return Value(quote_url(soft_text(in, v), false));
  std::string out;
  const auto pair = [&](const Value& key, const Value& value) {
    if (!out.empty()) out += '&';
    out += quote_url(soft_text(in, key), true) + "=" + quote_url(soft_text(in, value), true);
  };
  if (v.is_dict()) {
    for (const auto& [key, value] : v.dict().entries) pair(key, value);
  } else {
    for (const Value& item : iterate(v, in.budget())) {
      const std::vector<Value> both = iterate(item, in.budget());
      if (both.size() != 2) raise_value_error("not enough values to unpack (expected 2)");
      pair(both[0], both[1]);
    }
  }
  return Value(std::move(out));
}

Value xmlattr(Interpreter& in, const Value& v, const Arguments& a) {
  a.check("do_xmlattr", {"autospace"});
  if (v.is_undefined()) v.fail_undefined();
  if (!v.is_dict())
    raise_python("AttributeError", "'" + type_name(v) + "' object has no attribute 'items'");
  std::string out;
  for (const auto& [key, value] : v.dict().entries) {
    if (value.is_none() || value.is_undefined()) continue;
    if (!key.is_string())
      raise_type_error("expected string or bytes-like object, got '" + type_name(key) + "'");
    const std::string& name = key.text();
    if (name.find_first_of(" \t\n\f\r/>=") != std::string::npos)
      raise_value_error("Invalid character in attribute name: " + to_repr(key, in.budget()));
    out += (out.empty() ? "" : " ") + escaped_text(key, in.budget()) + "=\"" +
           escaped_text(value, in.budget()) + "\"";
  }
  if (!out.empty() && flag(a.find(0, "autospace"), true)) out.insert(0, " ");
  return in.autoescape() ? Value::markup(std::move(out)) : Value(std::move(out));
}

}  // namespace sluice::jinja::filters
