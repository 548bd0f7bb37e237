// Explanations of the hub's failures, in words that say what to do. They never contain tokens,
// queries of URLs or bodies of answers.
#pragma once

#include <string>
#include <string_view>

#include "hub/http_message.h"
#include "hub/hub_environment.h"
#include "hub/transfer.h"

namespace sluice {

// The subject of a query.
struct HubQuestion {
  std::string repo_id;
  std::string revision;  // as the user gave it
  std::string path;      // path of a file; empty: the repository itself
};

// For an answer that is not a success.
std::string explain_status(const HttpHead& head, const HubQuestion& question,
                           const HubSettings& settings);
// For a request to `host` without an answer.
std::string explain_transfer(TransferError error, std::string_view detail, std::string_view host,
                             const HubSettings& settings);

// Whether a retry may succeed a little later: 408, 425, 429, 500, 502, 503, 504.
bool is_passing(int status);
// Number of retries after a failure without an answer.
int tries_after(TransferError error);

// The waits between retries, and their number.
class Patience {
 public:
  static constexpr int kTries = 4;
  static constexpr std::chrono::seconds kLongest{120};  // maximum wait that a hub may request

  // After progress: restarts the count.
  void reset() { num_waits_ = 0; }
  // The next wait: the hub's request, else 0.5 s, 1 s, 2 s, 4 s, each up to a quarter longer at
  // random. Nothing if `tries` are used up or the hub requests more than kLongest.
  std::optional<std::chrono::milliseconds> next(int tries,
                                                std::optional<std::chrono::seconds> asked);
  int num_waits() const { return num_waits_; }

 private:
  int num_waits_ = 0;
};

}  // namespace sluice
