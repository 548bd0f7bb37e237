// The protocols that `bench serve` speaks: what a request says, and what its answer tells.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "cli/bench/bench_stats.h"

namespace sluice {

enum class LoadProtocol { kGenerate, kCompletions, kChat };

struct LoadBackend {
  std::string_view name;
  LoadProtocol protocol;
  int default_port;
};
// UsageError lists the names.
const LoadBackend& find_backend(std::string_view name);
std::string_view protocol_path(LoadProtocol protocol);

// A request before it is spelt: text, or ids where `as_ids`.
struct LoadPrompt {
  std::string text;
  std::vector<std::int32_t> ids;
  int prompt_len = 0;
  int output_len = 0;
};

struct LoadStyle {
  std::string model;
  bool as_ids = false;
  bool stream = true;
  bool ignore_eos = true;
  Json extra = Json::object();
};
std::string request_body(LoadProtocol protocol, const LoadPrompt& prompt, const LoadStyle& style);

// Reads one answer into a record as it arrives. Times are seconds since the request was sent.
class AnswerReader {
 public:
  AnswerReader(LoadProtocol protocol, bool stream, const LoadPrompt& prompt);

  // One event of a stream, "[DONE]" too.
  void event(std::string_view data, double at_s);
  // The whole body of an answer that is no stream.
  void body(std::string_view text, double at_s);
  // The answer is whole. It is a success unless an event told of an error or the stream broke off.
  void end(double at_s);
  RequestRecord& record() { return record_; }

 private:
  void take(const Json& json, double at_s);
  void tokens(int count, double at_s);
  void fail(std::string message);

  LoadProtocol protocol_;
  bool stream_;
  RequestRecord record_;
  int wanted_len_;
  int counted_ = 0;    // tokens that the server reported
  bool done_ = false;  // the stream ended in order
  double last_s_ = 0;
};

}  // namespace sluice
