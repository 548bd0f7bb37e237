#include "text/chat/chat_render.h"

#include <cctype>
#include <string_view>

#include "text/jinja/values/unicode.h"

namespace sluice {
namespace {

constexpr std::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";

[[noreturn]] void refuse(const std::string& message) {
  throw jinja::TemplateError(jinja::ErrorKind::kArguments, "ValueError", message);
}

// Whether the word stands alone: `message.reasoning`, not `message.reasoning_content`.
bool names_reasoning(std::string_view source) {
  constexpr std::string_view kWord = "reasoning";
  for (std::size_t at = 0; (at = source.find(kWord, at)) != std::string_view::npos; ++at) {
    const std::size_t end = at + kWord.size();
    const char before = at == 0 ? ' ' : source[at - 1],
               after = end < source.size() ? source[end] : ' ';
    if ((before == '.' || before == '\'' || before == '"') && after != '_' &&
        !std::isalnum(static_cast<unsigned char>(after)))
      return true;
  }
  return false;
}

// Gives a message's reasoning the names that templates read: `reasoning_content`, `thinking`, which
// is gpt-oss's, and `reasoning`.
Json with_reasoning_names(const Json& message, bool reads_reasoning) {
  if (!message.is_object()) return message;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto at = message.find(name);
    if (at == message.end() || at->is_null()) continue;
    const Json reasoning = *at;
    Json out = Json::object();
    out["thinking"] = reasoning;
    if (reads_reasoning) out["reasoning"] = reasoning;
    for (const auto& [key, value] : message.items()) out[key] = value;
    out["reasoning_content"] = reasoning;
    return out;
  }
  return message;
}

// Marks the end of the message to be continued; returns its text.
std::string mark_final_message(Json& messages, const std::string& source) {
  if (messages.empty()) refuse("continue_final_message is set but the conversation is empty!");
  Json& last = messages.back();
  const auto at = last.is_object() ? last.find("content") : last.end();
  if (!last.is_object() || at == last.end() || at->is_null())
    refuse("continue_final_message is set but the final message has no \"content\" to continue!");
  if (source.find("content") == std::string::npos)
    refuse("continue_final_message is set but the chat template does not read \"content\"");
  Json* text = nullptr;
  if (at->is_string()) {
    text = &*at;
  } else if (at->is_array()) {
    for (Json& part : *at)
      if (part.is_object() && part.contains("text") && part["text"].is_string())
        text = &part["text"];
  }
  if (!text)
    refuse(
        "continue_final_message is set but we could not find any text to continue in the final "
        "message!");
  std::string original = text->get<std::string>();
  *text = original + std::string(kContinueTag);
  return original;
}

std::string cut_at_mark(const std::string& rendered, const std::string& final_text) {
  const std::string_view bare = kContinueTag.substr(0, kContinueTag.size() - 1);
  const std::size_t at = rendered.rfind(bare);
  if (at == std::string::npos || rendered.find(jinja::strip(final_text)) == std::string::npos)
    refuse(
        "continue_final_message is set but the final message does not appear in the chat after "
        "applying the chat template");
  std::string text = rendered.substr(0, at);
  // A template that trims the message also trims the mark's space. Then the text before it may have
  // lost its own space.
  const bool kept = std::string_view(rendered).substr(at).starts_with(kContinueTag);
  return kept ? text : std::string(jinja::right_strip(text));
}

}  // namespace

jinja::Rendered render_chat_template(const jinja::Template& chat_template, ChatRenderInput input) {
  const bool reads_reasoning = names_reasoning(chat_template.source());
  for (Json& message : input.messages) message = with_reasoning_names(message, reads_reasoning);
  std::string final_text;
  if (input.continue_final_message)
    final_text = mark_final_message(input.messages, chat_template.source());
  Json variables = std::move(input.variables);
  variables["messages"] = std::move(input.messages);
  variables["tools"] = std::move(input.tools);
  variables["documents"] = std::move(input.documents);
  variables["add_generation_prompt"] = input.add_generation_prompt;
  jinja::Rendered rendered = chat_template.render(variables, input.limits, input.now);
  if (input.continue_final_message) rendered.text = cut_at_mark(rendered.text, final_text);
  return rendered;
}

}  // namespace sluice
