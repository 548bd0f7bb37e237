#include "server/serve.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

#include "base/log.h"
#include "server/core/pooling_model.h"
#include "server/http/http_server.h"
#include "server/http/tls.h"
#include "server/routes.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

// SIGTERM, SIGINT and SIGHUP as a file descriptor, blocked for every thread that starts after this.
class Signals {
 public:
  // Without a reload SIGHUP ends the program.
  explicit Signals(bool has_reload) {
    signal(SIGPIPE, SIG_IGN);
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, SIGINT);
    if (has_reload) sigaddset(&wanted, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &wanted, &before_);
    fd_ = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
    check(fd_ >= 0, "signalfd failed");
  }
  ~Signals() {
    close(fd_);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // Called by wait() at SIGHUP.
  void on_reload(std::function<void()> reload) { reload_ = std::move(reload); }

  // True when a signal to end came within the time.
  bool wait(std::chrono::milliseconds timeout) {
    pollfd entry{fd_, POLLIN, 0};
    if (poll(&entry, 1, static_cast<int>(timeout.count())) <= 0) return false;
    signalfd_siginfo info;
    if (read(fd_, &info, sizeof info) != sizeof info) return false;
    if (info.ssi_signo == SIGHUP) {
      if (reload_) reload_();
      return false;
    }
    last_ = static_cast<int>(info.ssi_signo);
    return true;
  }
  int last() const { return last_; }

 private:
  std::function<void()> reload_;
  int last_ = 0;
  int fd_ = -1;
  sigset_t before_;
};

// As many descriptors as the system allows: each connection takes one.
void raise_descriptor_limit(int wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t need = static_cast<rlim_t>(wanted) + 256;
  if (limit.rlim_cur >= need) return;
  limit.rlim_cur = limit.rlim_max == RLIM_INFINITY ? need : std::min(need, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < need)
    log_warning("this process may open {} files, so fewer than {} connections fit (ulimit -n)",
                limit.rlim_cur, wanted);
}

// Null: plain HTTP. Error{kBadInput} says what is wrong with a file, or what is missing.
std::shared_ptr<TlsContext> open_tls(const Options& options) {
  if (options.ssl_certfile.empty() && options.ssl_keyfile.empty() &&
      options.ssl_keyfile_password.empty() && options.ssl_ca_certs.empty() &&
      options.ssl_cert_reqs == TlsFiles::kNone && !options.enable_ssl_refresh)
    return {};
  auto tls = std::make_shared<TlsContext>(TlsFiles{
      .certfile = options.ssl_certfile,
      .keyfile = options.ssl_keyfile,
      .password = options.ssl_keyfile_password,
      .ca_certs = options.ssl_ca_certs,
      .client_certificates = static_cast<TlsFiles::ClientCertificates>(options.ssl_cert_reqs)});
  static constexpr std::string_view kOfClients[] = {"", ", clients may have one",
                                                    ", clients must have one"};
  log_info("TLS: {}{}", tls->summary(), kOfClients[options.ssl_cert_reqs]);
  return tls;
}

// Where the server answers, as curl takes it.
struct ServerAddress {
  std::string url;
  std::string curl = "curl";
};

ServerAddress address_of(const Options& options, int port) {
  const std::string_view scheme = options.ssl_certfile.empty() ? "http" : "https";
  const std::string& host = options.host;
  if (host.starts_with(kUnixHost))
    return {fmt::format("{}://localhost", scheme),
            fmt::format("curl --unix-socket {}", host.substr(kUnixHost.size()))};
  const bool is_any = host == "0.0.0.0" || host == "::";
  const bool is_ipv6 = !is_any && host.find(':') != std::string::npos;
  return {fmt::format("{}://{}{}{}:{}", scheme, is_ipv6 ? "[" : "", is_any ? "127.0.0.1" : host,
                      is_ipv6 ? "]" : "", port)};
}

bool is_near(const std::string& host) {
  return host == "127.0.0.1" || host == "localhost" || host == "::1" || host.starts_with(kUnixHost);
}

