// One request from admission to its last byte: submits to the engine, turns tokens into text, and
// feeds a format.
//
// A text thread calls start(); from then on everything happens on the connection's I/O thread,
// where the engine's events arrive by Responder::post. A client that leaves, an abort and an error
// of one choice all end the whole request.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/engine.h"
#include "server/core/errors.h"
#include "server/core/server_state.h"
#include "server/http/http.h"
#include "text/parsers/stop_matcher.h"
#include "text/tokenizer/detokenizer.h"

namespace sluice {

struct RequestSpan;

// What one engine event means for one choice. Choices are numbered through all prompts: index =
// prompt * n + choice.
struct ChoiceUpdate {
  int prompt = 0;
  int index = 0;
  std::string text;                      // may be sent: no part of a stop string, no half character
  std::span<const std::int32_t> tokens;  // new ones
  std::span<const RowLogprobs> logprobs;  // beside tokens, or empty
  bool ends_with_stop_token = false;      // the last of `tokens` is no part of the text
  // By token of the text: the bytes before it in all text of the choice, sent or not.
  std::vector<std::size_t> token_starts;
  FinishReason finish = FinishReason::kNone;
  std::int32_t matched_token = -1;
  std::string matched_stop;
  bool is_cut = false;      // with `finish`: a stop of the request or the engine ended the text
  std::string unsent_stop;  // what then stands behind the text: a stop string or token
  std::optional<Json> captures;  // with `finish`, where the plan asks for them

  // An end token is the last of `tokens`.
  bool ends_with_token() const {
    return finish == FinishReason::kStop && matched_token >= 0 && matched_stop.empty();
  }
};

struct GenerationTotals {
  std::vector<int> prompt_tokens;      // by prompt
  std::vector<int> cached_tokens;      // by prompt
  std::vector<int> completion_tokens;  // by index
  std::vector<DraftCounts> drafts;     // by index
  double queue_s = 0;                  // of the first prompt
  std::vector<double> queue_times;     // by prompt
  std::chrono::steady_clock::time_point arrival{};

  int total_prompt() const;
  int total_cached() const;
  int total_completion() const;
  DraftCounts total_drafts() const;
};

// How a protocol writes what happens. Used on one I/O thread. Events are whole events of the
// stream.
class ReplyFormat {
 public:
  virtual ~ReplyFormat() = default;
  virtual ErrorShape error_shape() const { return ErrorShape::kOpenAi; }
  virtual StreamFraming framing() const { return {}; }
  // The end of a stream: behind last_events(), or the fault that cut it short.
  virtual void end_stream(std::string& events);
  virtual void fail_stream(const Fault& fault, std::string_view request_id, std::string& events);
  virtual void prompt_logprobs(int prompt, std::vector<RowLogprobs>&& rows) = 0;
  virtual void add(const ChoiceUpdate& update) = 0;
  // Streaming: what was added for `index` since the last call.
  virtual void emit(int index, const GenerationTotals& totals, std::string& events) = 0;
  virtual void first_events(std::string& events) = 0;
  // Before end_stream().
  virtual void last_events(const GenerationTotals& totals, std::string& events) = 0;
  // Not streaming: the whole answer.
  virtual std::string body(const GenerationTotals& totals) = 0;
};

struct GenerationPlan {
  std::vector<std::vector<std::int32_t>> prompts;
  Request request;  // without prompt_ids
  std::unique_ptr<ReplyFormat> format;
  bool stream = false;
  bool skip_special_tokens = true;
  std::vector<std::int32_t> kept_tokens;  // special tokens that parsers look for: text all the same
  // Captures of a choice from its tokens, without an end token; null: they were not found. `shown`:
  // the characters of its text. Text threads.
  using Captures = std::function<Json(std::span<const std::int32_t> tokens,
                                      const std::vector<std::int32_t>& kept_tokens,
                                      std::size_t shown, bool has_end)>;
  Captures captures;       // empty: not asked for
  bool keep_stop = false;  // the stop string or token is part of the text
  bool same_seed = true;   // for all prompts; false: a seed of the server's own, which must differ
  std::string rid;
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  Generation(ServerState& state, const ServedModel* model, const HttpRequest& request,
             std::shared_ptr<Responder> responder, GenerationPlan plan);

  // Submits all prompts, or answers with the fault of the first that is refused. Text thread.
  void start();
  // Ends it as an abort of the client's own; the answer says so. Any thread.
  void abort();

 private:
  struct Choice {
    Choice(const Tokenizer& tokenizer, const GenerationPlan& plan)
        : detokenizer(tokenizer, plan.skip_special_tokens, plan.kept_tokens),
          filter(plan.request.stop, plan.keep_stop) {}
    Detokenizer detokenizer;
    StopFilter filter;
    std::size_t num_bytes = 0;  // of the text before the filter
    int since_emit = 0;         // tokens
    bool emitted = false;       // an event has gone out
    bool pending = false;       // something was added since
    bool done = false;
    std::chrono::steady_clock::time_point last_token{};
    double first_token_s = 0;  // from arrival; 0: none came
    double last_token_s = 0;
    int reused_tokens = 0;
    std::vector<std::int32_t> tokens;  // where captures are asked for
    std::size_t shown = 0;             // characters, there too
  };

  void begin();
  void on_event(int prompt, Event&& event);
  void decode(Choice& choice, Event& event, ChoiceUpdate& update);
  bool is_text_token(std::int32_t token) const;
  void apply(FinishReason engine_finish, const ChoiceUpdate& update);
  void keep_for_captures(Choice& choice, const ChoiceUpdate& update);
  void find_captures(Event&& event, ChoiceUpdate&& update);
  void emit(int index, bool force);
  void finish();
  void fail(const Fault& fault);
  void client_left();
  void abort_engine();
  void over(std::string_view reason);
  void count_finished(int index, std::string_view reason);
  void trace_end(std::string_view reason) const;
  void export_span(std::string_view reason);

  ServerState& state_;
  const ServedModel* const model_;
  const std::shared_ptr<Responder> responder_;
  const std::uint64_t key_id_;
  const std::string request_id_;
  const std::size_t route_;
  const std::shared_ptr<RequestUse> use_;    // null: nobody counts
  const std::shared_ptr<RequestSpan> span_;  // null: no collector wants it
  GenerationPlan plan_;
  std::vector<std::uint64_t> ids_;  // written before begin()
  // I/O thread from here on.
  GenerationTotals totals_;
  std::deque<Choice> choices_;
  std::deque<std::pair<int, Event>> early_;  // came before begin()
  std::size_t held_bytes_ = 0;               // added but not emitted, roughly
  int num_open_ = 0;
  bool begun_ = false;
  bool abort_wanted_ = false;  // came before begin()
  bool over_ = false;
  double first_token_s_ = 0;
  std::chrono::steady_clock::time_point submitted_{};  // written before begin()
  FinishReason last_finish_ = FinishReason::kNone;
};

// `data: ` + json + blank line.
void append_event(std::string& events, std::string_view json);
std::string_view finish_reason_name(FinishReason reason);

}  // namespace sluice
