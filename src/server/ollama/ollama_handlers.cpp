// POST /api/chat and /api/generate.
#include "server/api/chat_plan.h"
#include "server/api/prompts.h"
#include "server/api/unknown_fields.h"
#include "server/core/errors.h"
#include "server/ollama/handlers.h"
#include "server/ollama/ollama_format.h"
#include "server/ollama/ollama_request.h"

namespace sluice {
namespace {

// The answer to a request without a prompt.
HttpReply load_reply(bool is_chat, const std::string& model, bool is_stream) {
  Json json{{"model", model}, {"created_at", ollama_time()}};
  if (is_chat)
    json["message"] = Json{{"role", "assistant"}, {"content", ""}};
  else
    json["response"] = "";
  json["done"] = true;
  json["done_reason"] = "load";
  HttpReply reply;
  if (is_stream) reply.content_type = "application/x-ndjson";
  reply.body = dump_json(json) + (is_stream ? "\n" : "");
  return reply;
}

Result<ChatPlan> plan_raw(const ServerState& state, const ServedModel& model,
                          const HttpRequest& request, const OllamaRequest& read,
                          GenerationFields& fields) {
  auto ids = encode_prompt(model, read.prompt, "prompt", true);
  if (!ids) return ids.fault();
  ChatPlan chat{make_plan(state, model, request, fields), {}};
  chat.plan.prompts.push_back(std::move(*ids));
  if (chat.plan.request.max_new_tokens >= 0) {
    if (auto fault = fit_context(model, chat.plan, false, "prompt")) return *fault;
  } else if (auto fault = check_context(model, chat.plan.prompts[0].size(), -1, "prompt")) {
    return *fault;
  }
  if (auto fault = add_grammar(model, request, fields, chat.plan)) return *fault;
  return chat;
}

std::optional<Fault> run(ServerState& state, const HttpRequest& request,
                         const std::shared_ptr<Responder>& responder, bool is_chat) {
  auto serving = state.serving();
  if (!serving) return serving.fault();
  const ServedModel* const model = *serving;
  Result<Json> body = parse_object(request.body);
  if (!body) return body.fault();
  Result<OllamaRequest> read = is_chat ? read_ollama_chat(*body) : read_ollama_generate(*body);
  if (!read) return read.fault();
  GenerationFields fields;
  if (auto fault = read_fields(read->chat, kChatApi, "", {model->vocab_size}, fields))
    return read->names.own(*std::move(fault));
  fields.ignored.insert(fields.ignored.begin(), read->ignored.begin(), read->ignored.end());
  if (auto fault = check_model(*model, fields.model)) return fault;
  const std::string name = (*body)["model"].get<std::string>();
  if (read->is_load) {
    tell_ignored(*responder, fields.ignored);
    responder->send(load_reply(is_chat, name, fields.stream.value_or(true)));
    return std::nullopt;
  }
  ChatPlanOptions options;
  options.fit_answer = true;
  Result<ChatPlan> chat = read->is_raw
                              ? plan_raw(state, *model, request, *read, fields)
                              : plan_chat(state, *model, request, read->chat, fields, options);
  if (!chat) return read->names.own(chat.fault());
  read->names.own(fields.ignored);
  tell_ignored(*responder, fields.ignored);
  OllamaFormat::Settings settings;
  settings.is_chat = is_chat;
  settings.model = name;
  settings.output = std::move(chat->output);
  chat->plan.format = std::make_unique<OllamaFormat>(std::move(settings));
  start_generation(state, model, request, responder, std::move(chat->plan));
  return std::nullopt;
}

}  // namespace

std::optional<Fault> handle_ollama_chat(ServerState& state, const HttpRequest& request,
                                        const std::shared_ptr<Responder>& responder) {
  return run(state, request, responder, true);
}

std::optional<Fault> handle_ollama_generate(ServerState& state, const HttpRequest& request,
                                            const std::shared_ptr<Responder>& responder) {
  return run(state, request, responder, false);
}

}  // namespace sluice
