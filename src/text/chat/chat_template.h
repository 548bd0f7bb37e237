// A model's chat template: its source, the variables that requests may set, and the adaptation of
// OpenAI's messages to it.
//
//   auto chat = ChatTemplate::load("models/sluice-tiny");
//   Result<RenderedChat> prompt =
//       chat->render({.messages = messages, .add_generation_prompt = true});
//
// Immutable after load: any number of threads may render at once. The prompt holds its own special
// tokens: encode it with add_special_tokens off. The language and its limits:
// text/jinja/template.h.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "text/chat/chat_history.h"
#include "text/chat/content_format.h"
#include "text/jinja/template.h"

namespace sluice {

struct ChatInput {
  Json messages = Json::array();  // OpenAI's, validated: objects with a role
  Json tools;                     // array, or null
  Json documents;                 // array of objects, or null
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // not together with add_generation_prompt
  Json kwargs = Json::object();         // the request's chat_template_kwargs
  jinja::Clock now;                     // local time, for strftime_now
};

struct RenderedChat {
  std::string text;
  // Code point ranges of `text` that the model wrote ({% generation %}); empty if the template has
  // no such blocks.
  std::vector<std::pair<std::size_t, std::size_t>> generation_spans;
};

class ChatTemplate {
 public:
  // Finds the template of a model directory, in this order:
  // 1. `override_`: the name of one of its templates, a file, or a literal that holds "{{" or "{%";
  // 2. chat_template.jinja with additional_chat_templates/*.jinja;
  // 3. chat_template in tokenizer_config.json: a text, or a list of {name, template}, of which
  // "tool_use" serves requests with tools;
  // 4. chat_template.json.
  //
  // Null if there is none. Error{kBadInput} for a template with an error (with its line), or one
  // that cannot render a single message within the budget.
  static std::unique_ptr<ChatTemplate> load(const std::string& directory,
                                            const std::string& override_ = {});

  // As load(), with the model's templates given in the form of from_sources instead of a directory.
  static std::unique_ptr<ChatTemplate> load_given(
      const std::map<std::string, std::string>& sources,
      const std::map<std::string, std::string>& special_tokens, const std::string& override_ = {});

  // From texts by name; one name is "default". `special_tokens` become variables ("bos_token").
  static std::unique_ptr<ChatTemplate> from_sources(
      const std::map<std::string, std::string>& sources,
      const std::map<std::string, std::string>& special_tokens);

  // Faults, all 400: reserved_template_kwarg (param chat_template_kwargs), chat_template_refused
  // (with the message of raise_exception), chat_template_budget, chat_template_error,
  // continue_final_message.
  Result<RenderedChat> render(const ChatInput& input) const;

  const std::string& source() const { return main().source(); }
  const ContentFormats& content_formats() const { return formats_; }
  // Names of the parsers for the template's output format (parser_choice.h); empty: none.
  const std::string& reasoning_parser() const { return reasoning_parser_; }
  const std::string& tool_parser() const { return tool_parser_; }
  // The template shows the `name` of this role's messages in a request with or without tools.
  bool shows_name(std::string_view role) const;
  // The template shows the tools of a request.
  bool has_place_for_tools() const { return has_place_for_tools_; }

 private:
  ChatTemplate() = default;
  const jinja::Template& main() const { return templates_.at("default"); }
  void probe();
  Json adapted_message(const Json& message, const ContentFormats& formats) const;

  std::map<std::string, jinja::Template> templates_;
  Json special_tokens_ = Json::object();
  ContentFormats formats_;
  ContentFormats tool_formats_;  // of requests with tools
  // the template drops or refuses the role developer, so it becomes system
  bool maps_developer_ = false;
  bool has_place_for_tools_ = false;
  std::set<std::string, std::less<>> named_roles_;
  HistoryRules history_;
  std::string reasoning_parser_, tool_parser_;
};

// The fault of a chat request to a model without a template.
Fault no_chat_template();

// OpenAI's reasoning_effort as template variables. "none" switches thinking off under the names
// that templates use (enable_thinking, thinking); any other value is passed as reasoning_effort.
// Existing keys of `kwargs` stay.
void apply_reasoning_effort(Json& kwargs, std::string_view effort);

}  // namespace sluice