void print_summary(const Options& options, const ServedModel& model, int port, bool has_keys) {
  const Engine& engine = *model.engine;
  const EngineStats stats = engine.stats();
  const auto [url, curl] = address_of(options, port);
  const int context = engine.context_length();
  log_info("model {} ({}), dtype {}, context {} tokens", model.names[0],
           engine.model_config().architecture, engine.dtype_name(), context);
  if (model.generates) {
    log_info("KV cache {} tokens: {:.1f} requests of {} tokens at once", stats.max_total_tokens,
             static_cast<double>(stats.max_total_tokens) / std::max(1, context), context);
    const std::string no_tools = model.raw_tool_calls ? "none" : "none, so tools are refused";
    log_info("reasoning parser {}; tool-call parser {}",
             model.reasoning_parser.empty() ? "none" : model.reasoning_parser,
             model.tool_parser.empty() ? no_tools : model.tool_parser);
  }
  const PoolingModel& pooling = *model.pooling;
  if (pooling.refusal.empty())
    log_info("embeddings of {} numbers: pooling {}{}, {} ({})", pooling.dimension,
             pooling_name(pooling.pooling),
             pooling.modules.empty() ? "" : fmt::format(", {} modules", pooling.modules.size()),
             pooling.normalizes ? "normalised" : "not normalised", pooling.source);
  if (pooling.score == ScoreKind::kHead)
    log_info("scores of {} label{}", pooling.labels.size(), pooling.labels.size() == 1 ? "" : "s");
  if (options.host.starts_with(kUnixHost))
    log_info("listening on the socket {}", options.host.substr(kUnixHost.size()));
  log_info("API {}/v1 (metrics {}/metrics{})", url, url,
           options.no_webui ? "" : fmt::format("; page {}/", url));
  if (has_keys)
    log_info("keys are needed for the API{}",
             options.metrics_open ? fmt::format(", not for {}/metrics", url)
                                  : fmt::format(" and for {}/metrics (--metrics-open)", url));
  if (!options.admin_socket.empty())
    log_info("administration: curl --unix-socket {} http://localhost/flush_cache -X POST",
             options.admin_socket);
  const std::string key = has_keys ? " -H 'Authorization: Bearer YOUR_KEY'" : "";
  if (model.generates)
    log_info(
        "try: {} {}/v1/chat/completions -H 'Content-Type: application/json'{} -d "
        "'{{\"model\": \"{}\", \"messages\": [{{\"role\": \"user\", \"content\": \"What is the "
        "capital of France?\"}}]}}'",
        curl, url, key, model.names[0]);
}

struct Loading {
  std::atomic<bool> done{false};
  std::string error;  // written before done
  int exit_status = 0;
};

// The shell's code for a program that Ctrl-C ended.
constexpr int kInterrupted = 130;

// How long the last events of aborted requests may take to reach their clients.
constexpr std::chrono::seconds kFarewell{5};
// The same where the engine has failed, and may never give them.
constexpr std::chrono::seconds kShortFarewell{1};

// Waits for what runs to end, up to the drain time-out or a second signal, and for every answer to
// be in its socket: false after the signal.
bool drain(ServerState& state, const HttpServer& http, Signals& signals, double timeout_s) {
  const ServedModel* const model = state.model();
  state.begin_drain();
  if (!model) return true;
  bool patient = true;
  log_info("shutting down: {} requests in flight, up to {:.0f} s to finish",
           state.num_generations(), timeout_s);
  model->engine->drain();
  const auto busy = [&] { return state.num_generations() > 0 || http.num_exchanges() > 0; };
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s);
  while (patient && busy() && Clock::now() < deadline)
    patient = !signals.wait(std::chrono::milliseconds(10));
  if (!patient) log_info("second signal: requests in flight are aborted");
  if (!busy()) return patient;
  model->engine->abort_all();
  // Their streams still end in order.
  const auto last = Clock::now() + kFarewell;
  while (busy() && Clock::now() < last) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return patient;
}

// Reads the keys again. A faulty file leaves those of before.
void reload_keys(KeyPipeline& keys, const std::string& path) {
  try {
    const std::size_t count = keys.reload();
    log_info("{} read again: {} key{}", path, count, count == 1 ? "" : "s");
  } catch (const Error& error) {
    log_error("{}; the keys stay as they were", error.message());
  }
}

