// Cross-origin requests: which pages of a browser may read this server's answers (Fetch standard).
//
// By default pages of this machine may: their origin's host is `localhost`, a name below it, or a
// loopback address. Whoever may not is answered all the same, without the headers that let a
// browser show the answer. Immutable; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/options.h"
#include "server/http/http.h"

namespace sluice {

class CorsPolicy {
 public:
  explicit CorsPolicy(const Options& options);

  bool allows(std::string_view origin) const;
  // The headers of every answer to this request; none where it has no `Origin`.
  HeaderList reply_headers(const HttpRequest& head) const;
  // Whether the request asks for leave before another one.
  static bool is_preflight(const HttpRequest& head);
  // The answer to such a request, beside reply_headers().
  HttpReply preflight(const HttpRequest& head) const;

 private:
  bool any_ = false;        // every origin
  bool localhost_ = false;  // those of this machine
  std::vector<std::string> origins_;
  std::string methods_;
  std::string headers_;  // empty: those that are asked for
  bool credentials_ = false;
};

}  // namespace sluice
