#include "server/core/errors.h"

#include "base/json.h"
#include "base/log.h"
#include "server/http/request_id.h"

namespace sluice {
namespace {

// Every code that a client may see.
constexpr std::string_view kCodes[] = {
    "invalid_json",
    "json_too_deep",
    "json_too_large",
    "duplicate_key",  // bodies
    "invalid_value",
    "invalid_type",
    "missing_required_parameter",
    "unsupported_parameter",  // fields
    "context_length_exceeded",
    "token_id_out_of_range",
    "invalid_token_id",
    "empty_prompt",
    "too_many_prompts",  // prompts
    "invalid_messages",
    "invalid_tools",
    "no_chat_template",
    "reserved_template_kwarg",  // chat
    "chat_template_refused",
    "chat_template_budget",
    "chat_template_error",
    "continue_final_message",
    "invalid_json_schema",
    "unsupported_json_schema",
    "unsatisfiable_json_schema",
    "json_schema_too_large",
    "invalid_regex",
    "unsupported_regex",
    "invalid_grammar",
    "unsupported_grammar",
    "undefined_rule",
    "empty_language",
    "unsatisfiable_grammar",
    "invalid_structural_tag",
    "unsupported_structural_tag",
    "unsupported_tool_schema",
    "grammar_too_large",
    "no_end_token",
    "no_captures",
    "unsupported_captures",
    "captures_too_long",
    "not_of_the_grammar",
    "grammar_budget_exceeded",
    "grammar_dead_end",
    "grammar_is_over",
    "grammar_mismatch",  // constrained output
    "invalid_api_key",
    "missing_api_key",
    "admin_only",
    "rate_limit_exceeded",  // access
    "model_not_found",
    "not_found",
    "method_not_allowed",
    "origin_not_allowed",
    "response_not_found",
    "chat_not_found",
    "store_full",
    "store_unavailable",
    "unsupported_task",
    "not_deterministic",
    "request_not_found",  // routes
    "bad_request",
    "https_required",
    "uri_too_long",
    "headers_too_large",
    "too_many_headers",
    "body_too_large",  // protocol
    "request_timeout",
    "length_required",
    "unsupported_media_type",
    "unsupported_encoding",
    "expectation_failed",
    "queue_full",
    "overloaded",
    "loading",
    "draining",
    "engine_failed",
    "rank_lost",
    "engine_stalled",  // load
    "aborted",
    "shutting_down",
    "timeout",
    "numerics_error",
    "kv_exhausted",
    "busy",
    "internal_error",  // run time
};

constexpr std::string_view kInternalMessage =
    "The server failed at this request. Its log has the cause.";

int retry_after_s(int status) {
  return (status == 429 ? 1 : 2) + static_cast<int>(random_u64() % 3);
}

// The words of Anthropic's API, where they are not OpenAI's.
std::string_view anthropic_error_type(int status) {
  if (status == 413) return "request_too_large";
  if (status == 500) return "api_error";
  if (status == 503) return "overloaded_error";
  return error_type(status);
}

}  // namespace

std::string_view error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 408:
    case 504:
      return "timeout_error";
    case 429:
      return "rate_limit_error";
    case 500:
      return "server_error";
    case 503:
      return "service_unavailable";
    default:
      return "invalid_request_error";
  }
}

bool known_error_code(std::string_view code) {
  for (const std::string_view known : kCodes)
    if (known == code) return true;
  return false;
}

std::string error_json(const Fault& fault, ErrorShape shape, std::string_view request_id) {
  const bool known = known_error_code(fault.code);
  if (!known) log_error("error code `{}` is not in the catalogue", fault.code);
  const std::string message = known ? fault.message : std::string(kInternalMessage);
  if (shape == ErrorShape::kOllama) return dump_json(Json{{"error", message}});
  Json error;
  if (shape == ErrorShape::kAnthropic) {
    error["type"] = anthropic_error_type(fault.status);
    error["message"] = message;
    return dump_json(
        Json{{"type", "error"}, {"error", std::move(error)}, {"request_id", request_id}});
  }
  error["message"] = message;
  error["type"] = error_type(fault.status);
  error["param"] = fault.param.empty() ? Json(nullptr) : Json(fault.param);
  error["code"] = known ? fault.code : "internal_error";
  return dump_json(Json{{"error", std::move(error)}});
}

HttpReply error_reply(const Fault& fault, ErrorShape shape, std::string_view request_id) {
  HttpReply reply;
  reply.status = fault.status;
  reply.body = error_json(fault, shape, request_id);
  if (fault.status == 429 || fault.status == 503)
    reply.headers.emplace_back("Retry-After", std::to_string(retry_after_s(fault.status)));
  if (fault.status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

HttpReply internal_error_reply(std::string_view request_id, std::string_view exception_text,
                               ErrorShape shape) {
  log_error("request {}: {}", request_id, exception_text);
  return error_reply(Fault{500, "internal_error", "", std::string(kInternalMessage)}, shape,
                     request_id);
}

Fault invalid_value(std::string param, std::string message) {
  return Fault{400, "invalid_value", std::move(param), std::move(message)};
}

Fault wrong_type(std::string param, std::string_view expected, std::string_view seen) {
  std::string message = fmt::format("`{}` must be {}, not {}.", param, expected, seen);
  return Fault{400, "invalid_type", std::move(param), std::move(message)};
}

Fault missing_field(std::string param) {
  std::string message = fmt::format("`{}` is required.", param);
  return Fault{400, "missing_required_parameter", std::move(param), std::move(message)};
}

Fault unsupported(std::string param, std::string_view why) {
  std::string message = fmt::format("`{}` is not supported: {} Leave it out.", param, why);
  return Fault{400, "unsupported_parameter", std::move(param), std::move(message)};
}

std::string shown_text(std::string_view text, std::size_t max_bytes) {
  std::size_t end = std::min(text.size(), max_bytes);
  while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
    --end;
  std::string out = "`";
  for (const char c : text.substr(0, end))
    out += static_cast<unsigned char>(c) < 0x20 || c == '`' ? '?' : c;
  out += end < text.size() ? "...`" : "`";
  return out;
}

}  // namespace sluice
