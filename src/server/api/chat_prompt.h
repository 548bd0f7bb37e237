// From chat messages to token ids: validation, the model's template, the tokenizer. Text threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "server/core/server_state.h"

namespace sluice {

struct ChatPrompt {
  std::vector<std::int32_t> ids;
  std::string text;           // as rendered
  Json tools;                 // null: none are offered, or tool_choice is none
  bool thinking_off = false;  // the request switched reasoning off
  bool continues = false;     // the answer goes on with the last message
  std::string continued;      // the text of that message
};

// Reads messages, tools, tool_choice, chat_template_kwargs, reasoning_effort, documents,
// add_generation_prompt, continue_final_message and add_special_tokens of `body`. Faults name the
// field by its dotted path.
Result<ChatPrompt> read_chat_prompt(const ServedModel& model, const Json& body);

// Whether `messages` of a body makes the prompt, and not `prompt`. Both, or neither, is a fault.
Result<bool> is_chat_prompt(const Json& body);

// Messages in the form that templates expect: text parts joined, tool arguments as objects, one
// name for reasoning.
Result<Json> read_messages(const Json& json);
// The tools as given, once checked; null when there are none.
Result<Json> read_tools(const Json& json);

}  // namespace sluice
