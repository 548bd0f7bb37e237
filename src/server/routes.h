// The one table of routes: path, method, access class, handler. A request is routed first, then its
// route's access class decides (R17); what is not in the table does not exist.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "server/access/access.h"
#include "server/api/handlers.h"
#include "server/core/errors.h"
#include "server/core/server_state.h"
#include "server/http/http.h"

namespace sluice {

struct Route {
  std::string_view path;     // one that ends in `*` takes any non-empty rest
  std::string_view methods;  // space-separated; GET answers HEAD, too
  Access access;
  bool needs_body;   // 411 without a length, 415 without JSON
  TextHandler text;  // one of the two is set
  PlainHandler plain;
  ErrorShape errors = ErrorShape::kOpenAi;
  bool generates = false;  // needs a model that generates text
  bool is_work = false;    // counts against the limits of its key
};

std::span<const Route> route_table();

// Routes, authorises and runs requests; the protocol-independent face of the server.
class Router : public HttpHandler {
 public:
  explicit Router(ServerState& state) : state_(state) {}

  std::optional<HttpReply> admit(HttpRequest& head, bool has_body) override;
  HeaderList reply_headers(const HttpRequest& head) override {
    return state_.cors.reply_headers(head);
  }
  void handle(HttpRequest&& request, std::shared_ptr<Responder> responder) override;
  HttpReply protocol_error(int status, std::string_view code, std::string_view message) override;
  void ended(const RequestOutcome& outcome) override;

 private:
  ServerState& state_;
};

}  // namespace sluice
