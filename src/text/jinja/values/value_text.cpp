// str() and repr() of values.
#include <array>
#include <charconv>
#include <cmath>

#include "text/jinja/values/callable.h"
#include "text/jinja/values/unicode.h"
#include "text/jinja/values/value.h"

namespace sluice::jinja {
namespace {

void append_hex(std::string& out, std::string_view prefix, std::uint32_t code, int digits) {
  out += prefix;
  for (int shift = (digits - 1) * 4; shift >= 0; shift -= 4)
    out += "0123456789abcdef"[code >> shift & 15];
}

void append_value(std::string& out, const Value& value, Budget& budget, int depth);

void append_items(std::string& out, const std::vector<Value>& items, Budget& budget, int depth) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append_value(out, items[i], budget, depth);
  }
}

void append_sequence(std::string& out, const SequenceData& data, Budget& budget, int depth) {
  switch (data.kind) {
    case SequenceKind::kList:
      out += '[';
      append_items(out, data.items, budget, depth);
      out += ']';
      return;
    case SequenceKind::kTuple:
    case SequenceKind::kGroup:
      out += '(';
      append_items(out, data.items, budget, depth);
      out += data.items.size() == 1 ? ",)" : ")";
      return;
    case SequenceKind::kKeys:
      out += "dict_keys([";
      break;
    case SequenceKind::kValues:
      out += "dict_values([";
      break;
    case SequenceKind::kItems:
      out += "dict_items([";
      break;
  }
  append_items(out, data.items, budget, depth);
  out += "])";
}

void append_value(std::string& out, const Value& value, Budget& budget, int depth) {
  if (depth > budget.limits().max_value_depth + 8) raise_recursion();
  const std::size_t before = out.size();
  switch (value.type()) {
    case Type::kUndefined:
      out += "Undefined";
      break;
    case Type::kNone:
      out += "None";
      break;
    case Type::kBool:
      out += value.boolean() ? "True" : "False";
      break;
    case Type::kInt:
      out += integer_text(value);
      break;
    case Type::kFloat:
      out += format_float(value.real());
      break;
    case Type::kString:
      if (value.string().markup) out += "Markup(";
      append_repr(out, value.text());
      if (value.string().markup) out += ')';
      break;
    case Type::kBytes: {
      const std::string& bytes = value.text();
      const char quote =
          bytes.find('\'') != std::string::npos && bytes.find('"') == std::string::npos ? '"'
                                                                                        : '\'';
      out += 'b';
      out += quote;
      for (const char c : value.text()) {
        const auto b = static_cast<unsigned char>(c);
        if (c == quote || c == '\\') {
          out += '\\', out += c;
        } else if (b >= 0x20 && b < 0x7F) {
          out += c;
        } else if (c == '\n' || c == '\r' || c == '\t') {
          out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
        } else {
          append_hex(out, "\\x", b, 2);
        }
      }
      out += quote;
      break;
    }
    case Type::kSequence:
      append_sequence(out, value.sequence(), budget, depth + 1);
      break;
    case Type::kDict: {
      out += '{';
      bool first = true;
      for (const auto& [key, item] : value.dict().entries) {
        if (!first) out += ", ";
        first = false;
        append_value(out, key, budget, depth + 1);
        out += ": ";
        append_value(out, item, budget, depth + 1);
      }
      out += '}';
      break;
    }
    case Type::kRange: {
      const RangeData& range = value.range();
      out += "range(" + std::to_string(range.start) + ", " + std::to_string(range.stop);
      if (range.step != 1) out += ", " + std::to_string(range.step);
      out += ')';
      break;
    }
    case Type::kIterator:
      out += "<generator object>";
      break;
    case Type::kNamespace: {
      out += "<Namespace {";
      bool first = true;
      for (const auto& [name, item] : value.name_space_data().fields) {
        if (!first) out += ", ";
        first = false;
        append_repr(out, name);
        out += ": ";
        append_value(out, item, budget, depth + 1);
      }
      out += "}>";
      break;
    }
    case Type::kCallable:
      out += value.callable().representation();
      break;
    case Type::kLoop:
      out += value.loop().representation();
      break;
    case Type::kObject:
      out += value.text();
      break;
  }
  // A container has already paid for its items. The division below rounds away the cost of its
  // brackets.
  if (depth_of(value) == 0) {
    budget.charge_bytes(out.size() - before);
  } else {
    budget.charge();
  }
}

}  // namespace

void append_repr(std::string& out, std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out += quote;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t begin = pos;
    const std::uint32_t code = next_code_point(text, pos);
    if (code == static_cast<unsigned char>(quote) || code == '\\') {
      out += '\\';
      out += static_cast<char>(code);
    } else if (code == '\n') {
      out += "\\n";
    } else if (code == '\r') {
      out += "\\r";
    } else if (code == '\t') {
      out += "\\t";
    } else if (code < 0x20 || code == 0x7F) {
      append_hex(out, "\\x", code, 2);
    } else if (code < 0x7F || is_printable(code)) {
      out += text.substr(begin, pos - begin);
    } else if (code < 0x100) {
      append_hex(out, "\\x", code, 2);
    } else if (code < 0x10000) {
      append_hex(out, "\\u", code, 4);
    } else {
      append_hex(out, "\\U", code, 8);
    }
  }
  out += quote;
}

std::string format_int(Int value) {
  if (value == 0) return "0";
  std::string digits;
  auto rest =
      value < 0 ? -static_cast<unsigned __int128>(value) : static_cast<unsigned __int128>(value);
  for (; rest > 0; rest /= 10) digits += static_cast<char>('0' + static_cast<int>(rest % 10));
  if (value < 0) digits += '-';
  return {digits.rbegin(), digits.rend()};
}

std::string integer_text(const Value& value) {
  if (!value.is_big()) return format_int(value.integer());
  const BigInt big = value.big();
  std::string text;
  // A digit has more than 3.3 bits, so no number is written that is certainly too long.
  if (big.bits() < kMaxIntegerDigits * 34 / 10) text = big.text(10);
  if (text.empty() || text.size() - (big.is_negative() ? 1 : 0) > kMaxIntegerDigits)
    raise_value_error("Exceeds the limit (" + std::to_string(kMaxIntegerDigits) +
                      " digits) for integer string conversion");
  return text;
}

// The shortest digits that read back as the same number; with an exponent below 1e-4 and from 1e16
// on.
std::string format_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 400> buffer;
  const double size = std::fabs(value);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto result =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                    plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer.data(), result.ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string to_repr(const Value& value, Budget& budget) {
  std::string out;
  append_value(out, value, budget, 0);
  return out;
}

std::string to_text(const Value& value, Budget& budget) {
  switch (value.type()) {
    case Type::kUndefined:
      return {};
    case Type::kString:
      budget.charge_bytes(value.text().size());
      return value.text();
    default:
      return to_repr(value, budget);
  }
}

}  // namespace sluice::jinja