// Serves until a signal; 0, or why the process must end by itself. `tls`: null, or what to refresh.
int watch(ServerState& state, Signals& signals, const Options& options, TlsContext* tls) {
  bool stalled_noted = false;
  for (;;) {
    if (signals.wait(std::chrono::milliseconds(1000))) return 0;
    if (tls) tls->refresh();
    const ServedModel* const model = state.model();
    const std::string failure = model->engine->failure();
    if (!failure.empty()) {
      log_error("the engine has failed for good: {}", failure);
      return exit_code(ErrorKind::kFatal);
    }
    const double stalled = model->engine->stats().seconds_since_progress;
    if (stalled >= 10 && !stalled_noted)
      log_error("no step has completed for {:.0f} s with work queued: not ready", stalled);
    stalled_noted = stalled >= 10;
    if (options.watchdog_timeout_s > 0 && stalled >= options.watchdog_timeout_s) {
      log_error("no step has completed for {:.0f} s (--watchdog-timeout {:.0f}): giving up",
                stalled, options.watchdog_timeout_s);
      return exit_code(ErrorKind::kFatal);
    }
  }
}

}  // namespace

int serve(const Options& options, const DownloadObserver& download) {
  Signals signals(!options.api_key_file.empty());
  ServerLimits limits;
  limits.max_body_bytes = static_cast<std::size_t>(options.max_body_bytes);
  limits.max_connections = options.max_connections;
  raise_descriptor_limit(options.max_connections);
  ServerState state(options, limits);
  signals.on_reload([&] { reload_keys(state.keys, options.api_key_file); });
  Router router(state);
  std::shared_ptr<TlsContext> tls;
  std::unique_ptr<HttpServer> http;
  try {
    tls = open_tls(options);
    http = std::make_unique<HttpServer>(options.host, options.port, options.io_threads, limits,
                                        router, tls);
    if (!options.admin_socket.empty()) http->listen_for_admin(options.admin_socket);
  } catch (const Error& e) {
    fmt::print(stderr, "error: {}\n", e.message());
    return exit_code(e.kind());
  }
  if (!is_near(options.host) && !state.keys.has_users())
    log_warning(
        "listening on {} WITHOUT an API key: anybody who reaches this port may use the model "
        "(--api-key, --api-key-file)",
        options.host);
  http->start();

  auto loading = std::make_shared<Loading>();
  std::thread loader([&state, &options, &download, port = http->port(), loading] {
    try {
      std::shared_ptr<const ServedModel> model = load_served_model(
          options,
          [&state](const std::string& step, double part) { state.set_progress(step, part); },
          download, state.trace);
      state.metrics.set_model(model->names[0], options.metrics_compat);
      state.metrics.set_engine(*model->engine);
      // Whoever sees /ready finds these lines in the log.
      print_summary(options, *model, port, state.keys.has_users());
      state.attach(std::move(model));
      log_info("The server is fired up and ready to roll!");
    } catch (const Error& e) {
      loading->error = e.message();
      loading->exit_status = exit_code(e.kind());
      if (e.kind() == ErrorKind::kBug) log_error("{}", e.what());
    } catch (const std::bad_alloc&) {
      loading->error = "out of memory while loading";
      loading->exit_status = exit_code(ErrorKind::kNoResources);
    } catch (const std::exception& e) {
      loading->error = e.what();
      loading->exit_status = exit_code(ErrorKind::kFatal);
    }
    loading->done = true;
  });
  bool interrupted = false;
  while (!loading->done.load() && !interrupted)
    interrupted = signals.wait(std::chrono::milliseconds(20));
  // Clients may have been served from the moment that the model was attached: then the signal
  // begins an orderly end.
  if (interrupted && !state.model()) {
    // Nothing is being answered yet, and loading cannot be cut short in order.
    log_info("stopped while loading");
    http.reset();
    std::fflush(nullptr);
    _exit(signals.last() == SIGINT ? kInterrupted : 0);
  }
  loader.join();
  if (!loading->error.empty()) {
    state.load_failed();
    fmt::print(stderr, "error: {}\n", loading->error);
    http->stop();
    return loading->exit_status;
  }

  TlsContext* const refreshed = options.enable_ssl_refresh ? tls.get() : nullptr;
  const int status = interrupted ? 0 : watch(state, signals, options, refreshed);
  if (status != 0) {
    const auto last = Clock::now() + kShortFarewell;
    while (http->num_exchanges() > 0 && Clock::now() < last)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    // The engine's thread may never come back: leave without waiting for it.
    std::fflush(nullptr);
    _exit(status);
  }
  const bool patient = drain(state, *http, signals, options.drain_timeout_s);
  http->stop();
  log_info("stopped");
  return patient ? 0 : kInterrupted;
}

}  // namespace sluice
