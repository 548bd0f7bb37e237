// What the server itself costs for a token: many streams of a model that takes no time.
//
//   build/release/bin/server_streams --streams 1000 --tokens 200 --protocol chat
//
// The server runs in this process with an engine that only says tokens; a client in a second
// process reads all streams. The client's processor time is told apart, since both share the
// machine. Run it under `taskset -c 0,1` for two processors.
//
//   --streams N, --tokens N   streams at once, and tokens of each
//   --protocol P              generate, completions, chat, responses, messages, ollama
//   --rate N                  tokens a second of all streams together; default: no limit
//   --io-threads N            as the server's
//   --metrics on|off          Prometheus' metrics; off is for comparisons
//   --log on|off              the log of requests, to /dev/null
//   --otlp URL                a collector of spans
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <set>

#include "base/json.h"
#include "base/log.h"
#include "server/core/grammars.h"
#include "server/core/pooling_model.h"
#include "server/http/http_server.h"
#include "server/paced_engine.h"
#include "server/routes.h"
#include "server/stream_client.h"
#include "text/chat/chat_template.h"

namespace sluice {
namespace {

struct Protocol {
  std::string_view name, path;
  Json body;
  std::string_view limit;  // the field that bounds the tokens
  bool counts_lines = false;
};

const std::vector<Protocol>& protocols() {
  static const Json kMessages = Json::parse(R"([{"role": "user", "content": "Hello"}])");
  static const std::vector<Protocol> kTable = {
      {"generate", "/generate", {{"text", "Hello"}}, ""},
      {"completions", "/v1/completions", {{"prompt", "Hello"}}, "max_tokens"},
      {"chat", "/v1/chat/completions", {{"messages", kMessages}}, "max_tokens"},
      {"responses", "/v1/responses", {{"input", "Hello"}, {"store", false}}, "max_output_tokens"},
      {"messages", "/v1/messages", {{"messages", kMessages}}, "max_tokens"},
      {"ollama", "/api/chat", {{"messages", kMessages}}, "", true},
  };
  return kTable;
}

StreamPlan plan_of(const std::string& name, int num_streams, int num_tokens) {
  for (const Protocol& protocol : protocols()) {
    if (protocol.name != name) continue;
    Json body = protocol.body;
    body["stream"] = true;
    if (name == "generate") {
      body["sampling_params"] = {{"max_new_tokens", num_tokens}, {"ignore_eos", true}};
    } else {
      body["model"] = "tiny";
      if (name == "ollama")
        body["options"] = {{"num_predict", num_tokens}};
      else
        body[std::string(protocol.limit)] = num_tokens;
    }
    return {.num_streams = num_streams,
            .path = std::string(protocol.path),
            .body = dump_json(body),
            .counts_lines = protocol.counts_lines};
  }
  fail(ErrorKind::kBadInput, "unknown protocol `{}`", name);
}

// A line of /proc/self/status in bytes.
std::int64_t memory_of(const char* field) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(field)) return std::stoll(line.substr(std::strlen(field) + 1)) * 1024;
  return 0;
}

std::shared_ptr<ServedModel> served(const std::string& folder,
                                    std::shared_ptr<const Tokenizer> tokenizer,
                                    std::shared_ptr<Engine> engine) {
  auto model = std::make_shared<ServedModel>();
  model->engine = std::move(engine);
  model->tokenizer = tokenizer;
  model->chat_template = ChatTemplate::load(folder);
  model->names = {"tiny"};
  model->reasoning_parser = "glm45";
  model->tool_parser = "glm45";
  model->vocab_size = tokenizer->size();
  model->grammars = std::make_shared<Grammars>(tokenizer, tokenizer->size());
  model->pooling = std::make_shared<const PoolingModel>();
  return model;
}

std::string text_of_script() {
  return "The quick brown fox jumps over the lazy dog, and the dog does not mind. ";
}

