#include "server/anthropic/handlers.h"
#include "server/anthropic/messages_format.h"
#include "server/anthropic/messages_request.h"
#include "server/api/chat_plan.h"
#include "server/api/chat_prompt.h"
#include "server/api/prompts.h"
#include "server/api/unknown_fields.h"
#include "server/http/request_id.h"

namespace sluice {
namespace {

struct ReadRequest {
  const ServedModel* model;
  MessagesRequest messages;
  GenerationFields fields;
};

Result<ReadRequest> read_request(const ServerState& state, const HttpRequest& request,
                                 Responder& responder, bool is_counting) {
  responder.add_header("request-id", request.request_id);
  auto serving = state.serving();
  if (!serving) return serving.fault();
  Result<Json> body = parse_object(request.body);
  if (!body) return body.fault();
  Result<MessagesRequest> messages = read_messages_request(*body, is_counting);
  if (!messages) return messages.fault();
  ReadRequest read{*serving, *std::move(messages), {}};
  if (auto fault =
          read_fields(read.messages.chat, kChatApi, "", {read.model->vocab_size}, read.fields))
    return read.messages.names.own(*std::move(fault));
  read.fields.ignored.insert(read.fields.ignored.begin(), read.messages.ignored.begin(),
                             read.messages.ignored.end());
  if (auto fault = check_model(*read.model, read.fields.model)) return *fault;
  return read;
}

}  // namespace

std::optional<Fault> handle_messages(ServerState& state, const HttpRequest& request,
                                     const std::shared_ptr<Responder>& responder) {
  Result<ReadRequest> read = read_request(state, request, *responder, false);
  if (!read) return read.fault();
  const ServedModel* const model = read->model;
  ChatPlanOptions options;
  options.fit_answer = true;
  Result<ChatPlan> chat =
      plan_chat(state, *model, request, read->messages.chat, read->fields, options);
  if (!chat) return read->messages.names.own(chat.fault());
  read->messages.names.own(read->fields.ignored);
  tell_ignored(*responder, read->fields.ignored);
  GenerationPlan& plan = chat->plan;
  MessagesFormat::Settings settings;
  settings.id = make_id("msg_");
  settings.model = read->fields.model.value_or(model->names[0]);
  settings.one_call = chat->one_call;
  settings.is_fitted = plan.request.max_new_tokens < read->fields.max_tokens.value_or(0);
  settings.has_edits = read->messages.has_edits;
  settings.prompt_tokens = static_cast<int>(plan.prompts[0].size());
  settings.output = std::move(chat->output);
  plan.format = std::make_unique<MessagesFormat>(std::move(settings));
  start_generation(state, model, request, responder, std::move(plan));
  return std::nullopt;
}

std::optional<Fault> handle_count_tokens(ServerState& state, const HttpRequest& request,
                                         const std::shared_ptr<Responder>& responder) {
  Result<ReadRequest> read = read_request(state, request, *responder, true);
  if (!read) return read.fault();
  Result<ChatPrompt> prompt = read_chat_prompt(*read->model, read->messages.chat);
  if (!prompt) return read->messages.names.own(prompt.fault());
  tell_ignored(*responder, read->fields.ignored);
  HttpReply reply;
  reply.body = dump_json(Json{{"input_tokens", prompt->ids.size()}});
  responder->send(std::move(reply));
  return std::nullopt;
}

}  // namespace sluice
