// POST /v1/chat/completions.
#include <ctime>

#include "server/api/chat_format.h"
#include "server/api/chat_prompt.h"
#include "server/api/handlers.h"
#include "server/api/prompts.h"
#include "server/api/tool_choice.h"
#include "server/api/unknown_fields.h"
#include "server/core/errors.h"

namespace sluice {
std::optional<Fault> handle_chat_completions(ServerState& state, const HttpRequest& request,
                                             const std::shared_ptr<Responder>& responder) {
  auto serving = state.serving();
  if (!serving) return serving.fault();
  const ServedModel* const model = *serving;
  Result<Json> body = parse_object(request.body);
  if (!body) return body.fault();
  GenerationFields fields;
  if (auto fault = read_fields(*body, kChatApi, "", {model->vocab_size}, fields)) return fault;
  if (auto fault = check_model(*model, fields.model)) return fault;
  Result<ChatPrompt> prompt = read_chat_prompt(*model, *body);
  if (!prompt) return prompt.fault();

  GenerationPlan plan = make_plan(state, *model, request, fields);
  if (auto fault =
          check_context(*model, prompt->ids.size(), plan.request.max_new_tokens, "messages"))
    return fault;
  const auto wanted = body->find("tool_choice");
  Result<ToolChoice> choice =
      read_tool_choice(wanted == body->end() ? Json() : *wanted, prompt->tools);
  if (!choice) return choice.fault();
  if (auto fault = constrain_calls(state, *model, *prompt, *choice, fields)) return fault;
  allow_thoughts(*model, *prompt, fields);
  if (auto fault = add_grammar(*model, fields, plan)) return fault;
  tell_ignored(*responder, fields.ignored);
  ChatFormat::Settings settings;
  settings.head = {answer_id("chatcmpl-", fields), static_cast<std::int64_t>(std::time(nullptr)),
                   fields.model.value_or(model->names[0])};
  settings.num_choices = plan.request.num_choices;
  settings.logprobs = fields.want_logprobs.value_or(false);
  if (settings.logprobs)
    plan.request.params.num_top_logprobs = static_cast<int>(fields.num_logprobs.value_or(0));
  settings.include_usage = fields.include_usage;
  settings.continuous_usage = fields.continuous_usage;
  settings.token_ids = fields.return_token_ids.value_or(false);
  settings.one_tool_call = choice->is_single || !fields.parallel_tool_calls.value_or(true);
  settings.reasoning_field = state.options.reasoning_field;
  if (fields.separate_reasoning.value_or(true))
    settings.output.reasoning_parser = model->reasoning_parser;
  if (!prompt->tools.is_null()) settings.output.tool_parser = model->tool_parser;
  plan.kept_tokens = parser_tokens(*model->tokenizer, settings.output);
  settings.output.prompt = std::move(prompt->text);
  settings.output.thinking_off = prompt->thinking_off;
  settings.output.continues = prompt->continues;
  settings.output.continued = std::move(prompt->continued);
  settings.output.tools = std::move(prompt->tools);
  plan.format = std::make_unique<ChatFormat>(settings, model, prompt->ids);
  plan.prompts.push_back(std::move(prompt->ids));
  start_generation(state, model, request, responder, std::move(plan));
  return std::nullopt;
}

}  // namespace sluice
