#include "server/api/chat_format.h"

#include "text/unicode.h"

namespace sluice {
namespace {

// Joins the pieces of each call, in order of their indices.
std::vector<ToolDelta> joined(const std::vector<ToolDelta>& pieces) {
  std::vector<ToolDelta> calls;
  for (const ToolDelta& piece : pieces) {
    ToolDelta* call = nullptr;
    for (ToolDelta& known : calls)
      if (known.index == piece.index) call = &known;
    if (!call) {
      calls.push_back(piece);
      continue;
    }
    call->arguments += piece.arguments;
  }
  return calls;
}

Json bytes_json(std::string_view bytes) {
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return list;
}

}  // namespace

ChatFormat::ChatFormat(Settings settings, const ServedModel* model,
                       std::vector<std::int32_t> prompt_ids)
    : set_(std::move(settings)), model_(model), prompt_ids_(std::move(prompt_ids)) {
  for (int i = 0; i < set_.num_choices; ++i)
    choices_.push_back(std::make_unique<Choice>(set_.output));
}

Json ChatFormat::logprob_entry(std::int32_t token, const RowLogprobs& row) const {
  const auto entry = [&](std::int32_t id, float logprob) {
    const std::string_view bytes = model_->tokenizer->token_bytes_view(id);
    return Json{
        {"token", to_valid_utf8(bytes)}, {"logprob", logprob}, {"bytes", bytes_json(bytes)}};
  };
  Json json = entry(token, row.logprob);
  json["top_logprobs"] = Json::array();
  for (const TokenLogprob& candidate : row.top)
    json["top_logprobs"].push_back(entry(candidate.token, candidate.logprob));
  return json;
}

void ChatFormat::add(const ChoiceUpdate& update) {
  Choice& choice = *choices_[update.index];
  choice.output.push(update.text, choice.pending, update.token_starts);
  if (update.finish != FinishReason::kNone)
    choice.output.finish(choice.pending, update.is_cut, update.unsent_stop);
  if (set_.one_tool_call)
    std::erase_if(choice.pending.tools, [](const ToolDelta& call) { return call.index > 0; });
  const std::size_t shown = update.tokens.size() - (update.ends_with_stop_token ? 1 : 0);
  for (std::size_t i = 0; set_.logprobs && i < shown && i < update.logprobs.size(); ++i)
    choice.logprobs.push_back(logprob_entry(update.tokens[i], update.logprobs[i]));
  if (set_.token_ids)
    for (const std::int32_t id : update.tokens) choice.token_ids.push_back(id);
  choice.finish = update.finish;
  choice.matched_stop = matched_stop_json(update);
  choice.captures = update.captures;
}

Json ChatFormat::tool_calls_json(const std::vector<ToolDelta>& calls, bool streaming) const {
  Json list = Json::array();
  for (const ToolDelta& call : calls) {
    Json json = Json::object();
    if (streaming) json["index"] = call.index;
    if (!call.id.empty() || !streaming) {
      json["id"] = call.id;
      json["type"] = "function";
    }
    json["function"] = Json::object();
    if (!call.name.empty()) json["function"]["name"] = call.name;
    json["function"]["arguments"] = call.arguments;
    list.push_back(std::move(json));
  }
  return list;
}

void ChatFormat::put_reasoning(Json& message, const std::string& text) const {
  if (text.empty()) return;
  if (set_.reasoning_field != "reasoning") message["reasoning_content"] = text;
  if (set_.reasoning_field != "reasoning_content") message["reasoning"] = text;
}

Json ChatFormat::finish_reason(const Choice& choice) const {
  const bool has_calls = choice.output.num_calls() > 0 && !choice.output.is_cut_off();
  if (choice.finish == FinishReason::kStop && has_calls) return "tool_calls";
  return finish_reason_json(choice.finish);
}

int ChatFormat::reasoning_tokens() const {
  int sum = 0;
  for (const auto& choice : choices_) sum += choice->output.reasoning_tokens();
  return sum;
}

Json ChatFormat::chunk(int index, Json delta, Json finish_reason, const GenerationTotals* totals) {
  Choice& choice = *choices_[index];
  Json json = set_.head.json("chat.completion.chunk");
  Json entry{{"index", index},
             {"delta", std::move(delta)},
             {"logprobs", nullptr},
             {"finish_reason", std::move(finish_reason)}};
  if (!choice.logprobs.empty())
    entry["logprobs"] =
        Json{{"content", std::exchange(choice.logprobs, Json::array())}, {"refusal", nullptr}};
  if (set_.token_ids && !choice.token_ids.empty())
    entry["token_ids"] = std::exchange(choice.token_ids, Json::array());
  if (!entry["finish_reason"].is_null()) {
    entry["matched_stop"] = choice.matched_stop;
    if (choice.captures) entry["captures"] = *choice.captures;
  }
  json["choices"] = Json::array({std::move(entry)});
  if (set_.continuous_usage && totals)
    json["usage"] = usage_json(*totals, reasoning_tokens());
  else if (set_.include_usage)
    json["usage"] = nullptr;
  return json;
}

void ChatFormat::first_events(std::string& events) {
  for (int i = 0; i < set_.num_choices; ++i) {
    Json json = chunk(i, Json{{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
    if (set_.token_ids && i == 0) json["prompt_token_ids"] = prompt_ids_;
    append_event(events, dump_json(json));
  }
}

void ChatFormat::emit(int index, const GenerationTotals& totals, std::string& events) {
  Choice& choice = *choices_[index];
  const bool last = choice.finish != FinishReason::kNone;
  if (!choice.pending.empty() || (last && !choice.logprobs.empty())) {
    Json delta = Json::object();
    put_reasoning(delta, choice.pending.reasoning);
    if (!choice.pending.content.empty()) delta["content"] = choice.pending.content;
    if (!choice.pending.tools.empty())
      delta["tool_calls"] = tool_calls_json(joined(choice.pending.tools), true);
    append_event(events, dump_json(chunk(index, std::move(delta), nullptr, &totals)));
    choice.pending = ChatDelta();
  }
  if (last)
    append_event(events, dump_json(chunk(index, Json::object(), finish_reason(choice), &totals)));
}

void ChatFormat::last_events(const GenerationTotals& totals, std::string& events) {
  if (!set_.include_usage) return;
  Json json = set_.head.json("chat.completion.chunk");
  json["choices"] = Json::array();
  json["usage"] = usage_json(totals, reasoning_tokens());
  append_event(events, dump_json(json));
}

std::string ChatFormat::body(const GenerationTotals& totals) {
  Json answer = set_.head.json("chat.completion");
  answer["choices"] = Json::array();
  for (int i = 0; i < set_.num_choices; ++i) {
    Choice& choice = *choices_[i];
    const std::vector<ToolDelta> calls = joined(choice.pending.tools);
    Json message{{"role", "assistant"}, {"content", choice.pending.content}, {"refusal", nullptr}};
    if (choice.pending.content.empty() && !calls.empty()) message["content"] = nullptr;
    put_reasoning(message, choice.pending.reasoning);
    if (!calls.empty()) message["tool_calls"] = tool_calls_json(calls, false);
    Json entry{{"index", i},
               {"message", std::move(message)},
               {"logprobs", nullptr},
               {"finish_reason", finish_reason(choice)},
               {"matched_stop", choice.matched_stop}};
    if (set_.logprobs) entry["logprobs"] = Json{{"content", choice.logprobs}, {"refusal", nullptr}};
    if (set_.token_ids) entry["token_ids"] = choice.token_ids;
    if (choice.captures) entry["captures"] = *choice.captures;
    answer["choices"].push_back(std::move(entry));
  }
  answer["usage"] = usage_json(totals, reasoning_tokens());
  if (set_.token_ids) answer["prompt_token_ids"] = prompt_ids_;
  return dump_json(answer);
}

}  // namespace sluice
