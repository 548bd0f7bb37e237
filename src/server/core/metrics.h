// What /metrics says, under SGLang's and vLLM's names, so that dashboards and autoscalers work
// unchanged.
//
// Only figures that this server really has are exported, and one with a rival's name has the
// rival's meaning. Both rivals run each choice of `n`, and each prompt of a batch, as a request of
// its own; so counts and histograms of requests count those here. Labels hold the model's name and
// words from fixed sets: no client text. Any thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace sluice {

// A figure that something else counts.
struct ServerFigure {
  const char* name;
  const char* help;
  bool is_counter;
  double value;
};

class ServerMetrics {
 public:
  // One choice that has ended, and what it took. Times in seconds from the request's arrival.
  struct FinishedChoice {
    std::string_view reason;  // stop, length, abort, error
    int prompt_tokens = 0;
    int reused_tokens = 0;  // of them; in the prefix cache, or of another choice
    int generated_tokens = 0;
    int max_tokens = 0;  // 0: not given
    double total_s = 0;
    double first_token_s = 0;  // 0: there was none
    double last_token_s = 0;
    double queue_s = 0;  // from submission to the first step
  };

  ServerMetrics();
  ~ServerMetrics();
  ServerMetrics(const ServerMetrics&) = delete;
  ServerMetrics& operator=(const ServerMetrics&) = delete;

  // Registers the families of `compat` ("sglang,vllm", "none"); before that only requests of HTTP
  // are counted.
  void set_model(const std::string& model_name, const std::string& compat);
  // What does not change, behind set_model().
  void set_engine(const Engine& engine);
  void http_request(std::string_view handler, std::string_view method, int status, double seconds);
  // Of a choice.
  void first_token(double seconds);
  // `count` tokens of a choice came `seconds` after the ones before them.
  void token_gap(double seconds, int count);
  void finished(const FinishedChoice& choice);
  // All choices of a prompt have ended; the longest has `longest`.
  void prompt_finished(int num_choices, int longest);
  // Prometheus text, with the engine's counters as they are now (null: no engine yet) and more
  // figures of our own.
  std::string text(const EngineStats* stats, std::span<const ServerFigure> more = {}) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
