// POST /v1/chat/completions.
#include <ctime>

#include "server/api/chat_format.h"
#include "server/api/chat_plan.h"
#include "server/api/handlers.h"
#include "server/api/prompts.h"
#include "server/api/unknown_fields.h"

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
  Result<ChatPlan> chat = plan_chat(state, *model, request, *body, fields);
  if (!chat) return chat.fault();
  tell_ignored(*responder, fields.ignored);

  GenerationPlan& plan = chat->plan;
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
  settings.one_tool_call = chat->one_call;
  settings.reasoning_field = state.options.reasoning_field;
  settings.output = std::move(chat->output);
  plan.format = std::make_unique<ChatFormat>(std::move(settings), model, plan.prompts[0]);
  start_generation(state, model, request, responder, std::move(plan));
  return std::nullopt;
}

}  // namespace sluice
