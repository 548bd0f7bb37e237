// Tools of the Responses API: functions in the flat form, custom tools, and those that only their
// maker's servers run.
#include "server/api/field_values.h"
#include "server/api/request_fields.h"
#include "server/api/unknown_fields.h"
#include "server/core/errors.h"
#include "server/responses/responses_request.h"

namespace sluice {
namespace {

// Tools that a server runs. There are none here, so the model is not told of them.
constexpr std::string_view kHosted[] = {
    "web_search",           "web_search_2025_08_26",
    "web_search_preview",   "file_search",
    "code_interpreter",     "image_generation",
    "local_shell",          "shell",
    "apply_patch",          "computer",
    "computer_use_preview", "mcp",
    "tool_search",          "web_search_preview_2025_03_11",
};

bool is_hosted(std::string_view type) {
  for (const std::string_view known : kHosted)
    if (known == type) return true;
  return false;
}

class ToolReader {
 public:
  explicit ToolReader(ResponsesRequest& out) : out_(out) {}

  // `space`: the namespace that holds it; null: none does.
  std::optional<Fault> add(const Json& tool, const std::string& path, const std::string* space) {
    if (!tool.is_object()) return wrong_type(path, "an object", json_type_name(tool));
    const Json& type = member_or_null(tool, "type");
    if (type.is_null()) return missing_field(path + ".type");
    if (!type.is_string()) return wrong_type(path + ".type", "a string", json_type_name(type));
    const std::string name = type.get<std::string>();
    const std::string none;
    if (name == "function") return add_function(tool, path, space ? *space : none);
    if (name == "custom") return add_custom(tool, path, space ? *space : none);
    if (name == "namespace" && !space) return add_namespace(tool, path);
    if (is_hosted(name)) {
      note_without_effect(fmt::format("tools.{}", name), out_.ignored);
      return std::nullopt;
    }
    return Fault{400, "invalid_tools", path + ".type",
                 fmt::format("A tool of the type {} is not known; `function` and `custom` are.",
                             shown_text(name))};
  }

  Json take() { return std::move(list_); }

 private:
  std::optional<Fault> add_namespace(const Json& tool, const std::string& path) {
    std::optional<std::string> name;
    if (auto fault = read_member(tool, "name", path + ".name", name)) return fault;
    if (!name) return missing_field(path + ".name");
    const Json& inner = member_or_null(tool, "tools");
    if (!inner.is_array()) return wrong_type(path + ".tools", "an array", json_type_name(inner));
    if (!member_or_null(tool, "description").is_null())
      note_without_effect("tools.namespace.description", out_.ignored);
    static constexpr std::string_view kKnown[] = {"type", "name", "description", "tools"};
    note_unknown(tool, kKnown, "tools.", out_.ignored);
    for (std::size_t i = 0; i < inner.size(); ++i)
      if (auto fault = add(inner[i], fmt::format("{}.tools.{}", path, i), &*name)) return fault;
    return std::nullopt;
  }

  void add_chat(Json function, const std::string& path) {
    const std::string chat = fmt::format("tools.{}.function", list_.size());
    out_.names.add(chat, path);
    // X-Ignored-Fields names tools by their names. A number would be taken for a place.
    const std::string name = function.value("name", Json()).is_string()
                                 ? function["name"].get<std::string>()
                                 : std::string();
    if (name.find_first_not_of("0123456789") != std::string::npos)
      out_.names.add(fmt::format("tools.{}.function", name), fmt::format("tools.{}", name));
    list_.push_back(Json{{"type", "function"}, {"function", std::move(function)}});
  }

  std::optional<Fault> add_function(const Json& tool, const std::string& path,
                                    const std::string& space) {
    Json function = Json::object();
    for (const char* key : {"name", "description", "parameters", "strict"})
      if (!member_or_null(tool, key).is_null()) function[key] = tool[key];
    if (!member_or_null(tool, "defer_loading").is_null())  // all tools are told at once
      note_without_effect("tools.defer_loading", out_.ignored);
    static constexpr std::string_view kKnown[] = {"type",       "name",   "description",
                                                  "parameters", "strict", "defer_loading"};
    note_unknown(tool, kKnown, "tools.", out_.ignored);
    if (!function.contains("parameters"))
      function["parameters"] = Json{{"type", "object"}, {"properties", Json::object()}};
    const Json& name = member_or_null(function, "name");
    if (!space.empty() && name.is_string()) {
      ResponseTool own{{}, name.get<std::string>(), space, false};
      own.model_name = name_for_model(space, own.name);
      function["name"] = own.model_name;
      out_.tools.push_back(std::move(own));
    }
    add_chat(std::move(function), path);
    return std::nullopt;
  }

