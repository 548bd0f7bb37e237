// What /metrics says, under SGLang's and vLLM's names, so that dashboards and autoscalers work
// unchanged.
//
// Only figures that this server really has are exported. Labels hold the model's name and words
// from fixed sets: no client text. Any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"

namespace sluice {

class ServerMetrics {
 public:
  // One request that has ended, and what it took. Times in seconds from its arrival.
  struct FinishedRequest {
    std::string_view reason;  // stop, length, abort, error
    int prompt_tokens = 0;
    int cached_tokens = 0;
    int generated_tokens = 0;
    int num_choices = 1;
    int max_tokens = 0;  // 0: not given
    double total_s = 0;
    double first_token_s = 0;  // 0: there was none
    double queue_s = 0;
  };

  ServerMetrics();
  ~ServerMetrics();
  ServerMetrics(const ServerMetrics&) = delete;
  ServerMetrics& operator=(const ServerMetrics&) = delete;

  // Registers the families of `compat` ("sglang,vllm", "none"); before that only
  // http_requests_total is counted.
  void set_model(const std::string& model_name, const std::string& compat);
  void http_request(std::string_view handler, std::string_view method, int status);
  void first_token(double seconds);
  // `count` tokens came `seconds` after the ones before them.
  void token_gap(double seconds, int count);
  void finished(const FinishedRequest& request);
  // Prometheus text, with the engine's counters as they are now (null: no engine yet).
  std::string text(const EngineStats* stats) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
