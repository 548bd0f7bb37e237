// For the tests of the server: an engine that speaks a script, a running server on a loopback port,
// and a client that says exactly the bytes it is told.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/build.h"
#include "base/json.h"
#include "engine/engine.h"
#include "server/core/server_state.h"
#include "server/http/http_server.h"
#include "server/routes.h"
#include "server/serve.h"

namespace sluice {

// Every request is answered with the script's tokens, one a step for each choice; the end token
// follows.
class FakeEngine : public Engine {
 public:
  FakeEngine(std::shared_ptr<const Tokenizer> tokenizer, StopMatcherFactory stop_matchers);
  ~FakeEngine() override;

  // May change between requests.
  void set_script(std::vector<std::int32_t> tokens);
  std::vector<std::int32_t> script() const;
  void set_failure(
      int at_token,
      Fault fault);  // a request gets `fault` before its token `at_token`; -1: none does
  std::atomic<int> step_us{200};
  std::atomic<int> step_tokens{1};   // of one step, as with speculation
  std::atomic<bool> stalled{false};  // no step completes
  std::atomic<int> max_queued{1000};
  std::atomic<int> context{4096};
  std::atomic<bool> dead{false};  // failure()
  // What look_up_prefix() answers; set while it is not called.
  std::optional<PrefixLookup> lookup;
  // Set before the server starts.
  GenerationConfig generation;
  ModelConfig config;

  static constexpr int kDimension = 4;  // of vectors: the prompt's length, and its first tokens

  Result<std::uint64_t> submit(Request request, EventSink sink) override;
  bool abort(std::uint64_t request) override;
  void abort_all() override;
  bool flush_cache() override;
  std::optional<PrefixLookup> look_up_prefix(Request request) override;
  void drain() override { draining_ = true; }
  bool idle() const override { return num_open() == 0; }
  EngineStats stats() const override;
  RunReport run_report(bool) override { return {}; }
  const ModelConfig& model_config() const override { return config; }
  const GenerationConfig& generation_config() const override { return generation; }
  const std::string& model_directory() const override { return directory_; }
  int context_length() const override { return context; }
  const StartupLedger& ledger() const override { return ledger_; }
  const MemoryPlan& memory_plan() const override { return plan_; }
  std::string dtype_name() const override { return "float32"; }
  std::string failure() const override { return dead ? "a step failed" : ""; }

  int num_open() const;
  std::uint64_t steps() const { return steps_; }
  // Steps that ran between the abort call's arrival and now are not counted against it: aborts end
  // a request at once.
  std::uint64_t num_aborted() const { return aborted_; }
  Request last_request() const;
  int num_submitted() const { return submitted_; }

 private:
  struct Sequence {
    std::uint64_t id = 0;
    Request request;
    EventSink sink;
    int choice = 0;
    int produced = 0;
    std::unique_ptr<StopMatcher> matcher;
    bool first = true;
    bool ended = false;
  };
  void run();
  void step(Sequence& sequence);

  const std::shared_ptr<const Tokenizer> tokenizer_;
  const StopMatcherFactory stop_matchers_;
  const std::string directory_ = "models/fake";
  const StartupLedger ledger_{{{"load", 1.5, "nothing"}}};
  const MemoryPlan plan_{};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Sequence> sequences_;     // guarded by mutex_
  std::vector<std::int32_t> script_;  // guarded by mutex_
  int fail_at_ = -1;                  // guarded by mutex_
  Fault fault_;                       // guarded by mutex_
  Request last_request_;              // guarded by mutex_
  std::uint64_t next_id_ = 1;         // guarded by mutex_
  std::atomic<bool> stop_{false};
  std::atomic<bool> draining_{false};
  std::atomic<std::uint64_t> steps_{0};
  std::atomic<std::uint64_t> aborted_{0};
  std::atomic<int> submitted_{0};
  std::thread thread_;
};

struct ClientReply {
  int status = 0;
  std::map<std::string, std::string> headers;  // lower-case names
  std::string body;                            // chunks joined
  bool closed = false;                         // the server closed the connection after it
  Json json() const { return Json::parse(body, nullptr, false); }
  // Of `error.<field>`.
  std::string error(const char* field) const;
};

// A blocking client socket. Reads fail after `timeout_ms`.
// How long a client waits for bytes. Ten megabytes of chat take half a second of an optimised
// build, ten or more with a sanitizer.
inline constexpr int kClientTimeoutMs = kTimedBuild ? 5'000 : 30'000;

class Client {
 public:
  explicit Client(int port, int timeout_ms = kClientTimeoutMs);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool send(std::string_view bytes);
  // Some bytes; empty when the server closed or nothing came in time.
  std::string read_some();
  ClientReply read_reply(bool head_only = false);
  // One whole request with a JSON body (or none), and its answer.
  ClientReply call(const std::string& method, const std::string& path, const std::string& body = "",
                   const std::string& extra_headers = "");
  bool closed_by_server();  // waits for it
  void shutdown_write();
  void reset();  // closes with RST
  void close();
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
  std::string in_;
};

std::string request_text(const std::string& method, const std::string& path,
                         const std::string& body, const std::string& extra_headers = "");
// The `data:` payloads of an event stream.
std::vector<std::string> sse_payloads(const std::string& stream);

// Limits short enough for tests.
ServerLimits test_limits();

struct TestServerConfig {
  Options options;
  ServerLimits limits = test_limits();
  GenerationConfig generation;
  bool attach = true;
};

class TestServer {
 public:
  explicit TestServer(TestServerConfig config = {});
  ~TestServer();
  void attach();
  int port() const { return http->port(); }
  ClientReply call(const std::string& method, const std::string& path, const std::string& body = "",
                   const std::string& headers = "") {
    return Client(port()).call(method, path, body, headers);
  }
  ClientReply chat(const std::string& fields, const std::string& headers = "") {
    return call(
        "POST", "/v1/chat/completions",
        R"({"model": "tiny", "messages": [{"role": "user", "content": "Hello"}])" + fields + "}",
        headers);
  }
  std::string text_of_script() const;
  // What must hold after anything (S0): alive, quick, nothing left open, and the same canary
  // answer.
  void expect_healthy();

  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<FakeEngine> engine;
  std::unique_ptr<ServerState> state;
  std::unique_ptr<Router> router;
  std::unique_ptr<HttpServer> http;
  std::shared_ptr<ServedModel> model;
};

// Waits until `condition` holds, at most `timeout_ms`.
template <class Condition>
bool eventually(Condition&& condition, int timeout_ms = 3000) {
  for (int i = 0; i < timeout_ms; i += 2) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return condition();
}

}  // namespace sluice
