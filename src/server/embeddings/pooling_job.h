// The vectors of a list of texts: requests to the engine, a few at a time, and one answer when all
// have come.
//
//   PoolingJob::Plan plan;
//   plan.inputs = ...;
//   plan.finish = [](PoolingJob::Vectors&& all) { return reply_of(all); };
//   start_pooling(state, model, request, responder, std::move(plan));
//
// The requests wait in the engine's queue only up to a number of tokens, so that a long list leaves
// room for others. The first fault ends the whole list; a client that leaves does, too. Started on
// a text thread, lives on the I/O thread of its connection.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "server/core/errors.h"
#include "server/core/server_state.h"
#include "server/http/http.h"

namespace sluice {

class PoolingJob : public std::enable_shared_from_this<PoolingJob> {
 public:
  struct Input {
    std::vector<std::int32_t> ids;         // at least one
    std::vector<std::uint8_t> types = {};  // Request::token_types
    int pooled_from = 0;
    int logprob_start = -1;  // not -1: the row is the log-probability of the last token instead
  };
  struct Vectors {
    std::vector<std::vector<float>> rows;  // by input, as Event::pooled
    std::int64_t prompt_tokens = 0;
    std::int64_t cached_tokens = 0;
    double seconds = 0;  // since the request's arrival
  };
  struct Plan {
    std::vector<Input> inputs;
    Request request;  // without prompt, types and pooled_from
    ErrorShape errors = ErrorShape::kOpenAi;
    std::function<HttpReply(Vectors&& vectors)> finish;  // on a text thread
  };

  PoolingJob(ServerState& state, const ServedModel* model, const HttpRequest& request,
             std::shared_ptr<Responder> responder, Plan plan);
  void start();

 private:
  void begin();
  void submit_more();
  void on_event(std::size_t input, Event&& event);
  void fail(const Fault& fault);
  void end();  // of what is in the engine
  void finish();

  ServerState& state_;
  const ServedModel* const model_;
  const std::shared_ptr<Responder> responder_;
  const std::string request_id_;
  const std::size_t route_;
  const std::shared_ptr<RequestUse> use_;  // null: nobody counts
  const std::chrono::steady_clock::time_point arrival_;
  Plan plan_;
  // I/O thread from here on.
  Vectors vectors_;
  std::vector<std::uint64_t> ids_;  // by input: of the engine; 0: ended or not submitted
  std::vector<std::size_t> sizes_;  // by input: tokens
  std::size_t next_ = 0;            // input
  std::size_t open_ = 0;            // inputs in the engine
  std::size_t open_tokens_ = 0;
  bool over_ = false;
};

void start_pooling(ServerState& state, const ServedModel* model, const HttpRequest& request,
                   std::shared_ptr<Responder> responder, PoolingJob::Plan plan);

}  // namespace sluice