  // The model calls it as a function with one text.
  std::optional<Fault> add_custom(const Json& tool, const std::string& path,
                                  const std::string& space) {
    std::optional<std::string> name, description;
    if (auto fault = read_member(tool, "name", path + ".name", name)) return fault;
    if (!name) return missing_field(path + ".name");
    if (auto fault = read_member(tool, "description", path + ".description", description))
      return fault;
    const Json& format = member_or_null(tool, "format");
    if (!format.is_null()) {
      if (!format.is_object())
        return wrong_type(path + ".format", "an object", json_type_name(format));
      const Json& type = member_or_null(format, "type");
      if (type != "text" && type != "grammar")
        return bad_word(path + ".format.type", "`text` or `grammar`", type);
      if (type == "grammar") note_without_effect("tools.format", out_.ignored);
    }
    static constexpr std::string_view kKnown[] = {"type", "name", "description", "format"};
    note_unknown(tool, kKnown, "tools.", out_.ignored);
    ResponseTool own{name_for_model(space, *name), *name, space, true};
    Json function{{"name", own.model_name}};
    if (description) function["description"] = *description;
    function["parameters"] = Json{{"type", "object"},
                                  {"properties", {{"input", {{"type", "string"}}}}},
                                  {"required", Json::array({"input"})}};
    out_.tools.push_back(std::move(own));
    add_chat(std::move(function), path);
    return std::nullopt;
  }

  ResponsesRequest& out_;
  Json list_ = Json::array();
};

// The tool that a choice names, as the model knows it.
std::optional<Fault> read_chosen(const Json& choice, const std::string& path, std::string& out) {
  std::optional<std::string> name, space;
  if (auto fault = read_member(choice, "name", path + ".name", name)) return fault;
  if (!name) return missing_field(path + ".name");
  if (auto fault = read_member(choice, "namespace", path + ".namespace", space)) return fault;
  out = name_for_model(space.value_or(""), *name);
  return std::nullopt;
}

// A choice among some of the tools, in the nested form of chat.
std::optional<Fault> read_allowed_tools(const Json& choice, ResponsesRequest& out) {
  const Json& tools = member_or_null(choice, "tools");
  if (!tools.is_array()) return wrong_type("tool_choice.tools", "an array", json_type_name(tools));
  Json list = Json::array();
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const std::string path = fmt::format("tool_choice.tools.{}", i);
    if (!tools[i].is_object()) return wrong_type(path, "an object", json_type_name(tools[i]));
    std::string name;
    if (auto fault = read_chosen(tools[i], path, name)) return fault;
    list.push_back(Json{{"type", "function"}, {"function", {{"name", name}}}});
  }
  Json allowed{{"tools", std::move(list)}};
  if (choice.contains("mode")) allowed["mode"] = choice["mode"];
  out.chat["tool_choice"] = Json{{"type", "allowed_tools"}, {"allowed_tools", std::move(allowed)}};
  out.names.add("tool_choice.allowed_tools", "tool_choice");
  return std::nullopt;
}

}  // namespace

std::optional<Fault> read_response_tools(const Json& body, ResponsesRequest& out) {
  const Json& tools = member_or_null(body, "tools");
  if (!tools.is_null()) {
    if (!tools.is_array()) return wrong_type("tools", "an array", json_type_name(tools));
    ToolReader reader(out);
    for (std::size_t i = 0; i < tools.size(); ++i)
      if (auto fault = reader.add(tools[i], fmt::format("tools.{}", i), nullptr)) return fault;
    out.chat["tools"] = reader.take();
  }
  const Json& choice = member_or_null(body, "tool_choice");
  if (choice.is_null()) return std::nullopt;
  if (choice.is_string()) {
    out.chat["tool_choice"] = choice;
    return std::nullopt;
  }
  if (!choice.is_object())
    return wrong_type("tool_choice", "a string or an object", json_type_name(choice));
  static constexpr std::string_view kKnown[] = {"type", "name", "namespace", "mode", "tools"};
  note_unknown(choice, kKnown, "tool_choice.", out.ignored);
  const Json& type = member_or_null(choice, "type");
  if (type.is_null()) return missing_field("tool_choice.type");
  if (type == "allowed_tools") return read_allowed_tools(choice, out);
  if (type != "function" && type != "custom")
    return unsupported("tool_choice.type",
                       "`auto`, `none`, `required`, and the types `function`, `custom` and "
                       "`allowed_tools` are what can be chosen.");
  std::string name;
  if (auto fault = read_chosen(choice, "tool_choice", name)) return fault;
  out.chat["tool_choice"] = Json{{"type", "function"}, {"function", {{"name", name}}}};
  out.names.add("tool_choice.function", "tool_choice");
  return std::nullopt;
}

}  // namespace sluice
