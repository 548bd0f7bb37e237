#include "server/api/unread_keys.h"

#include <algorithm>

#include "server/api/unknown_fields.h"
#include "text/chat/chat_template.h"

namespace sluice {
namespace {

// Replies and the types of clients have more keys than a prompt needs: those are known, too.
constexpr std::string_view kMessageKeys[] = {
    "role",      "content", "name",          "tool_call_id",      "tool_calls", "thinking",
    "reasoning", "refusal", "function_call", "reasoning_content", "tool_name",  "annotations",
    "parsed",    "id",      "type",          "reasoning_details"};
constexpr std::string_view kPartKeys[] = {
    "type", "text",  "thinking", "signature", "refusal",     "summary",  "id",
    "name", "input", "content",  "data",      "annotations", "logprobs", "parsed"};
constexpr std::string_view kCallKeys[] = {"id", "type", "function", "index"};
constexpr std::string_view kCalledKeys[] = {"name", "arguments", "parsed_arguments"};
constexpr std::string_view kToolKeys[] = {"type", "function"};
constexpr std::string_view kFunctionKeys[] = {"name", "description", "parameters", "strict"};
constexpr std::string_view kChoiceKeys[] = {"type", "function", "allowed_tools", "mode", "tools"};
constexpr std::string_view kNameKeys[] = {"name"};
constexpr std::string_view kAllowedKeys[] = {"mode", "tools"};
constexpr std::string_view kNamedKeys[] = {"type", "function"};

// What the server itself reads of the template's variables.
constexpr std::string_view kServerVariables[] = {"enable_thinking", "thinking"};

bool is_word(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Whether `word` stands in `text`, not as a part of a longer name.
bool mentions(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != std::string_view::npos;
       at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !is_word(text[at - 1])) && (end == text.size() || !is_word(text[end])))
      return true;
  }
  return false;
}

class KeyNotes {
 public:
  explicit KeyNotes(std::vector<std::string>& ignored) : ignored_(ignored) {}

  // Each path is told once, however many objects have it.
  void object(const Json& value, std::span<const std::string_view> known, std::string_view prefix) {
    if (!value.is_object()) return;
    std::vector<std::string> unknown;
    note_unknown(value, known, prefix, unknown);
    for (std::string& path : unknown) add(std::move(path));
  }
  void member(const Json& object, const char* key, std::span<const std::string_view> known,
              std::string_view prefix) {
    if (const auto found = object.find(key); found != object.end())
      this->object(*found, known, prefix);
  }
  void add(std::string path) {
    if (std::ranges::find(ignored_, path) == ignored_.end()) ignored_.push_back(std::move(path));
  }

 private:
  std::vector<std::string>& ignored_;
};

// Known keys that only one role's messages have.
constexpr std::string_view kAssistantKeys[] = {"tool_calls",        "function_call",
                                               "thinking",          "reasoning",
                                               "reasoning_content", "reasoning_details"};
constexpr std::string_view kResultKeys[] = {"tool_call_id", "tool_name"};

bool is_said(const Json& value) {
  return !value.is_null() && value != "" && !(value.is_array() && value.empty());
}

// Keys of other roles, and a name that the template does not show. A result may always have one.
void note_role_keys(const Json& message, const ChatTemplate& chat_template,
                    std::vector<std::string>& ignored) {
  const std::string role = message.value("role", std::string());
  const bool is_assistant = role == "assistant", is_result = role == "tool" || role == "function";
  for (const auto& [key, value] : message.items()) {
    const auto is_of = [&](std::span<const std::string_view> keys) {
      return std::ranges::find(keys, key) != keys.end();
    };
    const bool is_unread = (is_of(kAssistantKeys) && !is_assistant) ||
                           (is_of(kResultKeys) && !is_result) ||
                           (key == "name" && !is_result && !chat_template.shows_name(role));
    if (is_unread && is_said(value)) note_without_effect("messages." + key, ignored);
  }
}

