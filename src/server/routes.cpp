#include "server/routes.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/log.h"
#include "base/log_format.h"
#include "base/trace.h"
#include "server/anthropic/handlers.h"
#include "server/core/errors.h"
#include "server/embeddings/handlers.h"
#include "server/http/request_target.h"
#include "server/ollama/handlers.h"
#include "server/openapi.h"
#include "server/page/page.h"
#include "server/responses/handlers.h"

namespace sluice {
namespace {

constexpr Route text_route(std::string_view path, Access access, TextHandler handler) {
  return Route{path, "POST", access, true, handler, nullptr};
}
// POST, and the answer is generated text.
constexpr Route generate_route(std::string_view path, TextHandler handler,
                               ErrorShape errors = ErrorShape::kOpenAi) {
  return Route{path, "POST", Access::kUser, true, handler, nullptr, errors, true, true};
}
// POST, and the answer is vectors or scores.
constexpr Route pooling_route(std::string_view path, TextHandler handler,
                              ErrorShape errors = ErrorShape::kOpenAi) {
  return Route{path, "POST", Access::kUser, true, handler, nullptr, errors, false, true};
}
constexpr Route plain_route(std::string_view path, std::string_view methods, Access access,
                            PlainHandler handler) {
  return Route{path, methods, access, false, nullptr, handler};
}

constexpr Route anthropic_route(std::string_view path, TextHandler handler) {
  return Route{path, "POST", Access::kUser, true, handler, nullptr, ErrorShape::kAnthropic};
}

constexpr Route ollama_route(std::string_view path, TextHandler handler) {
  return Route{path, "POST", Access::kUser, true, handler, nullptr, ErrorShape::kOllama};
}
constexpr Route ollama_route(std::string_view path, PlainHandler handler) {
  return Route{path, "GET", Access::kUser, false, nullptr, handler, ErrorShape::kOllama};
}

constexpr Route kRoutes[] = {
    generate_route("/v1/chat/completions", handle_chat_completions),
    generate_route("/v1/completions", handle_completions),
    generate_route("/v1/responses", handle_responses),
    Route{"/v1/responses/*", "GET DELETE POST", Access::kUser, false, handle_stored_response,
          nullptr},
    generate_route("/v1/messages", handle_messages, ErrorShape::kAnthropic),
    anthropic_route("/v1/messages/count_tokens", handle_count_tokens),
    generate_route("/api/chat", handle_ollama_chat, ErrorShape::kOllama),
    generate_route("/api/generate", handle_ollama_generate, ErrorShape::kOllama),
    pooling_route("/api/embed", handle_ollama_embed, ErrorShape::kOllama),
    pooling_route("/api/embeddings", handle_ollama_embeddings, ErrorShape::kOllama),
    ollama_route("/api/show", handle_ollama_show),
    ollama_route("/api/tags", handle_ollama_tags),
    ollama_route("/api/ps", handle_ollama_ps),
    ollama_route("/api/version", handle_ollama_version),
    pooling_route("/v1/embeddings", handle_embeddings),
    pooling_route("/pooling", handle_pooling),
    pooling_route("/v1/rerank", handle_rerank),
    pooling_route("/v2/rerank", handle_rerank),
    pooling_route("/rerank", handle_rerank),
    pooling_route("/v1/score", handle_score),
    pooling_route("/score", handle_score),
    pooling_route("/classify", handle_classify),
    pooling_route("/v1/classify", handle_classify),
    plain_route("/v1/models", "GET", Access::kUser, handle_models),
    plain_route("/v1/models/*", "GET", Access::kUser, handle_model),
    text_route("/tokenize", Access::kUser, handle_tokenize),
    text_route("/v1/tokenize", Access::kUser, handle_tokenize),
    text_route("/detokenize", Access::kUser, handle_detokenize),
    text_route("/v1/detokenize", Access::kUser, handle_detokenize),
    generate_route("/generate", handle_generate),
    text_route("/abort_request", Access::kUser,
               handle_abort_request),  // `abort_all` asks for the admin key
    Route{"/health_generate", "GET", Access::kUser, false, handle_health_generate, nullptr},
    plain_route("/get_model_info", "GET", Access::kUser, handle_model_info),
    plain_route("/model_info", "GET", Access::kUser, handle_model_info),
    plain_route("/get_server_info", "GET", Access::kUser, handle_server_info),
    plain_route("/server_info", "GET", Access::kUser, handle_server_info),
    plain_route("/tokenizer_info", "GET", Access::kUser, handle_tokenizer_info),
    plain_route("/openapi.json", "GET", Access::kUser, handle_openapi),
    plain_route("/version", "GET", Access::kUser, handle_version),
    plain_route("/flush_cache", "GET POST", Access::kAdmin, handle_flush_cache),
    plain_route("/metrics", "GET", Access::kMetrics, handle_metrics),
    plain_route("/", "GET", Access::kOpen, handle_page),
    Route{"/page/chats", "GET", Access::kUser, false, handle_chats, nullptr},
    Route{"/page/chats/*", "GET PUT DELETE", Access::kUser, false, handle_chat, nullptr},
    Route{"/page/cache", "POST", Access::kUser, true, handle_cache_explainer, nullptr,
          ErrorShape::kOpenAi, false, true},
    plain_route("/page/*", "GET", Access::kOpen, handle_page),
    plain_route("/health", "GET", Access::kOpen, handle_health),
    plain_route("/ping", "GET POST", Access::kOpen, handle_health),
    plain_route("/ready", "GET", Access::kOpen, handle_ready),
};

// Routes of these protocols that are not there, and what is said of each.
struct AbsentRoute {
  std::string_view path;  // and all below it
  std::string_view why;
};
constexpr std::string_view kOneModel =
    "a server has the model that it was started with; `sluice pull` and `sluice serve` get another";
constexpr AbsentRoute kAbsentRoutes[] = {
    {"/api/pull", kOneModel},
    {"/api/push", kOneModel},
    {"/api/create", kOneModel},
    {"/api/copy", kOneModel},
    {"/api/delete", kOneModel},
    {"/api/blobs", kOneModel},
    {"/v1/messages/batches", "requests come one by one; send each to /v1/messages"},
    {"/v1/batches", "requests come one by one"},
    {"/v1/files", "the server keeps no files"},
    {"/v1/moderations", "answers are not judged here"},
    {"/v1/images", "this server reads and writes text only"},
    {"/v1/audio", "this server reads and writes text only"},
    {"/v1/conversations", "responses are joined by `previous_response_id`"},
    {"/v1/assistants", "use /v1/chat/completions"},
    {"/v1/threads", "use /v1/chat/completions"},
};

Fault no_route(std::string_view path) {
  std::string message = fmt::format("There is no route {}", shown_text(path, 96));
  for (const AbsentRoute& absent : kAbsentRoutes)
    if (path.starts_with(absent.path) &&
        (path.size() == absent.path.size() || path[absent.path.size()] == '/')) {
      message += fmt::format(": {}", absent.why);
      break;
    }
  return Fault{404, "not_found", "", message + "."};
}

bool takes_rest(const Route& route) {
  return route.path.ends_with('*');
}

bool matches(const Route& route, std::string_view path) {
  if (!takes_rest(route)) return path == route.path;
  const std::string_view prefix = route.path.substr(0, route.path.size() - 1);
  return path.size() > prefix.size() && path.starts_with(prefix);
}

// The row that takes `path`; kNoRoute for none. A doubled slash, or one at the end, is forgiven:
// then `path` becomes the one without. A rest is taken as it is first, since it may begin with a
// slash.
std::size_t find_route(std::string& path) {
  const std::string plain = without_extra_slashes(path);
  for (const bool rest : {false, true})
    for (const bool tidy : {false, true})
      for (std::size_t i = 0; i < std::size(kRoutes); ++i)
        if (takes_rest(kRoutes[i]) == rest && matches(kRoutes[i], tidy ? plain : path)) {
          if (tidy) path = plain;
          return i;
        }
  return kNoRoute;
}

// The methods of a path of the row: below /v1/responses/ they differ.
std::string_view methods_of(const Route& route, std::string_view path) {
  return route.text == handle_stored_response ? stored_response_methods(path) : route.methods;
}

std::string allowed_methods(std::string_view methods) {
  std::string allow(methods);
  if (allow.starts_with("GET")) allow.insert(3, " HEAD");
  allow += " OPTIONS";
  for (std::size_t at = allow.find(' '); at != std::string::npos; at = allow.find(' ', at + 2))
    allow.replace(at, 1, ", ");
  return allow;
}

bool allows(std::string_view methods, std::string_view method) {
  if (method == "HEAD") method = "GET";
  std::string_view rest = methods;
  while (!rest.empty()) {
    const std::size_t space = std::min(rest.find(' '), rest.size());
    if (rest.substr(0, space) == method) return true;
    rest.remove_prefix(std::min(rest.size(), space + 1));
  }
  return false;
}

// `application/json`, with or without parameters.
bool is_json_type(std::string_view value) {
  const std::string_view type = value.substr(0, value.find(';'));
  constexpr std::string_view kJson = "application/json";
  std::size_t i = 0, last = type.find_last_not_of(" \t") + 1;
  if (last != kJson.size()) return false;
  for (; i < last; ++i)
    if ((type[i] | 0x20) != (kJson[i] | 0x20)) return false;
  return true;
}

// Of a path without a route: the protocol that it belongs to.
ErrorShape shape_of(std::string_view path) {
  if (path.starts_with("/v1/messages")) return ErrorShape::kAnthropic;
  if (path.starts_with("/api/")) return ErrorShape::kOllama;
  return ErrorShape::kOpenAi;
}

bool is_identity(std::string_view coding) {
  constexpr std::string_view kIdentity = "identity";
  return coding.empty() ||
         std::ranges::equal(coding, kIdentity, [](char a, char b) { return (a | 0x20) == b; });
}

}  // namespace

std::span<const Route> route_table() {
  return kRoutes;
}

std::optional<HttpReply> Router::admit(HttpRequest& head, bool has_body) {
  head.route = find_route(head.path);
  const Route* const route = head.route == kNoRoute ? nullptr : &kRoutes[head.route];
  // A browser asks without a key.
  if (CorsPolicy::is_preflight(head)) return state_.cors.preflight(head);
  if (head.method == "OPTIONS" && (route || head.path == "*")) {
    HttpReply reply;
    reply.status = 204;
    reply.headers.emplace_back("Allow", route ? allowed_methods(methods_of(*route, head.path))
                                              : "GET, HEAD, POST, PUT, DELETE, OPTIONS");
    return reply;
  }
  const auto refuse = [&](const Fault& fault) {
    return error_reply(fault, route ? route->errors : shape_of(head.path), head.request_id);
  };
  if (!route) return refuse(no_route(head.path));
  // Whoever may not call a route is not told how it is called.
  if (const std::optional<Fault> fault = state_.keys.authorize(route->access, head))
    return refuse(*fault);
  const std::string_view methods = methods_of(*route, head.path);
  if (!allows(methods, head.method)) {
    HttpReply reply = refuse(
        Fault{405, "method_not_allowed", "", fmt::format("{} takes {}.", route->path, methods)});
    reply.headers.emplace_back("Allow", allowed_methods(methods));
    return reply;
  }
  if (const std::string* coding = head.header("content-encoding"); coding && !is_identity(*coding))
    return refuse(Fault{415, "unsupported_encoding", "",
                        fmt::format("A body with Content-Encoding {} is not read; send it "
                                    "uncompressed, without that header.",
                                    shown_text(*coding))});
  const bool puts = head.method == "PUT";
  if (route->needs_body || puts) {
    if (!has_body && !head.header("content-length") && !head.header("transfer-encoding"))
      return refuse(
          Fault{411, "length_required", "", "Send the body with Content-Length or chunked."});
    // A page of another origin can send other types without asking first. Ollama's own examples
    // send none, and no page has no Origin.
    const std::string* type = head.header("content-type");
    const bool any_type = route->errors == ErrorShape::kOllama && !head.header("origin");
    if (!any_type && (!type || !is_json_type(*type)))
      return refuse(Fault{415, "unsupported_media_type", "",
                          "Send the body as `Content-Type: application/json`."});
  }
  if (route->is_work && head.use && head.use->account)
    if (const auto refusal = head.use->account->enter(head.use->place)) {
      HttpReply reply = refuse(refusal->fault);
      for (auto& [name, value] : reply.headers)
        if (name == "Retry-After") value = std::to_string(refusal->retry_after_s);
      return reply;
    }
  return std::nullopt;
}

void Router::handle(HttpRequest&& request, std::shared_ptr<Responder> responder) {
  const Route& route = kRoutes[request.route];
  if (route.plain) {
    try {
      responder->send(route.plain(state_, request));
    } catch (const std::exception& e) {
      responder->send(internal_error_reply(request.request_id, e.what(), route.errors));
    }
    return;
  }
  const ServedModel* const model = state_.model();
  if (route.generates && model && !model->generates) {
    responder->send(error_reply(
        Fault{
            400, "unsupported_task", "",
            "This server answers with vectors and scores, not with text: its model is an encoder, "
            "or it was started with --runner pooling."},
        route.errors, request.request_id));
    return;
  }
  request.why_unwanted = [this, responder]() -> std::optional<Fault> {
    if (!responder->alive()) return Fault{499, "aborted", "", "The client has left."};
    if (state_.phase() == ServerPhase::kDraining) return state_.serving().fault();
    return std::nullopt;
  };
  auto shared = std::make_shared<HttpRequest>(std::move(request));
  const bool taken = state_.text_pool.submit([this, shared, responder, &route] {
    if (!responder->alive()) return;
    TraceSpan span(state_.trace.get(), TraceLane::kText, route.path);
    if (state_.trace) span.set_args(dump_json(Json{{"request", shared->request_id}}));
    try {
      const std::optional<Fault> fault = route.text(state_, *shared, responder);
      if (fault && responder->alive())
        responder->send(error_reply(*fault, route.errors, shared->request_id));
    } catch (const std::exception& e) {
      responder->send(internal_error_reply(shared->request_id, e.what(), route.errors));
    }
  });
  if (!taken)
    responder->send(
        error_reply(Fault{429, "overloaded", "",
                          "Too many requests wait to be read. Send this one again later."},
                    route.errors, shared->request_id));
}

HttpReply Router::protocol_error(int status, std::string_view code, std::string_view message) {
  return error_reply(Fault{status, std::string(code), "", std::string(message)});
}

void Router::ended(const RequestOutcome& outcome) {
  const std::string_view path =
      outcome.route < std::size(kRoutes) ? kRoutes[outcome.route].path : "other";
  state_.metrics.http_request(path, outcome.method, outcome.status, outcome.seconds);
  // Scrapes and probes come every few seconds: of GET only refusals are told.
  const bool is_told = outcome.status >= 400 || outcome.method == "POST";
  if (!log_enabled(is_told ? LogLevel::kInfo : LogLevel::kDebug)) return;
  const RequestUse* use = outcome.use;
  const std::int64_t prompt = use ? use->prompt_tokens.load() : 0;
  std::string line = fmt::format("{} {} {}, {:.1f} ms", outcome.method, path, outcome.status,
                                 1e3 * outcome.seconds);
  Json fields{{"method", outcome.method},
              {"route", path},
              {"status", outcome.status},
              {"duration_ms", std::round(1e4 * outcome.seconds) / 10},
              {"request_id", outcome.request_id}};
  if (prompt > 0) {
    const std::int64_t generated = use->completion_tokens, cached = use->cached_tokens;
    line += fmt::format(", {} + {} tokens", prompt, generated);
    fields["prompt_tokens"] = prompt;
    fields["cached_tokens"] = cached;
    fields["completion_tokens"] = generated;
  }
  if (use && !use->key_name.empty()) {
    line += fmt::format(", key {}", use->key_name);
    fields["key"] = use->key_name;
  }
  line += fmt::format(", request {}", outcome.request_id);
  log_record(is_told ? LogLevel::kInfo : LogLevel::kDebug, line, fields);
}

}  // namespace sluice
