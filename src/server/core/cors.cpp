#include "server/core/cors.h"

#include <algorithm>

#include "server/core/errors.h"

namespace sluice {
namespace {

// What scripts of an allowed page may read besides the headers that they always may.
constexpr const char* kExposed = "X-Request-Id, Retry-After, X-Ignored-Fields";
constexpr const char* kMaxAge = "600";

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  return out;
}

// scheme://host[:port] of a page that this machine serves: browsers send no other name to it.
bool is_local(std::string_view origin) {
  const std::size_t colon = origin.find("://");
  if (colon == std::string_view::npos || colon == 0) return false;
  std::string_view host = origin.substr(colon + 3);
  if (host.starts_with('[')) {
    host = host.substr(0, std::min(host.find(']'), host.size() - 1) + 1);
    return host == "[::1]";
  }
  host = host.substr(0, host.find(':'));
  return host == "localhost" || host.ends_with(".localhost") || host == "127.0.0.1" ||
         host == "0.0.0.0";
}

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

bool lists(const std::vector<std::string>& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

}  // namespace

CorsPolicy::CorsPolicy(const Options& options) : credentials_(options.allow_credentials) {
  for (const std::string& origin : options.allowed_origins) {
    if (origin == "*")
      any_ = true;
    else if (origin == "localhost")
      localhost_ = true;
    else
      origins_.push_back(lower(origin));
  }
  methods_ = lists(options.allowed_methods, "*") ? "GET, HEAD, POST, PUT, DELETE, OPTIONS"
                                                 : joined(options.allowed_methods);
  if (!lists(options.allowed_headers, "*")) headers_ = joined(options.allowed_headers);
}

bool CorsPolicy::allows(std::string_view origin) const {
  if (any_) return true;
  const std::string name = lower(origin);
  return lists(origins_, name) || (localhost_ && is_local(name));
}

HeaderList CorsPolicy::reply_headers(const HttpRequest& head) const {
  HeaderList headers;
  const std::string* origin = head.header("origin");
  const bool same_for_all = any_ && !credentials_;
  // Caches must keep the answers to several origins apart.
  if (!same_for_all && (any_ || localhost_ || !origins_.empty()))
    headers.emplace_back("Vary", "Origin");
  if (!origin || !allows(*origin)) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", same_for_all ? "*" : *origin);
  headers.emplace_back("Access-Control-Expose-Headers", kExposed);
  if (credentials_) headers.emplace_back("Access-Control-Allow-Credentials", "true");
  return headers;
}

bool CorsPolicy::is_preflight(const HttpRequest& head) {
  return head.method == "OPTIONS" && head.header("origin") &&
         head.header("access-control-request-method");
}

HttpReply CorsPolicy::preflight(const HttpRequest& head) const {
  const std::string& origin = *head.header("origin");
  if (!allows(origin))
    return error_reply(Fault{403, "origin_not_allowed", "",
                             fmt::format("Pages of the origin {} may not use this server from a "
                                         "browser; start it with --allowed-origins to let them.",
                                         shown_text(origin, 96))});
  HttpReply reply;
  reply.status = 204;
  reply.headers.emplace_back("Access-Control-Allow-Methods", methods_);
  const std::string* asked = head.header("access-control-request-headers");
  if (!headers_.empty())
    reply.headers.emplace_back("Access-Control-Allow-Headers", headers_);
  else if (asked && !asked->empty())
    reply.headers.emplace_back("Access-Control-Allow-Headers", *asked);
  reply.headers.emplace_back("Access-Control-Max-Age", kMaxAge);
  return reply;
}

}  // namespace sluice
