#include "text/jinja/markup.h"

#include <vector>

#include "text/jinja/interpreter.h"
#include "text/jinja/operations.h"
#include "text/jinja/values/unicode.h"

namespace sluice::jinja {
namespace {

// The values of a result become Markup: a text, or a list or tuple of texts.
Value as_markup(const Value& value) {
  if (value.is_string()) return Value::markup(value.text());
  if (!value.is_sequence()) return value;
  std::vector<Value> items;
  for (const Value& item : value.items()) items.push_back(as_markup(item));
  return Value::list(std::move(items), value.sequence().kind);
}

Value plain(const Callable& method, Interpreter& in, const Arguments& a) {
  Callable call(method.name(), find_string_method(method.name()), method.self());
  return call.call(in, a);
}

Value kept(Interpreter& in, Callable& c, const Arguments& a) {
  return as_markup(plain(c, in, a));
}

// The second argument (a replacement, a fill) is text to be escaped.
Value with_escaped_text(Interpreter& in, Callable& c, const Arguments& a) {
  Arguments escaped = a;
  if (escaped.positional.size() > 1)
    escaped.positional[1] = Value(escaped_text(a.positional[1], in.budget()));
  return kept(in, c, escaped);
}

Value join(Interpreter& in, Callable& c, const Arguments& a) {
  a.check("join", {"iterable"});
  if (a.positional.empty()) raise_type_error("join() missing 1 required argument: 'iterable'");
  Arguments escaped;
  std::vector<Value> items;
  for (const Value& item : iterate(a.positional[0], in.budget()))
    items.emplace_back(escaped_text(item, in.budget()));
  escaped.positional.push_back(Value::list(std::move(items)));
  return kept(in, c, escaped);
}

Value unescape(Interpreter& in, Callable& c, const Arguments& a) {
  a.check("unescape", {});
  in.budget().charge_bytes(c.self().text().size());
  return Value(unescape_html(c.self().text()));
}

Value striptags(Interpreter& in, Callable& c, const Arguments& a) {
  a.check("striptags", {});
  in.budget().charge_bytes(c.self().text().size());
  return Value(strip_tags(c.self().text()));
}

Value escape(Interpreter& in, Callable&, const Arguments& a) {
  a.check("escape", {"s"});
  if (a.positional.empty()) raise_type_error("escape() missing 1 required argument: 's'");
  return Value::markup(escaped_text(a.positional[0], in.budget()));
}

struct Row {
  std::string_view name;
  Callable::Function function;
};

constexpr Row kRows[] = {{"capitalize", kept},
                         {"title", kept},
                         {"lower", kept},
                         {"upper", kept},
                         {"lstrip", kept},
                         {"rstrip", kept},
                         {"strip", kept},
                         {"translate", kept},
                         {"expandtabs", kept},
                         {"swapcase", kept},
                         {"zfill", kept},
                         {"casefold", kept},
                         {"removeprefix", kept},
                         {"split", kept},
                         {"removesuffix", kept},
                         {"rsplit", kept},
                         {"splitlines", kept},
                         {"partition", kept},
                         {"rpartition", kept},
                         {"format", kept},
                         {"format_map", kept},
                         {"join", join},
                         {"unescape", unescape},
                         {"striptags", striptags},
                         {"replace", with_escaped_text},
                         {"ljust", with_escaped_text},
                         {"rjust", with_escaped_text},
                         {"center", with_escaped_text},
                         {"escape", escape}};

}  // namespace

bool is_markup(const Value& value) {
  return value.is_string() && value.string().markup;
}

Value text_like(const Value& like, std::string text) {
  return is_markup(like) ? Value::markup(std::move(text)) : Value(std::move(text));
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string escaped_text(const Value& value, Budget& budget) {
  std::string text = to_text(value, budget);
  return is_markup(value) ? text : escape_html(text);
}

Callable::Function find_markup_method(std::string_view name) {
  for (const Row& row : kRows)
    if (row.name == name) return row.function;
  return nullptr;
}

std::string strip_tags(std::string_view text) {
  std::string kept;
  std::size_t pos = 0;
  for (std::size_t open; (open = text.find('<', pos)) != std::string_view::npos;) {
    const bool comment = text.substr(open).starts_with("<!--");
    const std::size_t close = comment ? text.find("-->", open + 4) : text.find('>', open);
    if (close == std::string_view::npos) break;
    kept += text.substr(pos, open - pos);
    pos = close + (comment ? 3 : 1);
  }
  kept += text.substr(pos);
  std::string words;
  for (std::string_view rest = strip(kept); !rest.empty(); rest = strip(rest)) {
    std::size_t end = 0;
    while (end < rest.size()) {
      std::size_t next = end;
      if (is_space(next_code_point(rest, next))) break;
      end = next;
    }
    if (!words.empty()) words += ' ';
    words += rest.substr(0, end);
    rest.remove_prefix(end);
  }
  return unescape_html(words);
}

}  // namespace sluice::jinja
