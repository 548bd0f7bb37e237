// str.encode, bytes.decode, str.translate and str.maketrans.
#include "text/jinja/text_coding.h"

#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/operations.h"
#include "text/jinja/values/unicode.h"
#include "text/unicode.h"

namespace sluice::jinja {
namespace {

enum class Coding { kUtf8, kAscii, kLatin1 };

struct Options {
  Coding coding = Coding::kUtf8;
  std::string errors = "strict";
};

Options options_of(const Arguments& a, std::string_view method) {
  a.check(method, {"encoding", "errors"});
  const Value *encoding = a.find(0, "encoding"), *errors = a.find(1, "errors");
  Options out;
  if (errors) out.errors = as_string(*errors, std::string(method) + "() argument 'errors'");
  if (!encoding) return out;
  const std::string& given = as_string(*encoding, std::string(method) + "() argument 'encoding'");
  std::string name = to_lower(given);
  std::replace(name.begin(), name.end(), '_', '-');
  if (name == "utf-8" || name == "utf8") return out;
  if (name == "ascii" || name == "us-ascii") {
    out.coding = Coding::kAscii;
  } else if (name == "latin-1" || name == "latin1" || name == "iso-8859-1") {
    out.coding = Coding::kLatin1;
  } else {
    raise_python("LookupError", "unknown encoding: " + given);
  }
  return out;
}

}  // namespace

Value encode_text(Interpreter& in, Callable& c, const Arguments& a) {
  const Options options = options_of(a, "encode");
  const std::string& text = c.self().text();
  in.budget().charge_bytes(text.size());
  if (options.coding == Coding::kUtf8) return Value::bytes(text);
  const std::uint32_t limit = options.coding == Coding::kAscii ? 0x80 : 0x100;
  std::string out;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::uint32_t code = next_code_point(text, pos);
    if (code < limit) {
      out += static_cast<char>(code);
    } else if (options.errors == "replace") {
      out += '?';
    } else if (options.errors != "ignore") {
      raise_python("UnicodeEncodeError", "a character is outside the encoding");
    }
  }
  return Value::bytes(out);
}

Value decode_bytes(Interpreter& in, Callable& c, const Arguments& a) {
  const Options options = options_of(a, "decode");
  const std::string& bytes = c.self().text();
  in.budget().charge_bytes(bytes.size());
  if (options.coding == Coding::kUtf8) {
    if (is_valid_utf8(bytes)) return Value(bytes);
    if (options.errors == "replace") return Value(to_valid_utf8(bytes));
    raise_python("UnicodeDecodeError", "the bytes are not UTF-8");
  }
  std::string out;
  for (const char byte : bytes) {
    const auto code = static_cast<unsigned char>(byte);
    if (code < 0x80 || options.coding == Coding::kLatin1) {
      append_code_point(out, code);
    } else if (options.errors == "replace") {
      out += "\uFFFD";
    } else if (options.errors != "ignore") {
      raise_python("UnicodeDecodeError", "a byte is outside the encoding");
    }
  }
  return Value(std::move(out));
}

Value translate(Interpreter& in, Callable& c, const Arguments& a) {
  if (a.positional.size() != 1 || !a.named.empty())
    raise_type_error("str.translate() takes exactly one argument");
  const Value& table = a.positional[0];
  if (table.is_undefined()) table.fail_undefined();
  if (!table.is_dict() && !table.is_sequence() && !table.is_string())
    raise_type_error("'" + type_name(table) + "' object is not subscriptable");
  const std::string& text = c.self().text();
  std::string out;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t begin = pos;
    const std::uint32_t code = next_code_point(text, pos);
    in.budget().charge(2);
    const Value key(static_cast<std::int64_t>(code));
    const Value found = table.is_dict() && !table.dict().find(key, in.budget())
                            ? Value()
                            : get_item(in, table, key);
    if (found.is_undefined()) {
      out += text.substr(begin, pos - begin);
    } else if (found.is_integer()) {
      if (found.integer() < 0 || found.integer() > 0x10FFFF)
        raise_value_error("character mapping must be in range(0x110000)");
      append_code_point(out, static_cast<std::uint32_t>(found.integer()));
    } else if (found.is_string()) {
      out += found.text();
      in.budget().charge_bytes(found.text().size());
    } else if (!found.is_none()) {
      raise_type_error("character mapping must return integer, None or str");
    }
  }
  return Value(std::move(out));
}

Value make_translation(Interpreter& in, Callable&, const Arguments& a) {
  const std::size_t given = a.positional.size();
  if (given < 1 || given > 3 || !a.named.empty())
    raise_type_error("maketrans expected 1 to 3 arguments");
  DictData table;
  const auto code_of = [](const std::string& text) {
    std::size_t pos = 0;
    return Value(static_cast<std::int64_t>(next_code_point(text, pos)));
  };
  if (given == 1) {
    if (!a.positional[0].is_dict())
      raise_type_error("if you give only one argument to maketrans it must be a dict");
    for (const auto& [key, value] : a.positional[0].dict().entries) {
      if (!key.is_integer() && !key.is_string())
        raise_type_error("keys in translate table must be strings or integers");
      if (key.is_string() && key.string().length != 1)
        raise_value_error("string keys in translate table must be of length 1");
      table.set(key.is_string() ? code_of(key.text()) : key, value, in.budget());
    }
    return Value::dict(std::move(table));
  }
  const std::vector<Value> from = iterate(Value(as_string(a.positional[0], "maketrans() argument")),
                                          in.budget()),
                           to = iterate(Value(as_string(a.positional[1], "maketrans() argument")),
                                        in.budget());
  if (from.size() != to.size())
    raise_value_error("the first two maketrans arguments must have equal length");
  for (std::size_t i = 0; i < from.size(); ++i)
    table.set(code_of(from[i].text()), code_of(to[i].text()), in.budget());
  if (given == 3)
    for (const Value& gone :
         iterate(Value(as_string(a.positional[2], "maketrans() argument")), in.budget()))
      table.set(code_of(gone.text()), Value::none(), in.budget());
  return Value::dict(std::move(table));
}

}  // namespace sluice::jinja
