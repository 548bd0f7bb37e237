// The load of `bench serve`: sends prompts at their times, at most so many at once, on one thread.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "cli/bench/bench_backend.h"
#include "cli/bench/http_client.h"

namespace sluice {

struct LoadPlan {
  LoadProtocol protocol = LoadProtocol::kGenerate;
  LoadStyle style;
  std::vector<std::pair<std::string, std::string>> headers;
  std::vector<double> gaps_s;  // beside the prompts: since the one before
  std::optional<int> max_concurrency;
  double timeout_s = 6 * 3600;
};

struct LoadResult {
  std::vector<RequestRecord> records;  // beside the prompts
  double duration_s = 0;               // from the first request to the last answer
};

// Sends all prompts and waits for all answers. `progress` is told how many have ended.
LoadResult run_load(boost::asio::io_context& context, HttpClient& client,
                    const std::vector<LoadPrompt>& prompts, const LoadPlan& plan,
                    const std::function<void(std::size_t)>& progress);

}  // namespace sluice
