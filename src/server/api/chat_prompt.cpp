#include "server/api/chat_prompt.h"

#include <ctime>

#include "server/api/prompts.h"
#include "server/api/request_fields.h"
#include "server/core/errors.h"
#include "text/chat/chat_template.h"
#include "text/parsers/tool_parser.h"

namespace sluice {
namespace {

constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium",
                                         "high", "xhigh",   "max"};

std::optional<Fault> read_flag(const Json& body, const char* name, std::optional<bool>& out) {
  const auto found = body.find(name);
  if (found == body.end() || found->is_null()) return std::nullopt;
  if (!found->is_boolean()) return wrong_type(name, "true or false", json_type_name(*found));
  out = found->get<bool>();
  return std::nullopt;
}

Json member(const Json& body, const char* name) {
  const auto found = body.find(name);
  return found == body.end() ? Json(nullptr) : *found;
}

jinja::Clock local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  return {parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
          parts.tm_hour,        parts.tm_min,     parts.tm_sec};
}

// The text that a continued message ends with.
std::string last_text(const Json& message) {
  const auto content = message.find("content");
  if (content == message.end()) return {};
  if (content->is_string()) return content->get<std::string>();
  std::string text;
  if (content->is_array())
    for (const Json& part : *content) text = part.value("text", text);
  return text;
}

// Whether the template's variables switch thinking off, under either of the names that templates
// use.
bool says_no_thinking(const Json& kwargs) {
  for (const char* name : {"enable_thinking", "thinking"}) {
    const auto found = kwargs.find(name);
    if (found != kwargs.end() && *found == false) return true;
  }
  return false;
}

// Calls that no parser reads would come as text, and a client would take them for the answer.
std::optional<Fault> check_tools(const ServedModel& model, const Json& tools) {
  if (tools.is_null() || !model.tool_parser.empty() || model.raw_tool_calls) return std::nullopt;
  const std::string_view why = model.chat_template->has_place_for_tools()
                                   ? "no known parser fits the calls that the model's chat "
                                     "template asks for"
                                   : "the model's chat template has no place for tools";
  return Fault{400, "unsupported_parameter", "tools",
               fmt::format("`tools` cannot be used: {}. Send none, or start the server with "
                           "--tool-call-parser: one of {}, or `none` to get calls as text.",
                           why, fmt::join(known_tool_parsers(), ", "))};
}

std::optional<Fault> read_template_inputs(const Json& body, ChatInput& input) {
  const Json kwargs = member(body, "chat_template_kwargs");
  if (!kwargs.is_null()) {
    if (!kwargs.is_object())
      return wrong_type("chat_template_kwargs", "an object", json_type_name(kwargs));
    input.kwargs = kwargs;
  }
  const Json effort = member(body, "reasoning_effort");
  if (!effort.is_null()) {
    if (!effort.is_string())
      return wrong_type("reasoning_effort", "a string", json_type_name(effort));
    const auto& word = effort.get_ref<const std::string&>();
    if (std::find(std::begin(kEfforts), std::end(kEfforts), word) == std::end(kEfforts))
      return invalid_value("reasoning_effort",
                           fmt::format("`reasoning_effort` must be one of {}, not {}.",
                                       fmt::join(kEfforts, ", "), shown_text(word)));
    apply_reasoning_effort(input.kwargs, word);
  }
  input.documents = member(body, "documents");
  if (!input.documents.is_null()) {
    if (!input.documents.is_array())
      return wrong_type("documents", "an array of objects", json_type_name(input.documents));
    for (const Json& document : input.documents)
      if (!document.is_object())
        return wrong_type("documents", "an array of objects", json_type_name(document));
  }
  std::optional<bool> prompt, continues;
  if (auto fault = read_flag(body, "add_generation_prompt", prompt)) return fault;
  if (auto fault = read_flag(body, "continue_final_message", continues)) return fault;
  input.continue_final_message = continues.value_or(false);
  input.add_generation_prompt = prompt.value_or(!input.continue_final_message);
  if (!body.contains("chat_template") || body["chat_template"].is_null()) return std::nullopt;
  return unsupported(
      "chat_template",
      "templates come from the model or from --chat-template, never from a request.");
}

}  // namespace

Result<bool> is_chat_prompt(const Json& body) {
  const bool has_messages = !member(body, "messages").is_null();
  const bool has_prompt = !member(body, "prompt").is_null();
  if (has_messages && has_prompt)
    return invalid_value("prompt", "`prompt` and `messages` exclude each other: give one.");
  if (!has_messages && !has_prompt)
    return Fault{400, "missing_required_parameter", "prompt", "Give `prompt` or `messages`."};
  return has_messages;
}

Result<ChatPrompt> read_chat_prompt(const ServedModel& model, const Json& body) {
  if (!model.chat_template) return no_chat_template();
  const auto messages = body.find("messages");
  if (messages == body.end() || messages->is_null()) return missing_field("messages");
  ChatInput input;
  Result<Json> read = read_messages(*messages);
  if (!read) return read.fault();
  input.messages = std::move(*read);
  Result<Json> tools = read_tools(member(body, "tools"));
  if (!tools) return tools.fault();
  ChatPrompt prompt;
  if (member(body, "tool_choice") != "none") prompt.tools = std::move(*tools);
  if (auto fault = check_tools(model, prompt.tools)) return *fault;
  input.tools = prompt.tools;
  if (auto fault = read_template_inputs(body, input)) return *fault;
  input.now = local_time();

  Result<RenderedChat> rendered = [&] {
    const TraceSpan span(model.trace.get(), TraceLane::kText, "template");
    return model.chat_template->render(input);
  }();
  if (!rendered) return rendered.fault();
  prompt.text = std::move(rendered->text);
  prompt.thinking_off = says_no_thinking(input.kwargs);
  prompt.continues = input.continue_final_message;
  if (prompt.continues) prompt.continued = last_text(input.messages.back());
  // The template holds its own special tokens, unless the request says otherwise.
  std::optional<bool> add_special;
  if (auto fault = read_flag(body, "add_special_tokens", add_special)) return *fault;
  auto ids = encode_prompt(model, prompt.text, "messages", add_special.value_or(false));
  if (!ids) return ids.fault();
  prompt.ids = std::move(*ids);
  return prompt;
}

}  // namespace sluice
