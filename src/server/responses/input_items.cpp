#include "server/responses/input_items.h"

#include <algorithm>
#include <optional>

#include "server/api/protocol_fields.h"
#include "server/api/request_fields.h"
#include "server/api/unknown_fields.h"
#include "server/core/errors.h"
#include "server/http/request_id.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxItems = 4096;
constexpr std::size_t kMaxToolNameBytes = 64;  // of a chat's tool
constexpr std::string_view kThoughtMark = "sluice1:";
constexpr std::string_view kHexDigits = "0123456789abcdef";

// Empty for what another server wrote.
std::string decoded_thoughts(std::string_view text) {
  std::string out;
  if (!text.starts_with(kThoughtMark)) return out;
  text.remove_prefix(kThoughtMark.size());
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    const std::size_t high = kHexDigits.find(text[i]), low = kHexDigits.find(text[i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return {};
    out += static_cast<char>(high * 16 + low);
  }
  return out;
}

// Collects items into messages.
class InputReader {
 public:
  std::optional<Fault> add(const Json& item, const std::string& path) {
    if (!item.is_object()) return wrong_type(path, "an object", json_type_name(item));
    const Json& type = member_or_null(item, "type");
    if (!type.is_null() && !type.is_string())
      return wrong_type(path + ".type", "a string", json_type_name(type));
    const std::string name = type.is_string()        ? type.get<std::string>()
                             : item.contains("role") ? "message"
                                                     : "";
    if (name.empty()) return missing_field(path + ".type");
    if (name == "message") return add_message(item, path);
    if (name == "reasoning") return add_reasoning(item, path);
    if (name == "function_call" || name == "custom_tool_call") return add_call(item, path, name);
    if (name == "function_call_output" || name == "custom_tool_call_output")
      return add_result(item, path);
    if (name == "item_reference")
      return unsupported(path + ".type", "send the item itself, or `previous_response_id`.");
    return invalid_value(
        path + ".type",
        fmt::format("An item of the type {} has no place here; `message`, `reasoning`, "
                    "`function_call`, `function_call_output`, `custom_tool_call` and "
                    "`custom_tool_call_output` have.",
                    shown_text(name)));
  }

  std::vector<SourcedMessage> take() {
    flush();
    return std::move(list_);
  }

 private:
  void flush() {
    if (!has_answer_) return;
    Json message{{"role", "assistant"}, {"content", content_.is_null() ? Json("") : content_}};
    if (!thoughts_.empty()) message["reasoning_content"] = std::move(thoughts_);
    if (!calls_.empty()) message["tool_calls"] = std::move(calls_);
    list_.emplace_back(std::move(message), path_);
    has_answer_ = false;
    content_ = nullptr;
    calls_ = Json::array();
    thoughts_.clear();
  }

  // The part of an answer at `path` comes.
  void begin(const std::string& path) {
    if (!has_answer_) path_ = path;
    has_answer_ = true;
  }

  std::optional<Fault> add_message(const Json& item, const std::string& path) {
    const Json& role = member_or_null(item, "role");
    const Json& content = member_or_null(item, "content");
    if (role.is_null()) return missing_field(path + ".role");
    if (content.is_null()) return missing_field(path + ".content");
    if (role == "assistant") {
      if (!content_.is_null() || !calls_.empty()) flush();
      begin(path);
      content_ = content;
      return std::nullopt;
    }
    if (role == "tool")
      return invalid_value(path + ".role", "Results of tools are `function_call_output` items.");
    flush();
    list_.emplace_back(Json{{"role", role}, {"content", content}}, path);
    return std::nullopt;
  }

  std::optional<Fault> add_reasoning(const Json& item, const std::string& path) {
    if (!content_.is_null() || !calls_.empty()) flush();
    begin(path);
    std::string text;
    for (const char* key : {"content", "summary"}) {
      const Json& parts = member_or_null(item, key);
      if (parts.is_null() || !text.empty()) continue;
      const std::string parts_path = fmt::format("{}.{}", path, key);
      if (!parts.is_array()) return wrong_type(parts_path, "an array", json_type_name(parts));
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::string part_path = fmt::format("{}.{}", parts_path, i);
        if (!parts[i].is_object())
          return wrong_type(part_path, "an object", json_type_name(parts[i]));
        std::optional<std::string> part;
        if (auto fault = read_member(parts[i], "text", part_path + ".text", part)) return fault;
        if (!part) return missing_field(part_path + ".text");
        text += *part;
      }
    }
    std::optional<std::string> encrypted;
    if (auto fault = read_member(item, "encrypted_content", path + ".encrypted_content", encrypted))
      return fault;
    if (text.empty() && encrypted) text = decoded_thoughts(*encrypted);
    if (!thoughts_.empty() && !text.empty()) thoughts_ += '\n';
    thoughts_ += text;
    return std::nullopt;
  }

  std::optional<Fault> add_call(const Json& item, const std::string& path,
                                const std::string& type) {
    const bool is_custom = type == "custom_tool_call";
    const char* const text_key = is_custom ? "input" : "arguments";
    std::optional<std::string> id, name, space, text;
    if (auto fault = read_member(item, "call_id", path + ".call_id", id)) return fault;
    if (auto fault = read_member(item, "name", path + ".name", name)) return fault;
    if (auto fault = read_member(item, "namespace", path + ".namespace", space)) return fault;
    if (auto fault = read_member(item, text_key, fmt::format("{}.{}", path, text_key), text))
      return fault;
    if (!id) return missing_field(path + ".call_id");
    if (!name) return missing_field(path + ".name");
    if (!text) return missing_field(fmt::format("{}.{}", path, text_key));
    begin(path);
    calls_.push_back(Json{{"id", *id},
                          {"type", "function"},
                          {"function",
                           {{"name", name_for_model(space.value_or(""), *name)},
                            {"arguments", is_custom ? Json{{"input", *text}} : Json(*text)}}}});
    return std::nullopt;
  }

  std::optional<Fault> add_result(const Json& item, const std::string& path) {
    std::optional<std::string> id;
    if (auto fault = read_member(item, "call_id", path + ".call_id", id)) return fault;
    if (!id) return missing_field(path + ".call_id");
    const Json& output = member_or_null(item, "output");
    if (output.is_null()) return missing_field(path + ".output");
    if (!output.is_string() && !output.is_array())
      return wrong_type(path + ".output", "a string or an array of parts", json_type_name(output));
    flush();
    list_.emplace_back(Json{{"role", "tool"}, {"tool_call_id", *id}, {"content", output}}, path);
    return std::nullopt;
  }

  std::vector<SourcedMessage> list_;
  // The assistant's message that is being collected.
  bool has_answer_ = false;
  std::string path_, thoughts_;
  Json content_, calls_ = Json::array();
};

