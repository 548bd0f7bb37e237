#include "cli/bench/synthetic.h"

#include <algorithm>
#include <random>

#include "base/log.h"

namespace sluice {

Request random_request(int vocab_size, int length, int output, std::uint64_t seed) {
  std::mt19937_64 gen(seed);
  std::uniform_int_distribution<std::int32_t> token(0, vocab_size - 1);
  Request request;
  request.prompt_ids.resize(static_cast<std::size_t>(length));
  for (std::int32_t& id : request.prompt_ids) id = token(gen);
  request.params.temperature = 0;
  request.max_new_tokens = output;
  request.ignore_eos = true;
  request.cache_namespace = seed;
  request.params.seed = seed;  // pretended drafts are drawn from it
  return request;
}

void fit_options(Options& options, int batch, std::int64_t tokens_each, bool log_level_given) {
  if (!log_level_given) set_log_level(LogLevel::kWarning);
  if (options.max_running_requests == 0) options.max_running_requests = batch;
  // A last page is rarely full.
  if (options.max_total_tokens == 0)
    options.max_total_tokens = std::max(batch * (tokens_each + 128) * 2, options.context_length);
}

}  // namespace sluice
