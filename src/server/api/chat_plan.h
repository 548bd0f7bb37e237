// From a chat request to what the engine is asked for and how its output is read: what all chat
// protocols share. Text threads.
//
//   Result<ChatPlan> chat = plan_chat(state, model, request, body, fields);
//   chat->plan.format = ...;
//   start_generation(state, &model, request, responder, std::move(chat->plan));
#pragma once

#include "base/error.h"
#include "base/json.h"
#include "server/api/request_fields.h"
#include "server/core/generation.h"
#include "server/core/server_state.h"
#include "text/parsers/chat_output.h"

namespace sluice {

struct ChatPlan {
  GenerationPlan plan;  // one prompt; without a format
  ChatOutputSettings output;
  bool one_call = false;  // calls behind the first are dropped
};

struct ChatPlanOptions {
  // The answer's length yields to the context; else a length that does not fit is a fault.
  bool fit_answer = false;
};

// `body`: a chat request of OpenAI's, whose plain fields are in `fields`. What is ignored is added
// to them: tell_ignored comes behind this. Faults: those of read_chat_prompt, check_context and
// add_grammar.
Result<ChatPlan> plan_chat(const ServerState& state, const ServedModel& model,
                           const HttpRequest& request, const Json& body, GenerationFields& fields,
                           const ChatPlanOptions& options = {});

}  // namespace sluice