int run(std::map<std::string, std::string> flags) {
  const int num_streams = std::stoi(flags["streams"]), num_tokens = std::stoi(flags["tokens"]);
  StreamPlan plan = plan_of(flags["protocol"], num_streams, num_tokens);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  // The client is there before the server has threads.
  int ports[2], results[2];
  check(pipe(ports) == 0 && pipe(results) == 0, "no pipes");
  const pid_t child = fork();
  if (child == 0) {
    if (read(ports[0], &plan.port, sizeof plan.port) != sizeof plan.port) _exit(1);
    try {
      const StreamCounts counts = read_streams(plan);
      _exit(write(results[1], &counts, sizeof counts) == sizeof counts ? 0 : 1);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "client: %s\n", error.what());
      _exit(1);
    }
  }
  close(results[1]);

  const std::string folder = flags["model"];
  const std::shared_ptr<const Tokenizer> tokenizer = Tokenizer::load(folder);
  EncodeOptions plain;
  plain.add_special_tokens = false;
  const auto engine = std::make_shared<PacedEngine>(
      tokenizer->encode(text_of_script(), plain), static_cast<int>(tokenizer->size()),
      PacedEngine::Pace{num_streams, std::stod(flags["rate"])});
  Options options;
  options.io_threads = std::stoi(flags["io-threads"]);
  options.max_queued_requests = num_streams + 10;
  options.otlp_traces_endpoint = flags["otlp"];
  ServerLimits limits;
  limits.max_connections = num_streams + 10;
  ServerState state(options, limits);
  Router router(state);
  HttpServer http("127.0.0.1", 0, options.io_threads, limits, router);
  if (flags["metrics"] == "on") {
    state.metrics.set_model("tiny", options.metrics_compat);
    state.metrics.set_engine(*engine);
  }
  if (flags["log"] == "on") {
    const int null = open("/dev/null", O_WRONLY);
    fflush(stderr);
    dup2(null, STDERR_FILENO);
  } else {
    set_log_level(LogLevel::kOff);
  }
  state.attach(served(folder, tokenizer, engine));
  double cpu_at_start = 0;
  std::int64_t memory_at_start = 0;
  engine->on_start = [&] {
    cpu_at_start = process_seconds();
    memory_at_start = memory_of("VmRSS:");
  };
  http.start();
  const int port = http.port();
  check(write(ports[1], &port, sizeof port) == sizeof port, "the client has left");

  StreamCounts counts;
  if (read(results[0], &counts, sizeof counts) != sizeof counts) {
    waitpid(child, nullptr, 0);
    _exit(1);
  }
  const double cpu_s = process_seconds() - cpu_at_start;
  const double tokens = static_cast<double>(num_streams) * num_tokens;
  const double seconds = counts.last_s - counts.first_s;
  fmt::print(
      "{:<12} {} streams x {} tokens in {:.2f} s: {:.0f} tokens/s; {:.3f} events and {:.0f} bytes "
      "a token; a token takes {:.2f} us of the server ({:.2f} of them of the engine's thread) and "
      "{:.2f} us of the client; peak memory +{:.0f} bytes a token{}\n",
      flags["protocol"], num_streams, num_tokens, seconds, tokens / seconds,
      static_cast<double>(counts.num_events) / tokens,
      static_cast<double>(counts.num_bytes) / tokens, 1e6 * cpu_s / tokens,
      1e6 * engine->thread_seconds() / tokens, 1e6 * counts.cpu_s / tokens,
      static_cast<double>(memory_of("VmHWM:") - memory_at_start) / tokens,
      counts.num_failed ? fmt::format("; {} FAILED", counts.num_failed) : "");
  std::fflush(stdout);
  waitpid(child, nullptr, 0);
  http.stop();
  return counts.num_failed ? 1 : 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  std::map<std::string, std::string> flags = {
      {"streams", "1000"}, {"tokens", "200"},   {"protocol", "chat"},
      {"rate", "0"},       {"io-threads", "1"}, {"metrics", "on"},
      {"log", "on"},       {"otlp", ""},        {"model", "models/sluice-tiny"}};
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = std::string(argv[i]).substr(std::min<std::size_t>(2, strlen(argv[i])));
    if (!flags.contains(name)) {
      std::fprintf(stderr,
                   "unknown flag %s; the first lines of bench/server/streams.cpp say which\n",
                   argv[i]);
      return 2;
    }
    flags[name] = argv[i + 1];
  }
  try {
    return sluice::run(std::move(flags));
  } catch (const sluice::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.message().c_str());
    return sluice::exit_code(error.kind());
  }
}
