// How answers of Ollama's API are written: one object, or a line of JSON for each piece. The last
// one has the counts and the times, in nanoseconds.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/api/answer_parts.h"
#include "server/core/generation.h"

namespace sluice {

class OllamaFormat : public ReplyFormat {
 public:
  struct Settings {
    bool is_chat = false;  // `message`, else `response`
    std::string model;
    ChatOutputSettings output;
  };
  explicit OllamaFormat(Settings settings);

  ErrorShape error_shape() const override { return ErrorShape::kOllama; }
  // A line that is no JSON would break a client, so a silent stream stays silent.
  StreamFraming framing() const override {
    return {.content_type = "application/x-ndjson", .ping = ""};
  }
  void end_stream(std::string&) override {}
  void fail_stream(const Fault& fault, std::string_view request_id, std::string& events) override;
  void prompt_logprobs(int, std::vector<RowLogprobs>&&) override {}
  void add(const ChoiceUpdate& update) override;
  void emit(int index, const GenerationTotals& totals, std::string& events) override;
  void first_events(std::string&) override {}
  void last_events(const GenerationTotals& totals, std::string& events) override;
  std::string body(const GenerationTotals& totals) override;

 private:
  struct Call {
    std::string id, name, arguments;
  };
  Json line() const;
  void put(Json& line, const std::string& text, const std::string& thoughts, Json calls) const;
  Json take_call();
  void put_end(Json& line, const GenerationTotals& totals) const;

  const Settings set_;
  AnswerReader reader_;
  bool has_call_ = false;
  Call call_;  // that is being read: calls are written whole
  std::chrono::steady_clock::time_point first_token_{};
};

// Now, as RFC 3339 has it.
std::string ollama_time();
std::string ollama_time(std::int64_t seconds_since_1970);

}  // namespace sluice
