// json.dumps, as the tojson filter of chat templates calls it: no HTML escapes, text kept as it is.
#include <algorithm>
#include <cmath>

#include "text/jinja/operations.h"
#include "text/jinja/values/unicode.h"

namespace sluice::jinja {
namespace {

class Writer {
 public:
  Writer(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  void value(const Value& v, int depth) {
    const std::size_t before = out.size();
    budget_.charge();
    switch (v.type()) {
      case Type::kNone:
        out += "null";
        break;
      case Type::kBool:
        out += v.boolean() ? "true" : "false";
        break;
      case Type::kInt:
        out += integer_text(v);
        break;
      case Type::kFloat:
        out += number(v.real());
        break;
      case Type::kString:
        string(v.text());
        budget_.charge_bytes(out.size() - before);
        break;
      case Type::kSequence:
        if (static_cast<int>(v.sequence().kind) > static_cast<int>(SequenceKind::kTuple) &&
            v.sequence().kind != SequenceKind::kGroup)
          refuse(v);
        list(v.items(), depth);
        break;
      case Type::kDict:
        dict(v.dict(), depth);
        break;
      default:
        refuse(v);
    }
  }

  std::string out;

 private:
  [[noreturn]] static void refuse(const Value& v) {
    raise_type_error("Object of type " + type_name(v) + " is not JSON serializable");
  }

  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return format_float(value);
  }

  void escape(std::uint32_t unit) {
    out += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out += "0123456789abcdef"[unit >> shift & 15];
  }

  void string(std::string_view text) {
    out += '"';
    for (std::size_t pos = 0; pos < text.size();) {
      const std::size_t begin = pos;
      const std::uint32_t code = next_code_point(text, pos);
      static constexpr std::string_view kLetters = "\"\\\n\r\t\b\f", kEscapes = "\"\\nrtbf";
      const std::size_t known =
          code < 128 ? kLetters.find(static_cast<char>(code)) : std::string_view::npos;
      if (known != std::string_view::npos) {
        out += '\\';
        out += kEscapes[known];
      } else if (code < 0x20) {
        escape(code);
      } else if (!style_.ensure_ascii || code < 0x7F) {
        out += text.substr(begin, pos - begin);
      } else if (code < 0x10000) {
        escape(code);
      } else {
        escape(0xD800 + ((code - 0x10000) >> 10));
        escape(0xDC00 + ((code - 0x10000) & 0x3FF));
      }
    }
    out += '"';
  }

  void line(int depth) {
    if (!style_.indent) return;
    out += '\n';
    for (int i = 0; i < depth; ++i) out += *style_.indent;
    budget_.charge_bytes(static_cast<std::size_t>(depth) * style_.indent->size());
  }

  void list(const std::vector<Value>& items, int depth) {
    out += '[';
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += style_.item_separator;
      line(depth + 1);
      value(items[i], depth + 1);
    }
    if (!items.empty()) line(depth);
    out += ']';
  }

  void key(const Value& k) {
    switch (k.type()) {
      case Type::kString:
        string(k.text());
        return;
      case Type::kBool:
        out += k.boolean() ? "\"true\"" : "\"false\"";
        return;
      case Type::kNone:
        out += "\"null\"";
        return;
      case Type::kInt:
        out += '"' + integer_text(k) + '"';
        return;
      case Type::kFloat:
        out += '"' + number(k.real()) + '"';
        return;
      default:
        raise_type_error("keys must be str, int, float, bool or None, not " + type_name(k));
    }
  }

  void dict(const DictData& data, int depth) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : data.entries) entries.push_back(&entry);
    if (style_.sort_keys)
      std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
        return ordered(a->first, b->first, Order::kLess, budget_);
      });
    out += '{';
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out += style_.item_separator;
      line(depth + 1);
      key(entries[i]->first);
      out += style_.key_separator;
      value(entries[i]->second, depth + 1);
    }
    if (!entries.empty()) line(depth);
    out += '}';
  }

  const JsonStyle& style_;
  Budget& budget_;
};

}  // namespace

std::string to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  Writer writer(style, budget);
  writer.value(value, 0);
  return std::move(writer.out);
}

}  // namespace sluice::jinja