std::string item_prefix(const Json& item) {
  const Json& type = member_or_null(item, "type");
  if (type == "reasoning") return "rs_";
  if (type == "function_call") return "fc_";
  if (type == "function_call_output") return "fco_";
  if (type == "custom_tool_call") return "ctc_";
  if (type == "custom_tool_call_output") return "ctco_";
  return "msg_";
}

}  // namespace

Result<std::vector<SourcedMessage>> read_input(const Json& input) {
  InputReader reader;
  if (input.is_string()) {
    if (auto fault = reader.add(Json{{"role", "user"}, {"content", input}}, "input")) return *fault;
    return reader.take();
  }
  if (!input.is_array())
    return wrong_type("input", "a string or an array of items", json_type_name(input));
  if (input.size() > kMaxItems)
    return Fault{
        400, "invalid_messages", "input",
        fmt::format("`input` has {} items; at most {} are allowed.", input.size(), kMaxItems)};
  for (std::size_t i = 0; i < input.size(); ++i)
    if (auto fault = reader.add(input[i], fmt::format("input.{}", i))) return *fault;
  return reader.take();
}

std::string name_for_model(std::string_view tool_namespace, std::string_view name) {
  if (tool_namespace.empty()) return std::string(name);
  std::string joined(tool_namespace);
  if (!joined.ends_with("__")) joined += "__";
  joined += name;
  return joined.size() <= kMaxToolNameBytes ? joined : std::string(name);
}

void note_input_keys(const Json& input, std::vector<std::string>& ignored) {
  static constexpr std::string_view kKnown[] = {
      "type",    "id",   "status", "role",  "content", "summary",   "encrypted_content",
      "call_id", "name", "output", "input", "phase",   "arguments", "namespace"};
  if (!input.is_array()) return;
  std::vector<std::string> unknown;
  for (const Json& item : input) {
    note_unknown(item, kKnown, "input.", unknown);
    if (member_or_null(item, "type") != "reasoning") continue;  // the chat reads other contents
    static constexpr std::string_view kPart[] = {"type", "text"};
    for (const char* key : {"content", "summary"})
      for (const Json& part : member_or_null(item, key))
        if (part.is_object()) note_unknown(part, kPart, fmt::format("input.{}.", key), unknown);
  }
  for (std::string& path : unknown)
    if (std::ranges::find(ignored, path) == ignored.end()) ignored.push_back(std::move(path));
}

Json listed_items(const Json& input) {
  Json list = Json::array();
  if (input.is_string()) {
    list.push_back(Json{{"type", "message"},
                        {"role", "user"},
                        {"content", Json::array({Json{{"type", "input_text"}, {"text", input}}})}});
  } else {
    list = input;
  }
  for (Json& item : list) {
    if (!member_or_null(item, "type").is_string()) item["type"] = "message";
    if (!member_or_null(item, "id").is_string()) item["id"] = make_id(item_prefix(item));
  }
  return list;
}

std::string encoded_thoughts(std::string_view thoughts) {
  std::string out(kThoughtMark);
  for (const char c : thoughts) {
    const auto byte = static_cast<unsigned char>(c);
    out += kHexDigits[byte >> 4];
    out += kHexDigits[byte & 15];
  }
  return out;
}

}  // namespace sluice
