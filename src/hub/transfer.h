// HTTP requests over libcurl, one at a time. The library is opened at run time, because only a
// download needs it: linking it would add five milliseconds and thirty libraries to every start of
// the program.
//
//   TransferSession session(open_curl_library(), settings, nullptr);
//   TransferOutcome outcome = session.perform({.url = url}, {});
//
// Redirects are not followed: the caller decides, because the token must not go to their targets.
// Only http and https.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hub/http_message.h"
#include "hub/hub_environment.h"

namespace sluice {

struct CurlLibrary;  // its functions
// Error{kBadInput} if the library is missing, saying what to install.
std::shared_ptr<const CurlLibrary> open_curl_library();

struct TransferRequest {
  std::string url;
  bool head = false;                     // HEAD, else GET or POST
  std::optional<std::string_view> post;  // POST with that body, which outlives the request
  std::vector<std::string> headers;      // "Name: value"
  std::string token;                     // Authorization: Bearer; empty: none
  std::optional<std::pair<std::uint64_t, std::uint64_t>> range;  // first and last byte
  std::chrono::seconds connect_timeout{10};
  // less than a kilobyte a second for this time ends the request
  std::chrono::seconds idle_timeout{10};
  std::chrono::seconds total_timeout{0};  // 0: none
  std::uint64_t max_body_bytes = 0;       // more is kTooLarge; 0: no limit
};

// The receiver of a request. Both functions may return false, which ends the request with kStopped.
// Their exceptions leave perform().
struct TransferEvents {
  std::function<bool(const HttpHead& head)> on_head;  // when the headers are complete, once
  // if empty, the body is collected
  std::function<bool(std::span<const std::byte> bytes)> on_body;
};

enum class TransferError {
  kNone,
  kName,
  kConnect,
  kTls,
  kTimeout,
  kBroken,
  kTooLarge,
  kStopped,
  kOther
};

struct TransferOutcome {
  TransferError error = TransferError::kNone;
  std::string detail;  // libcurl's words, without the URL
  HttpHead head;
  std::string body;
};

// One thread at a time; keeps its connection. `stop` ends a running request (kStopped) and outlives
// the session.
class TransferSession {
 public:
  TransferSession(std::shared_ptr<const CurlLibrary> library, const HubSettings& settings,
                  const std::atomic<bool>* stop);
  ~TransferSession();
  TransferSession(const TransferSession&) = delete;
  TransferSession& operator=(const TransferSession&) = delete;

  TransferOutcome perform(const TransferRequest& request, const TransferEvents& events);

 private:
  std::shared_ptr<const CurlLibrary> library_;
  std::string http_proxy_, certificates_;
  const std::atomic<bool>* stop_;
  void* handle_;
};

}  // namespace sluice
