#include "encode_calls.h"

#include <algorithm>

namespace sluice {
namespace {

std::string quoted(const std::string& text) {
  return dump_json(Json(text));
}

// A value in the language of the format. Recursion is bounded: the values are the test's own.
std::string literal(const ToolFormat& format, const Json& value, const std::string& text) {
  const bool is_braces = format.syntax == CallSyntax::kBraces;
  if (value.is_string()) {
    const auto& inside = value.get_ref<const std::string&>();
    return is_braces ? std::string(format.quote) + inside + std::string(format.quote)
                     : quoted(inside);
  }
  if (value.is_boolean() || value.is_null()) {
    if (is_braces || format.writes_json_words) return dump_json(value);
    return value.is_null() ? "None" : value.get<bool>() ? "True" : "False";
  }
  if (!value.is_structured() || is_big_integer(value)) return text;
  std::string out = value.is_array() ? "[" : "{";
  const std::string comma = is_braces ? "," : ", ", colon = is_braces ? ":" : ": ";
  bool is_first = true;
  for (const auto& [key, inner] : value.items()) {
    if (!is_first) out += comma;
    is_first = false;
    if (value.is_object()) out += (is_braces ? key : quoted(key)) + colon;
    out += literal(format, inner, dump_json(inner));
  }
  return out + (value.is_array() ? "]" : "}");
}

std::string tagged(const ToolFormat& format, const EncodedCall& call) {
  std::string out(format.after_name);
  for (const auto& [key, text] : call.members) {
    const Json value = parse_json_or_throw(text, "a value", kArgumentsJson);
    const bool is_string = value.is_string();
    out += std::string(format.key_open) + key;
    out +=
        is_string && !format.string_key_close.empty() ? format.string_key_close : format.key_close;
    out += format.after_key;
    out += format.value_open;
    const std::string pad = format.pads_values ? "\n" : "";
    out += pad + (is_string ? value.get<std::string>() : text) + pad;
    out += std::string(format.value_close) + std::string(format.after_pair);
  }
  return out;
}

std::string keywords(const ToolFormat& format, const EncodedCall& call) {
  const bool is_braces = format.syntax == CallSyntax::kBraces;
  std::string out = is_braces ? "{" : "(";
  for (const auto& [key, text] : call.members) {
    if (out.size() > 1) out += is_braces ? "," : ", ";
    const Json value = parse_json_or_throw(text, "a value", kArgumentsJson);
    out += key + (is_braces ? ":" : "=") + literal(format, value, text);
  }
  return out + (is_braces ? "}" : ")");
}

std::string object(const ToolFormat& format, const EncodedCall& call, const std::string& id) {
  std::string out = "{\"" + std::string(format.name_key) + "\": " + quoted(call.name) + ", \"" +
                    std::string(format.arguments_key) + "\": " + call.arguments();
  if (format.ids == CallIds::kNineLetters && !id.empty()) out += ", \"id\": " + quoted(id);
  return out + "}";
}

std::string encode_call(const ToolFormat& format, const EncodedCall& call, const std::string& id,
                        std::size_t number) {
  if (format.syntax == CallSyntax::kObject) return object(format, call, id);
  if (format.syntax == CallSyntax::kChannels)
    return std::string(number > 0 ? "<|start|>assistant" : "") + std::string(format.open) +
           "commentary to=functions." + call.name + " <|constrain|>json" +
           std::string(format.name_close) + call.arguments() + std::string(format.call_close);
  std::string out = std::string(format.call_open) + std::string(format.type);
  out += format.ids == CallIds::kName ? "functions." + call.name + ":" + std::to_string(number)
                                      : call.name;
  if (!format.id_open.empty() && !id.empty()) out += std::string(format.id_open) + id;
  out += format.name_close;
  switch (format.syntax) {
    case CallSyntax::kNamed:
      out += call.arguments();
      break;
    case CallSyntax::kTagged:
      out += tagged(format, call);
      break;
    default:
      out += keywords(format, call);
      break;
  }
  for (const std::string_view close : {format.arguments_close, format.call_close, format.call_tail})
    out += close;
  return out;
}

}  // namespace

std::string EncodedCall::arguments() const {
  std::string out = "{";
  for (const auto& [key, value] : members)
    out += (out.size() > 1 ? ", " : "") + quoted(key) + ": " + value;
  return out + "}";
}

std::string encode_calls(const ToolFormat& format, const std::vector<EncodedCall>& calls,
                         const std::vector<std::string>& ids) {
  std::string out;
  const bool is_channels = format.syntax == CallSyntax::kChannels;
  // Where calls are known without a mark, templates write none.
  const std::string_view open =
      is_channels || !format.bare.empty() ? std::string_view() : format.open;
  const std::string_view close = format.bare.empty() ? format.close : std::string_view();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const bool begins = format.one_per_block || i == 0;
    if (i > 0 && format.one_per_block) out += format.between_blocks;
    if (i > 0 && !format.one_per_block)
      out += (format.is_list() ? "," : "") + std::string(format.between_calls);
    if (begins) out += std::string(open) + std::string(format.list_open);
    if (begins) out += format.before_call;
    out += encode_call(format, calls[i], i < ids.size() ? ids[i] : std::string(), i);
    if (format.one_per_block || i + 1 == calls.size())
      out += std::string(format.after_call) + std::string(format.list_close) + std::string(close);
  }
  return out;
}

}  // namespace sluice
