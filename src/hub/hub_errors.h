// Why the hub did not give what was asked, in words that say what to do. Tokens, queries of URLs
// and bodies of answers never appear in them.
#pragma once

#include <string>
#include <string_view>

#include "hub/http_message.h"
#include "hub/hub_environment.h"
#include "hub/transfer.h"

namespace sluice {

// What was asked for.
struct HubQuestion {
  std::string repo_id;
  std::string revision;  // as the user gave it
  std::string path;      // of a file; empty: the repository itself
};

// An answer that is no success.
std::string explain_status(const HttpHead& head, const HubQuestion& question,
                           const HubSettings& settings);
// No answer from `host`.
std::string explain_transfer(TransferError error, std::string_view detail, std::string_view host,
                             const HubSettings& settings);

// Whether the same question may be answered a little later: 408, 425, 429, 500, 502, 503, 504.
bool is_passing(int status);
// How often a failure without an answer is worth another try.
int tries_after(TransferError error);

// How long to wait between tries of one thing, and how often.
class Patience {
 public:
  static constexpr int kTries = 4;
  static constexpr std::chrono::seconds kLongest{120};  // that a hub may ask for

  // Something was achieved: count anew.
  void reset() { num_waits_ = 0; }
  // The next wait: what the hub asked for, else 0.5 s, 1 s, 2 s, 4 s, each up to a quarter longer
  // by chance. Nothing when `tries` are used up or the hub asks for more than kLongest.
  std::optional<std::chrono::milliseconds> next(int tries,
                                                std::optional<std::chrono::seconds> asked);
  int num_waits() const { return num_waits_; }

 private:
  int num_waits_ = 0;
};

}  // namespace sluice
