// Which tools of a request its answer may call, and whether it must; and the grammar that holds an
// answer to that.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "server/api/chat_prompt.h"
#include "server/api/request_fields.h"
#include "server/core/server_state.h"

namespace sluice {

struct ToolChoice {
  bool is_required = false;        // the answer is a call
  bool is_single = false;          // of one tool at most
  std::vector<std::string> names;  // the tools that may be called; empty: all
};

// `tool_choice` as OpenAI's chat has it: none, auto, required, a function's name, or allowed_tools.
// `tools`: those of the request, or null. Faults name the field.
Result<ToolChoice> read_tool_choice(const Json& tool_choice, const Json& tools);

// Adds the calls to the grammar of the request, where the choice, a strict tool or
// --constrain-tool-calls asks for that. Faults: 400 where the choice cannot be held.
std::optional<Fault> constrain_calls(const ServerState& state, const ServedModel& model,
                                     const ChatPrompt& prompt, const ToolChoice& choice,
                                     GenerationFields& fields);

// Thoughts come before the constrained answer, unless the prompt has closed or switched them off.
void allow_thoughts(const ServedModel& model, const ChatPrompt& prompt, GenerationFields& fields);

}  // namespace sluice
