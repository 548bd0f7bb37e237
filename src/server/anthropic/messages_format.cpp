#include "server/anthropic/messages_format.h"

#include "base/hash.h"
#include "server/core/errors.h"

namespace sluice {
namespace {

constexpr std::uint64_t kSignatureSeed = 7;

void append_named(std::string& events, std::string_view name, Json json) {
  events += "event: ";
  events += name;
  events += "\n";
  Json named{{"type", name}};
  named.update(json);
  append_event(events, dump_json(named));
}

// Clients send signatures back, and nobody checks them here. One is a hash of the thoughts.
std::string signature_text(std::uint64_t hash) {
  return fmt::format("sluice-{:016x}", hash);
}

Json usage_of(int input, int cached, int output) {
  return Json{{"input_tokens", input},
              {"cache_creation_input_tokens", 0},
              {"cache_read_input_tokens", cached},
              {"output_tokens", output}};
}

Json no_edits() {
  return Json{{"applied_edits", Json::array()}};
}

}  // namespace

Json messages_usage(const GenerationTotals& totals) {
  const int cached = totals.total_cached();
  return usage_of(totals.total_prompt() - cached, cached, totals.total_completion());
}

MessagesFormat::MessagesFormat(Settings settings)
    : set_(std::move(settings)), reader_(set_.output, set_.one_call) {}

StreamFraming MessagesFormat::framing() const {
  return {.ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n"};
}

Json MessagesFormat::head() const {
  return Json{{"id", set_.id},           {"type", "message"},        {"role", "assistant"},
              {"model", set_.model},     {"content", Json::array()}, {"stop_reason", nullptr},
              {"stop_sequence", nullptr}};
}

Json MessagesFormat::stop_reason() const {
  switch (reader_.finish()) {
    case FinishReason::kStop:
      if (!reader_.matched_stop().empty()) return "stop_sequence";
      return reader_.has_calls() ? "tool_use" : "end_turn";
    case FinishReason::kLength:
      return set_.is_fitted ? "model_context_window_exceeded" : "max_tokens";
    default:
      return "end_turn";
  }
}

Json MessagesFormat::stop_sequence() const {
  return reader_.matched_stop().empty() ? Json(nullptr) : Json(reader_.matched_stop());
}

void MessagesFormat::first_events(std::string& events) {
  Json message = head();
  // The engine has not looked into its cache yet: message_delta says what was found there.
  message["usage"] = usage_of(set_.prompt_tokens, 0, 0);
  append_named(events, "message_start", Json{{"message", std::move(message)}});
  append_named(events, "ping", Json::object());
}

void MessagesFormat::open_block(const AnswerPart& part, std::string& events) {
  Json block;
  switch (part.kind) {
    case AnswerPart::kThought:
      block = Json{{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
      thought_hash_ = kSignatureSeed;
      break;
    case AnswerPart::kText:
      block = Json{{"type", "text"}, {"text", ""}};
      break;
    case AnswerPart::kCall:
      block = Json{{"type", "tool_use"},
                   {"id", part.call_id},
                   {"name", part.name},
                   {"input", Json::object()}};
      break;
  }
  append_named(events, "content_block_start",
               Json{{"index", num_blocks_}, {"content_block", std::move(block)}});
  is_open_ = true;
  open_kind_ = part.kind;
}

void MessagesFormat::close_block(std::string& events) {
  if (!is_open_) return;
  if (open_kind_ == AnswerPart::kThought)
    append_named(
        events, "content_block_delta",
        Json{{"index", num_blocks_},
             {"delta",
              {{"type", "signature_delta"}, {"signature", signature_text(thought_hash_)}}}});
  append_named(events, "content_block_stop", Json{{"index", num_blocks_}});
  is_open_ = false;
  ++num_blocks_;
}

void MessagesFormat::emit(int, const GenerationTotals&, std::string& events) {
  for (const AnswerPart& part : reader_.take()) {
    if (part.is_new) {
      close_block(events);
      open_block(part, events);
    }
    if (part.text.empty()) continue;
    Json delta;
    switch (part.kind) {
      case AnswerPart::kThought:
        delta = Json{{"type", "thinking_delta"}, {"thinking", part.text}};
        thought_hash_ = hash_bytes(part.text, thought_hash_);
        break;
      case AnswerPart::kText:
        delta = Json{{"type", "text_delta"}, {"text", part.text}};
        break;
      case AnswerPart::kCall:
        delta = Json{{"type", "input_json_delta"}, {"partial_json", part.text}};
        break;
    }
    append_named(events, "content_block_delta",
                 Json{{"index", num_blocks_}, {"delta", std::move(delta)}});
  }
}

void MessagesFormat::last_events(const GenerationTotals& totals, std::string& events) {
  close_block(events);
  Json delta{{"delta", {{"stop_reason", stop_reason()}, {"stop_sequence", stop_sequence()}}},
             {"usage", messages_usage(totals)}};
  if (set_.has_edits) delta["context_management"] = no_edits();
  append_named(events, "message_delta", std::move(delta));
}

void MessagesFormat::end_stream(std::string& events) {
  append_named(events, "message_stop", Json::object());
}

void MessagesFormat::fail_stream(const Fault& fault, std::string_view request_id,
                                 std::string& events) {
  events += "event: error\n";
  append_event(events, error_json(fault, ErrorShape::kAnthropic, request_id));
}

std::string MessagesFormat::body(const GenerationTotals& totals) {
  Json message = head();
  Json& content = message["content"];
  for (AnswerPart& part : reader_.take()) {
    switch (part.kind) {
      case AnswerPart::kThought:
        content.push_back(
            Json{{"type", "thinking"},
                 {"thinking", part.text},
                 {"signature", signature_text(hash_bytes(part.text, kSignatureSeed))}});
        break;
      case AnswerPart::kText:
        content.push_back(Json{{"type", "text"}, {"text", part.text}});
        break;
      case AnswerPart::kCall:
        content.push_back(Json{{"type", "tool_use"},
                               {"id", part.call_id},
                               {"name", part.name},
                               {"input", arguments_object(part.text)}});
        break;
    }
  }
  message["stop_reason"] = stop_reason();
  message["stop_sequence"] = stop_sequence();
  message["usage"] = messages_usage(totals);
  if (set_.has_edits) message["context_management"] = no_edits();
  return dump_json(message);
}

}  // namespace sluice
