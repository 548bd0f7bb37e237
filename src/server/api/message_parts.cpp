#include "server/api/message_parts.h"

#include <algorithm>
#include <iterator>

#include "server/api/request_fields.h"
#include "server/core/errors.h"

namespace sluice {
namespace {

constexpr std::string_view kMediaParts[] = {"image_url",   "image",     "input_image",
                                            "input_audio", "audio_url", "video_url",
                                            "video",       "file",      "input_file"};

struct PartRow {
  std::string_view type;
  const char* key;  // of the part's text
  bool is_reasoning;
};

constexpr PartRow kParts[] = {
    {"text", "text", false},
    {"input_text", "text", false},
    {"output_text", "text", false},
    {"refusal", "refusal", false},
    {"thinking", "thinking", true},  // Anthropic's and Mistral's
    {"reasoning", "text", true},
    {"reasoning_text", "text", true},
    {"redacted_thinking", nullptr, true},  // encrypted: nothing to read
};

bool is_media(std::string_view type) {
  return std::find(std::begin(kMediaParts), std::end(kMediaParts), type) != std::end(kMediaParts);
}

// A text, null, or a list of texts and of objects with a text.
std::optional<Fault> read_text(const Json& value, const std::string& path, std::string& out) {
  if (value.is_null()) return std::nullopt;
  if (value.is_string()) {
    out += value.get_ref<const std::string&>();
    return std::nullopt;
  }
  if (!value.is_array()) return wrong_type(path, "a string", json_type_name(value));
  for (const Json& item : value) {
    const bool has_text = item.is_object() && item.contains("text");
    if (auto fault = read_text(has_text ? item["text"] : item, path, out)) return fault;
  }
  return std::nullopt;
}

// Anthropic's call.
std::optional<Fault> read_tool_use(const Json& part, const std::string& path, Json& calls) {
  const auto name = part.find("name");
  if (name == part.end() || !name->is_string()) return missing_field(path + ".name");
  Json input = part.value("input", Json::object());
  if (!input.is_object() && !input.is_string())
    return wrong_type(path + ".input", "an object", json_type_name(input));
  Json call{{"type", "function"}, {"function", {{"name", *name}, {"arguments", std::move(input)}}}};
  if (part.contains("id") && part["id"].is_string()) call["id"] = part["id"];
  calls.push_back(std::move(call));
  return std::nullopt;
}

std::optional<Fault> read_part(const Json& part, const std::string& path, bool is_assistant,
                               MessageText& out) {
  const auto add = [&](Json text) {
    out.content.push_back(Json{{"type", "text"}, {"text", std::move(text)}});
  };
  if (part.is_null()) return std::nullopt;
  if (part.is_string()) {
    add(part);
    return std::nullopt;
  }
  if (!part.is_object()) return wrong_type(path, "an object with a type", json_type_name(part));
  const auto type = part.find("type");
  const bool is_typed = type != part.end() && type->is_string();
  if (!is_typed && !part.contains("text")) return missing_field(path + ".type");
  const std::string name = is_typed ? type->get<std::string>() : "text";
  if (is_media(name))
    return unsupported(path + ".type", "this server reads text only, and fetches nothing.");
  if (name == "tool_use" && is_assistant) return read_tool_use(part, path, out.calls);
  const auto row = std::find_if(std::begin(kParts), std::end(kParts),
                                [&](const PartRow& known) { return known.type == name; });
  if (row == std::end(kParts) || (row->is_reasoning && !is_assistant))
    return invalid_value(
        path + ".type",
        fmt::format(
            "The type of a part must be `text`{}, not {}.",
            is_assistant ? ", `output_text`, `refusal`, `thinking`, `reasoning` or `tool_use`" : "",
            shown_text(name)));
  if (!row->key) return std::nullopt;
  std::string text;
  const std::string text_path = fmt::format("{}.{}", path, row->key);
  const auto value = part.find(row->key);
  if (value == part.end() && !row->is_reasoning) return missing_field(text_path);
  if (value != part.end())
    if (auto fault = read_text(*value, text_path, text)) return fault;
  if (!row->is_reasoning) {
    add(text);
    return std::nullopt;
  }
  // The Responses API has the text in lists.
  for (const char* key : {"summary", "content"})
    if (part.contains(key))
      if (auto fault = read_text(part[key], fmt::format("{}.{}", path, key), text)) return fault;
  if (!out.reasoning.empty() && !text.empty()) out.reasoning += '\n';
  out.reasoning += text;
  return std::nullopt;
}

}  // namespace

std::optional<Fault> read_content(const Json& content, const std::string& path, bool is_assistant,
                                  MessageText& out) {
  if (content.is_string()) {
    out.content = content;
    return std::nullopt;
  }
  if (!content.is_array())
    return wrong_type(path, "a string or an array of parts", json_type_name(content));
  out.content = Json::array();
  for (std::size_t i = 0; i < content.size(); ++i)
    if (auto fault = read_part(content[i], fmt::format("{}.{}", path, i), is_assistant, out))
      return fault;
  return std::nullopt;
}

}  // namespace sluice
