#include "text/chat/chat_template.h"

#include <algorithm>
#include <array>

#include "text/chat/chat_render.h"
#include "text/chat/parser_choice.h"

namespace sluice {
namespace {

constexpr std::string_view kProbeText = "SluiceProbe";

// Variables that a request must not set: they belong to the server, or are functions of the
// language.
constexpr std::array<std::string_view, 13> kReserved = {"messages",
                                                        "tools",
                                                        "documents",
                                                        "add_generation_prompt",
                                                        "continue_final_message",
                                                        "chat_template",
                                                        "tokenize",
                                                        "raise_exception",
                                                        "strftime_now",
                                                        "namespace",
                                                        "range",
                                                        "dict",
                                                        "loop"};

Fault fault(std::string code, std::string param, std::string message) {
  return Fault{400, std::move(code), std::move(param), std::move(message)};
}

// R9: the message of a template's raise_exception is shown. Messages of other errors may quote the
// prompt and are not.
Fault fault_of(const jinja::TemplateError& error) {
  switch (error.kind()) {
    case jinja::ErrorKind::kRaised:
      return fault("chat_template_refused", "messages",
                   fmt::format("the model's chat template refuses these messages: {}",
                               std::string(error.what()).substr(0, 300)));
    case jinja::ErrorKind::kArguments:
      return fault("continue_final_message", "continue_final_message", error.what());
    case jinja::ErrorKind::kFuel:
      return fault(
          "chat_template_budget", "messages",
          fmt::format("{} (line {}); send fewer or shorter messages", error.what(), error.line()));
    default:
      return fault(
          "chat_template_error", "messages",
          fmt::format("the model's chat template cannot render these messages: {} in line {}",
                      error.type(), error.line()));
  }
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Renders a named message that leads, and one behind the user's.
bool shows_name_in(const RenderProbe& renders, const char* role, const ContentFormats& formats) {
  const std::string probe(kProbeText);
  const Json user{{"role", "user"}, {"content", content_of("x", formats.user)}};
  const Json named{{"role", role}, {"content", content_of("y", formats.of(role))}, {"name", probe}};
  return has(renders(Json::array({named, user}), nullptr), probe) ||
         has(renders(Json::array({user, named, user}), nullptr), probe);
}

}  // namespace

Fault no_chat_template() {
  return fault("no_chat_template", "messages",
               "the model has no chat template: use /v1/completions, or start the server with "
               "--chat-template");
}

void apply_reasoning_effort(Json& kwargs, std::string_view effort) {
  if (kwargs.is_null()) kwargs = Json::object();
  if (effort == "none") {
    for (const char* name : {"enable_thinking", "thinking"})
      if (!kwargs.contains(name)) kwargs[name] = false;
  } else if (!kwargs.contains("reasoning_effort")) {
    kwargs["reasoning_effort"] = std::string(effort);
  }
}

std::unique_ptr<ChatTemplate> ChatTemplate::from_sources(
    const std::map<std::string, std::string>& sources,
    const std::map<std::string, std::string>& special_tokens) {
  require(sources.count("default") == 1, "chat template: there is none named 'default' among {}",
          sources.size());
  std::unique_ptr<ChatTemplate> out(new ChatTemplate());
  for (const auto& [name, source] : sources) {
    try {
      out->templates_.emplace(name, jinja::Template::compile(source));
    } catch (const jinja::TemplateError& error) {
      fail(ErrorKind::kBadInput, "chat template '{}', line {}: {}: {}", name, error.line(),
           error.type(), error.what());
    }
  }
  for (const auto& [name, token] : special_tokens) out->special_tokens_[name] = token;
  out->probe();
  return out;
}

// Renders a few trivial chats to find out what the template accepts. A failed render may need other
// messages, so only the budget counts as an error.
void ChatTemplate::probe() {
  const auto rendered_by = [&](const jinja::Template& chosen, Json messages,
                               Json tools) -> std::string {
    const bool is_history = messages.size() > 1;
    ChatRenderInput input;
    input.messages = std::move(messages);
    input.tools = std::move(tools);
    input.add_generation_prompt = true;
    input.variables = special_tokens_;
    try {
      return render_chat_template(chosen, std::move(input)).text;
    } catch (const jinja::TemplateError& error) {
      require(error.kind() != jinja::ErrorKind::kFuel || is_history,
              "chat template: one short message is too much, line {}: {}", error.line(),
              error.what());
      return {};
    }
  };
  const auto tools = templates_.find("tool_use");
  const bool has_tool_template = tools != templates_.end();
  const jinja::Template& for_tools = has_tool_template ? tools->second : main();
  const RenderProbe by_main = [&](Json messages, const Json& given) {
    return rendered_by(main(), std::move(messages), given);
  };
  const RenderProbe by_tools = [&](Json messages, const Json& given) {
    return rendered_by(for_tools, std::move(messages), given);
  };
  formats_ = probe_content(by_main, {.with = !has_tool_template});
  tool_formats_ = has_tool_template ? probe_content(by_tools, {.without = false}) : formats_;

  const std::string probe(kProbeText);
  const auto led_by = [&](const char* role) {
    return Json::array({Json{{"role", role}, {"content", content_of(probe, formats_.of(role))}},
                        Json{{"role", "user"}, {"content", content_of("x", formats_.user)}}});
  };
  maps_developer_ = !has(by_main(led_by("developer"), nullptr), probe) &&
                    has(by_main(led_by("system"), nullptr), probe);
  for (const char* role : {"system", "developer", "user", "assistant"})
    if (shows_name_in(by_main, role, formats_) || shows_name_in(by_tools, role, tool_formats_))
      named_roles_.insert(role);
  reasoning_parser_ = detect_reasoning_parser(source());
  tool_parser_ = detect_tool_parser(source());
  if (tool_parser_.empty() && has_tool_template)
    tool_parser_ = detect_tool_parser(tools->second.source());

  const Json tool{{"type", "function"},
                  {"function",
                   {{"name", probe},
                    {"description", "x"},
                    {"parameters", {{"type", "object"}, {"properties", Json::object()}}}}}};
  const Json question{{"role", "user"}, {"content", content_of("x", tool_formats_.user)}};
  has_place_for_tools_ = has(by_tools(Json::array({question}), Json::array({tool})), probe);
  history_ = probe_history([&](Json messages) { return by_tools(std::move(messages), nullptr); },
                           tool_formats_);
}

bool ChatTemplate::shows_name(std::string_view role) const {
  return named_roles_.contains(maps_developer_ && role == "developer" ? "system" : role);
}

Json ChatTemplate::adapted_message(const Json& message, const ContentFormats& formats) const {
  Json out = message;
  if (maps_developer_ && out.value("role", Json()) == "developer") out["role"] = "system";
  adapt_content(out, formats);
  adapt_calls(out, history_);
  return out;
}

Result<RenderedChat> ChatTemplate::render(const ChatInput& input) const {
  if (input.add_generation_prompt && input.continue_final_message)
    return fault("continue_final_message", "continue_final_message",
                 "add_generation_prompt and continue_final_message exclude each other: set one of "
                 "them to false");
  if (!input.kwargs.is_null() && !input.kwargs.is_object())
    return fault("invalid_type", "chat_template_kwargs", "chat_template_kwargs must be an object");
  ChatRenderInput render;
  render.variables = special_tokens_;
  for (const auto& [name, value] : input.kwargs.items()) {
    const bool reserved = std::find(kReserved.begin(), kReserved.end(), name) != kReserved.end();
    if (reserved || special_tokens_.contains(name) || name.ends_with("_token"))
      return fault(
          "reserved_template_kwarg", "chat_template_kwargs",
          fmt::format("'{}' is set by the server and cannot be passed to the chat template",
                      name.substr(0, 64)));
    render.variables[name] = value;
  }
  const bool has_tools = input.tools.is_array() && !input.tools.empty();
  const ContentFormats& formats = has_tools ? tool_formats_ : formats_;
  Json messages = Json::array();
  for (const Json& message : input.messages) {
    if (!message.is_object())
      return fault("invalid_type", "messages", "every message must be an object");
    messages.push_back(adapted_message(message, formats));
  }
  if (has_tools) render.tools = input.tools;
  render.documents = input.documents;
  render.add_generation_prompt = input.add_generation_prompt;
  render.continue_final_message = input.continue_final_message;
  render.now = input.now;
  const auto for_tools = templates_.find("tool_use");
  const jinja::Template& chosen =
      has_tools && for_tools != templates_.end() ? for_tools->second : main();
  const auto rendered = [&](Json given) -> RenderedChat {
    ChatRenderInput whole = render;
    whole.messages = std::move(given);
    jinja::Rendered out = render_chat_template(chosen, std::move(whole));
    return {std::move(out.text), std::move(out.generation_spans)};
  };
  try {
    return rendered(messages);
  } catch (const jinja::TemplateError& error) {
    if (error.kind() == jinja::ErrorKind::kFuel || error.kind() == jinja::ErrorKind::kArguments)
      return fault_of(error);
    // What a template may insist on: ids of its own form, then one leading system message.
    for (bool (*const fit)(Json&) : {fit_ids, fit_system}) {
      if (!fit(messages)) continue;
      for (Json& message : messages) adapt_content(message, formats);
      try {
        return rendered(messages);
      } catch (const jinja::TemplateError&) {
        continue;
      }
    }
    return fault_of(error);
  }
}

}  // namespace sluice
