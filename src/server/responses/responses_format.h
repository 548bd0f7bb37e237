// How answers of the Responses API are written: one response, or events that build it item by item.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/api/answer_parts.h"
#include "server/core/generation.h"
#include "server/responses/responses_request.h"
#include "storage/response_store.h"

namespace sluice {

class ResponsesFormat : public ReplyFormat {
 public:
  struct Settings {
    Json head;                             // the response without status, output and usage
    std::shared_ptr<ResponseStore> store;  // null: it is not kept
    StoredResponse record;                 // what is kept, without the answer
    Json messages = Json::array();         // that it adds to its conversation
    std::vector<ResponseTool> tools;
    bool wants_encrypted = false;
    bool one_call = false;
    ChatOutputSettings output;
  };
  explicit ResponsesFormat(Settings settings);
  // An answer that was cut short is kept as cancelled.
  ~ResponsesFormat() override;

  void end_stream(std::string&) override {}
  void fail_stream(const Fault& fault, std::string_view request_id, std::string& events) override;
  void prompt_logprobs(int, std::vector<RowLogprobs>&&) override {}
  void add(const ChoiceUpdate& update) override { reader_.add(update); }
  void emit(int index, const GenerationTotals& totals, std::string& events) override;
  void first_events(std::string& events) override;
  void last_events(const GenerationTotals& totals, std::string& events) override;
  std::string body(const GenerationTotals& totals) override;

 private:
  // The response in that state; null totals: there is no usage yet.
  Json response(std::string_view status, const GenerationTotals* totals) const;
  std::string_view last_status() const;
  void keep(const Json& response, bool is_done);
  Json answer_message() const;

  void append(std::string& events, std::string_view name, Json fields);
  // The item that is open; `events` may be null.
  void open_item(const AnswerPart& part, std::string* events);
  void extend_item(const std::string& text, std::string* events);
  void close_item(std::string* events, bool is_last = true);
  void close_reasoning(std::string* events);
  void close_text(std::string* events);
  void close_call(std::string* events);
  Json place() const;  // item_id, output_index
  void read_parts(std::string* events);

  Settings set_;
  AnswerReader reader_;
  Json output_ = Json::array();
  bool is_open_ = false;
  bool is_custom_ = false;  // of the open call
  AnswerPart::Kind kind_ = AnswerPart::kText;
  Json item_;         // that is open
  std::string text_;  // of the open item
  int sequence_ = 0;
  bool is_done_ = false;
};

}  // namespace sluice
