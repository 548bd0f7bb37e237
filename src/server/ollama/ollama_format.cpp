#include "server/ollama/ollama_format.h"

#include <ctime>

#include "server/core/errors.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t nanoseconds(Clock::duration time) {
  return std::max<std::int64_t>(0,
                                std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
}

}  // namespace

std::string ollama_time(std::int64_t seconds_since_1970) {
  const std::time_t time = static_cast<std::time_t>(seconds_since_1970);
  std::tm t{};
  gmtime_r(&time, &t);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", t.tm_year + 1900, t.tm_mon + 1,
                     t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec);
}

std::string ollama_time() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  std::string text = ollama_time(micros / 1'000'000);
  text.pop_back();
  return text + fmt::format(".{:06}Z", micros % 1'000'000);
}

OllamaFormat::OllamaFormat(Settings settings)
    : set_(std::move(settings)), reader_(set_.output, false) {}

void OllamaFormat::add(const ChoiceUpdate& update) {
  if (first_token_ == Clock::time_point{} && !update.tokens.empty()) first_token_ = Clock::now();
  reader_.add(update);
}

Json OllamaFormat::line() const {
  return Json{{"model", set_.model}, {"created_at", ollama_time()}};
}

void OllamaFormat::put(Json& line, const std::string& text, const std::string& thoughts,
                       Json calls) const {
  if (!set_.is_chat) {
    line["response"] = text;
    if (!thoughts.empty()) line["thinking"] = thoughts;
    return;
  }
  Json& message = line["message"];
  message = Json{{"role", "assistant"}, {"content", text}};
  if (!thoughts.empty()) message["thinking"] = thoughts;
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
}

Json OllamaFormat::take_call() {
  Json calls = Json::array();
  if (!has_call_) return calls;
  calls.push_back(
      Json{{"id", call_.id},
           {"function", {{"name", call_.name}, {"arguments", arguments_object(call_.arguments)}}}});
  has_call_ = false;
  call_ = {};
  return calls;
}

void OllamaFormat::emit(int, const GenerationTotals&, std::string& events) {
  const auto write = [&](const std::string& text, const std::string& thoughts, Json calls) {
    Json json = line();
    put(json, text, thoughts, std::move(calls));
    json["done"] = false;
    events += dump_json(json) + "\n";
  };
  for (AnswerPart& part : reader_.take()) {
    if (part.is_new)
      if (Json calls = take_call(); !calls.empty()) write("", "", std::move(calls));
    if (part.kind == AnswerPart::kCall) {
      if (part.is_new) call_ = {std::move(part.call_id), std::move(part.name), {}};
      has_call_ = true;
      call_.arguments += part.text;
    } else if (part.kind == AnswerPart::kThought) {
      write("", part.text, Json::array());
    } else {
      write(part.text, "", Json::array());
    }
  }
  if (reader_.finish() != FinishReason::kNone)
    if (Json calls = take_call(); !calls.empty()) write("", "", std::move(calls));
}

void OllamaFormat::put_end(Json& line, const GenerationTotals& totals) const {
  const Clock::time_point end = Clock::now();
  const Clock::time_point first = first_token_ == Clock::time_point{} ? end : first_token_;
  const auto queue =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(totals.queue_s));
  line["done"] = true;
  line["done_reason"] = reader_.finish() == FinishReason::kLength ? "length" : "stop";
  line["total_duration"] = nanoseconds(end - totals.arrival);
  line["load_duration"] = 0;  // the model is loaded before the server is ready
  line["prompt_eval_count"] = totals.total_prompt();
  line["prompt_eval_duration"] = nanoseconds(first - totals.arrival - queue);
  line["eval_count"] = totals.total_completion();
  line["eval_duration"] = nanoseconds(end - first);
}

void OllamaFormat::last_events(const GenerationTotals& totals, std::string& events) {
  Json json = line();
  put(json, "", "", Json::array());
  put_end(json, totals);
  events += dump_json(json) + "\n";
}

void OllamaFormat::fail_stream(const Fault& fault, std::string_view, std::string& events) {
  events += error_json(fault, ErrorShape::kOllama) + "\n";
}

std::string OllamaFormat::body(const GenerationTotals& totals) {
  std::string text, thoughts;
  Json calls = Json::array();
  const auto end_call = [&] {
    for (Json& call : take_call()) calls.push_back(std::move(call));
  };
  for (AnswerPart& part : reader_.take()) {
    if (part.is_new) end_call();
    if (part.kind == AnswerPart::kCall) {
      call_ = {std::move(part.call_id), std::move(part.name), std::move(part.text)};
      has_call_ = true;
    } else if (part.kind == AnswerPart::kThought) {
      thoughts += part.text;
    } else {
      text += part.text;
    }
  }
  end_call();
  Json json = line();
  put(json, text, thoughts, std::move(calls));
  put_end(json, totals);
  return dump_json(json);
}

}  // namespace sluice
