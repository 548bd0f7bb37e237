#include "server/responses/responses_format.h"

#include <algorithm>

#include "base/log.h"
#include "server/core/errors.h"
#include "server/http/request_id.h"
#include "server/responses/custom_input.h"
#include "server/responses/input_items.h"

namespace sluice {
namespace {

Json text_part(const std::string& text) {
  return Json{{"type", "output_text"},
              {"text", text},
              {"annotations", Json::array()},
              {"logprobs", Json::array()}};
}

Json thought_part(const std::string& text) {
  return Json{{"type", "reasoning_text"}, {"text", text}};
}

}  // namespace

ResponsesFormat::ResponsesFormat(Settings settings)
    : set_(std::move(settings)), reader_(set_.output, set_.one_call) {
  keep(response("in_progress", nullptr), false);
}

ResponsesFormat::~ResponsesFormat() {
  if (is_done_ || !set_.store) return;
  try {
    close_item(nullptr);
    keep(response("cancelled", nullptr), true);
  } catch (const std::exception& e) {
    log_error("a response was not kept: {}", e.what());
  }
}

Json ResponsesFormat::response(std::string_view status, const GenerationTotals* totals) const {
  Json json = set_.head;
  json["status"] = status;
  json["incomplete_details"] = nullptr;
  if (status == "incomplete") json["incomplete_details"] = Json{{"reason", "max_output_tokens"}};
  json["error"] = nullptr;
  json["output"] = output_;
  json["usage"] = nullptr;
  if (totals) {
    const int input = totals->total_prompt(), output = totals->total_completion();
    json["usage"] =
        Json{{"input_tokens", input},
             {"input_tokens_details", {{"cached_tokens", totals->total_cached()}}},
             {"output_tokens", output},
             {"output_tokens_details", {{"reasoning_tokens", reader_.reasoning_tokens()}}},
             {"total_tokens", input + output}};
  }
  return json;
}

std::string_view ResponsesFormat::last_status() const {
  switch (reader_.finish()) {
    case FinishReason::kLength:
      return "incomplete";
    case FinishReason::kAbort:
      return "cancelled";
    default:
      return "completed";
  }
}

// The answer as a message of the conversation that a later response goes on with.
Json ResponsesFormat::answer_message() const {
  std::string text, thoughts;
  Json calls = Json::array();
  for (const Json& item : output_) {
    const std::string& type = item["type"].get_ref<const std::string&>();
    if (type == "reasoning") {
      thoughts += item["content"][0]["text"].get<std::string>();
    } else if (type == "message") {
      text += item["content"][0]["text"].get<std::string>();
    } else {
      const bool custom = type == "custom_tool_call";
      const std::string name =
          name_for_model(item.value("namespace", ""), item["name"].get_ref<const std::string&>());
      calls.push_back(
          Json{{"id", item["call_id"]},
               {"type", "function"},
               {"function",
                {{"name", name},
                 {"arguments", custom ? Json{{"input", item["input"]}} : item["arguments"]}}}});
    }
  }
  Json message{{"role", "assistant"}, {"content", text}};
  if (!thoughts.empty()) message["reasoning_content"] = thoughts;
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  return message;
}

void ResponsesFormat::keep(const Json& response, bool is_done) {
  is_done_ = is_done;
  if (!set_.store) return;
  auto record = std::make_shared<StoredResponse>(set_.record);
  record->response = dump_json(response);
  record->is_done = is_done;
  if (is_done) {
    Json messages = set_.messages;
    messages.push_back(answer_message());
    record->messages = dump_json(messages);
  }
  const std::string id = record->id;
  if (!set_.store->put(std::move(record)))
    log_warning("response {} is larger than the store, which does not keep it", id);
}

void ResponsesFormat::append(std::string& events, std::string_view name, Json fields) {
  Json event{{"type", name}, {"sequence_number", sequence_++}};
  event.update(fields);
  events += "event: ";
  events += name;
  events += "\n";
  append_event(events, dump_json(event));
}

Json ResponsesFormat::place() const {
  return Json{{"item_id", item_["id"]}, {"output_index", output_.size()}};
}

void ResponsesFormat::open_item(const AnswerPart& part, std::string* events) {
  is_open_ = true;
  kind_ = part.kind;
  text_.clear();
  Json first_part;
  if (kind_ == AnswerPart::kThought) {
    item_ =
        Json{{"id", make_id("rs_")},     {"type", "reasoning"},          {"summary", Json::array()},
             {"content", Json::array()}, {"encrypted_content", nullptr}, {"status", "in_progress"}};
    first_part = thought_part("");
  } else if (kind_ == AnswerPart::kText) {
    item_ = Json{{"id", make_id("msg_")},
                 {"type", "message"},
                 {"status", "in_progress"},
                 {"role", "assistant"},
                 {"content", Json::array()}};
    first_part = text_part("");
  } else {
    const auto tool = std::ranges::find(set_.tools, part.name, &ResponseTool::model_name);
    const bool is_plain = tool == set_.tools.end();
    is_custom_ = !is_plain && tool->is_custom;
    item_ = Json{{"id", make_id(is_custom_ ? "ctc_" : "fc_")},
                 {"type", is_custom_ ? "custom_tool_call" : "function_call"},
                 {"status", "in_progress"},
                 {"call_id", part.call_id},
                 {"name", is_plain ? part.name : tool->name},
                 {is_custom_ ? "input" : "arguments", ""}};
    if (!is_plain && !tool->tool_namespace.empty()) item_["namespace"] = tool->tool_namespace;
  }
  if (!events) return;
  append(*events, "response.output_item.added",
         Json{{"output_index", output_.size()}, {"item", item_}});
  if (first_part.is_null()) return;
  Json fields = place();
  fields["content_index"] = 0;
  fields["part"] = std::move(first_part);
  append(*events, "response.content_part.added", std::move(fields));
}

void ResponsesFormat::extend_item(const std::string& text, std::string* events) {
  text_ += text;
  if (!events || text.empty()) return;
  Json fields = place();
  switch (kind_) {
    case AnswerPart::kThought:
      fields["content_index"] = 0;
      fields["delta"] = text;
      return append(*events, "response.reasoning_text.delta", std::move(fields));
    case AnswerPart::kText:
      fields["content_index"] = 0;
      fields["delta"] = text;
      fields["logprobs"] = Json::array();
      return append(*events, "response.output_text.delta", std::move(fields));
    case AnswerPart::kCall:
      if (is_custom_) return;  // its text is inside a JSON string, and comes whole
      fields["delta"] = text;
      return append(*events, "response.function_call_arguments.delta", std::move(fields));
  }
}

void ResponsesFormat::close_reasoning(std::string* events) {
  if (events) {
    Json fields = place();
    fields["content_index"] = 0;
    fields["text"] = text_;
    append(*events, "response.reasoning_text.done", fields);
    fields.erase("text");
    fields["part"] = thought_part(text_);
    append(*events, "response.content_part.done", std::move(fields));
  }
  item_["content"].push_back(thought_part(text_));
  if (set_.wants_encrypted) item_["encrypted_content"] = encoded_thoughts(text_);
}

void ResponsesFormat::close_text(std::string* events) {
  if (events) {
    Json fields = place();
    fields["content_index"] = 0;
    fields["text"] = text_;
    fields["logprobs"] = Json::array();
    append(*events, "response.output_text.done", fields);
    fields.erase("text");
    fields.erase("logprobs");
    fields["part"] = text_part(text_);
    append(*events, "response.content_part.done", std::move(fields));
  }
  item_["content"].push_back(text_part(text_));
}

void ResponsesFormat::close_call(std::string* events) {
  if (!is_custom_) {
    item_["arguments"] = text_;
    if (!events) return;
    Json fields = place();
    fields["name"] = item_["name"];
    fields["arguments"] = text_;
    return append(*events, "response.function_call_arguments.done", std::move(fields));
  }
  item_["input"] = custom_input(text_);
  if (!events) return;
  Json fields = place();
  fields["delta"] = item_["input"];
  append(*events, "response.custom_tool_call_input.delta", fields);
  fields.erase("delta");
  fields["input"] = item_["input"];
  append(*events, "response.custom_tool_call_input.done", std::move(fields));
}

void ResponsesFormat::close_item(std::string* events, bool is_last) {
  if (!is_open_) return;
  if (kind_ == AnswerPart::kThought)
    close_reasoning(events);
  else if (kind_ == AnswerPart::kText)
    close_text(events);
  else
    close_call(events);
  const FinishReason finish = reader_.finish();
  const bool is_cut =
      is_last && (finish == FinishReason::kLength || finish == FinishReason::kAbort ||
                  (kind_ == AnswerPart::kCall && reader_.has_cut_call()));
  item_["status"] = is_cut ? "incomplete" : "completed";
  if (events)
    append(*events, "response.output_item.done",
           Json{{"output_index", output_.size()}, {"item", item_}});
  output_.push_back(std::move(item_));
  is_open_ = false;
}

void ResponsesFormat::read_parts(std::string* events) {
  for (const AnswerPart& part : reader_.take()) {
    if (part.is_new) {
      close_item(events, false);
      open_item(part, events);
    }
    extend_item(part.text, events);
  }
}

void ResponsesFormat::first_events(std::string& events) {
  const Json json = response("in_progress", nullptr);
  append(events, "response.created", Json{{"response", json}});
  append(events, "response.in_progress", Json{{"response", json}});
}

void ResponsesFormat::emit(int, const GenerationTotals&, std::string& events) {
  read_parts(&events);
}

void ResponsesFormat::last_events(const GenerationTotals& totals, std::string& events) {
  close_item(&events);
  const std::string_view status = last_status();
  const Json json = response(status, &totals);
  append(events, status == "completed" ? "response.completed" : "response.incomplete",
         Json{{"response", json}});
  keep(json, true);
}

void ResponsesFormat::fail_stream(const Fault& fault, std::string_view, std::string& events) {
  close_item(&events);
  Json json = response("failed", nullptr);
  const Json error = Json::parse(error_json(fault))["error"];
  json["error"] = Json{{"code", error["code"]}, {"message", error["message"]}};
  append(events, "response.failed", Json{{"response", json}});
  keep(json, true);
}

std::string ResponsesFormat::body(const GenerationTotals& totals) {
  read_parts(nullptr);
  close_item(nullptr);
  const Json json = response(last_status(), &totals);
  keep(json, true);
  return dump_json(json);
}

}  // namespace sluice