void note_message(const Json& message, KeyNotes& notes) {
  notes.object(message, kMessageKeys, "messages.");
  if (const auto content = message.find("content"); content != message.end() && content->is_array())
    for (const Json& part : *content) notes.object(part, kPartKeys, "messages.content.");
  if (const auto calls = message.find("tool_calls"); calls != message.end() && calls->is_array())
    for (const Json& call : *calls) {
      notes.object(call, kCallKeys, "messages.tool_calls.");
      if (call.is_object())
        notes.member(call, "function", kCalledKeys, "messages.tool_calls.function.");
    }
  notes.member(message, "function_call", kCalledKeys, "messages.function_call.");
}

// A template gets whole tools: a key that is nowhere in the prompt was not shown.
void note_tool_keys(const Json& object, std::span<const std::string_view> known,
                    std::string_view prefix, std::string_view prompt, KeyNotes& notes) {
  Json hidden = Json::object();
  for (const auto& [key, value] : object.items())
    if (!mentions(prompt, key)) hidden[key] = value;
  notes.object(hidden, known, prefix);
}

void note_choice(const Json& choice, KeyNotes& notes) {
  if (!choice.is_object()) return;
  notes.object(choice, kChoiceKeys, "tool_choice.");
  notes.member(choice, "function", kNameKeys, "tool_choice.function.");
  notes.member(choice, "allowed_tools", kAllowedKeys, "tool_choice.allowed_tools.");
  const auto inner = choice.find("allowed_tools");
  const Json& allowed = inner != choice.end() && inner->is_object() ? *inner : choice;
  if (const auto tools = allowed.find("tools"); tools != allowed.end() && tools->is_array())
    for (const Json& tool : *tools) notes.object(tool, kNamedKeys, "tool_choice.tools.");
}

}  // namespace

void note_unread_keys(const Json& body, const ServedModel& model, const ChatPrompt& prompt,
                      std::vector<std::string>& ignored) {
  KeyNotes notes(ignored);
  const std::string_view source = model.chat_template->source();
  if (const auto messages = body.find("messages"); messages != body.end())
    for (const Json& message : *messages) {
      note_message(message, notes);
      note_role_keys(message, *model.chat_template, ignored);
    }
  if (prompt.tools.is_array())
    for (const Json& tool : prompt.tools) {
      note_tool_keys(tool, kToolKeys, "tools.", prompt.text, notes);
      if (const auto function = tool.find("function"); function != tool.end())
        note_tool_keys(*function, kFunctionKeys, "tools.function.", prompt.text, notes);
    }
  if (const auto choice = body.find("tool_choice"); choice != body.end())
    note_choice(*choice, notes);
  const bool thinks = !model.reasoning_parser.empty() || mentions(source, "enable_thinking") ||
                      mentions(source, "thinking");
  if (const auto kwargs = body.find("chat_template_kwargs");
      kwargs != body.end() && kwargs->is_object())
    for (const auto& [name, value] : kwargs->items()) {
      const bool is_switch =
          std::ranges::find(kServerVariables, name) != std::end(kServerVariables);
      if (!mentions(source, name) && !(is_switch && thinks))
        note_without_effect("chat_template_kwargs." + name, ignored);
    }
  const auto is_given = [&](const char* name) {
    const auto found = body.find(name);
    return found != body.end() && !found->is_null() && *found != Json::array();
  };
  if (is_given("documents") && !mentions(source, "documents"))
    note_without_effect("documents", ignored);
  if (is_given("reasoning_effort") && !mentions(source, "reasoning_effort") &&
      !(thinks && body["reasoning_effort"] == "none"))
    note_without_effect("reasoning_effort", ignored);
  if (is_given("separate_reasoning") && model.reasoning_parser.empty())
    note_without_effect("separate_reasoning", ignored);
}

void note_chat_fields(const Json& body, std::vector<std::string>& ignored) {
  for (const char* name :
       {"tools", "tool_choice", "documents", "reasoning_effort", "add_generation_prompt",
        "continue_final_message", "chat_template", "chat_template_kwargs"})
    if (const auto found = body.find(name); found != body.end() && !found->is_null())
      note_without_effect(name, ignored);
}

}  // namespace sluice
