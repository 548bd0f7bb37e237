// POST /v1/responses.
#include <ctime>

#include "server/api/chat_plan.h"
#include "server/api/prompts.h"
#include "server/api/unknown_fields.h"
#include "server/core/errors.h"
#include "server/http/request_id.h"
#include "server/responses/handlers.h"
#include "server/responses/responses_format.h"
#include "server/responses/responses_request.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxTurns = 4096;

Fault no_previous(const std::string& id) {
  return Fault{
      404, "response_not_found", "previous_response_id",
      fmt::format("There is no response {} to go on with. Responses are kept within a bound, "
                  "where `store` is not false; send the whole conversation as `input`.",
                  shown_text(id, 96))};
}

// The messages of the conversation up to that response.
Result<std::vector<Json>> read_history(ServerState& state, const std::string& id,
                                       const std::string& owner) {
  std::vector<std::shared_ptr<const StoredResponse>> turns;
  for (std::string next = id; !next.empty(); next = turns.back()->previous_id) {
    Result<std::shared_ptr<const StoredResponse>> found = state.responses->find(next, owner);
    if (!found) return found.fault();
    std::shared_ptr<const StoredResponse> turn = *std::move(found);
    if (!turn || turns.size() >= kMaxTurns) return no_previous(next);
    if (!turn->is_done)
      return Fault{400, "invalid_value", "previous_response_id",
                   fmt::format("The response {} is not complete yet.", shown_text(next, 96))};
    turns.push_back(std::move(turn));
  }
  std::vector<Json> messages;
  for (auto turn = turns.rbegin(); turn != turns.rend(); ++turn) {
    Result<Json> list = parse_json((*turn)->messages, kArgumentsJson);
    if (!list) return list.fault();
    for (Json& message : *list) messages.push_back(std::move(message));
  }
  return messages;
}

// Plans with as few messages left out as the context asks for. The faults are those of the plan
// with the fewest messages.
Result<ChatPlan> plan_truncated(const ServerState& state, const ServedModel& model,
                                const HttpRequest& request, ResponsesRequest& read,
                                const std::vector<Json>& history, GenerationFields& fields,
                                const ChatPlanOptions& options, std::size_t& num_dropped) {
  const GenerationFields given = fields;
  const auto plan = [&](std::size_t dropped) {
    lay_out_messages(read, history, dropped);
    fields = given;  // which a plan changes
    num_dropped = dropped;
    return plan_chat(state, model, request, read.chat, fields, options);
  };
  Result<ChatPlan> whole = plan(0);
  if (whole || !read.may_truncate || whole.fault().code != "context_length_exceeded") return whole;
  const std::vector<std::size_t> points = truncation_points(read, history);
  if (points.empty()) return whole;
  std::size_t first = 0, last = points.size() - 1;  // the answer is in [first, last], if anywhere
  while (first < last) {
    const std::size_t middle = (first + last) / 2;
    if (plan(points[middle]))
      last = middle;
    else
      first = middle + 1;
  }
  return plan(points[last]);
}

Json head_of(const ServedModel& model, const ResponsesRequest& read, const GenerationFields& fields,
             const SamplingParams& params) {
  Json head{{"id", make_id("resp_")},
            {"object", "response"},
            {"created_at", static_cast<std::int64_t>(std::time(nullptr))},
            {"status", nullptr},
            {"background", false},
            {"error", nullptr},
            {"incomplete_details", nullptr},
            {"model", fields.model.value_or(model.names[0])}};
  head.update(read.echo);
  head["temperature"] = fields.temperature.value_or(params.temperature);
  head["top_p"] = fields.top_p.value_or(params.top_p);
  head["top_logprobs"] = 0;
  head["service_tier"] = "default";
  return head;
}

}  // namespace

std::optional<Fault> handle_responses(ServerState& state, const HttpRequest& request,
                                      const std::shared_ptr<Responder>& responder) {
  auto serving = state.serving();
  if (!serving) return serving.fault();
  const ServedModel* const model = *serving;
  Result<Json> body = parse_object(request.body);
  if (!body) return body.fault();
  Result<ResponsesRequest> read = read_responses_request(*body);
  if (!read) return read.fault();
  GenerationFields fields;
  if (auto fault = read_fields(read->chat, kChatApi, "", {model->vocab_size}, fields))
    return read->names.own(*std::move(fault));
  fields.ignored.insert(fields.ignored.begin(), read->ignored.begin(), read->ignored.end());
  if (auto fault = check_model(*model, fields.model)) return fault;
  std::vector<Json> history;
  if (!read->previous_id.empty()) {
    Result<std::vector<Json>> found = read_history(state, read->previous_id, request.owner);
    if (!found) return found.fault();
    history = *std::move(found);
  }
  ChatPlanOptions options;
  options.fit_answer = true;
  std::size_t num_dropped = 0;
  Result<ChatPlan> chat =
      plan_truncated(state, *model, request, *read, history, fields, options, num_dropped);
  if (!chat) {
    Fault fault = read->names.own(chat.fault());
    if (fault.param == "messages") fault.param = "input";
    return fault;
  }
  read->names.own(fields.ignored);
  tell_ignored(*responder, fields.ignored);
  GenerationPlan& plan = chat->plan;
  ResponsesFormat::Settings settings;
  settings.head = head_of(*model, *read, fields, plan.request.params);
  if (num_dropped > 0) {
    settings.head["truncated_messages"] = num_dropped;
    responder->add_header("X-Truncated-Messages", std::to_string(num_dropped));
  }
  const std::string id = settings.head["id"].get<std::string>();
  if (read->is_stored) {
    settings.store = state.responses;
    settings.record.id = id;
    settings.record.owner = request.owner;
    settings.record.previous_id = read->previous_id;
    settings.record.input_items = dump_json(listed_items((*body)["input"]));
    for (const auto& [message, path] : read->messages) settings.messages.push_back(message);
  }
  settings.tools = std::move(read->tools);
  settings.wants_encrypted = read->wants_encrypted;
  settings.one_call = chat->one_call;
  settings.output = std::move(chat->output);
  plan.rid = id;  // which `cancel` finds it by
  plan.format = std::make_unique<ResponsesFormat>(std::move(settings));
  start_generation(state, model, request, responder, std::move(plan));
  return std::nullopt;
}

}  // namespace sluice
