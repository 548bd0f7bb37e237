#include "cost/mix.h"

#include <fmt/ranges.h>

#include <utility>

namespace sluice {
namespace {

std::vector<int> divisors(int number) {
  std::vector<int> out;
  for (int n = 1; n <= number; ++n)
    if (number % n == 0) out.push_back(n);
  return out;
}

}  // namespace

std::string describe(const Mix& mix) {
  std::vector<std::string> words;
  for (const auto& [name, value] :
       {std::pair{"tp", mix.tp}, {"pp", mix.pp}, {"ep", mix.ep}, {"dp", mix.dp}})
    if (value > 1) words.push_back(fmt::format("{} {}", name, value));
  const std::string shared = fmt::format("{}", fmt::join(words, ", "));
  if (mix.replicas == 1) return shared.empty() ? "1 GPU" : shared;
  return fmt::format("{} servers of {}", mix.replicas, shared.empty() ? "1 GPU" : shared);
}

std::vector<Mix> all_mixes(const ModelConfig& config, int num_gpus) {
  std::vector<Mix> out;
  for (const int tp : divisors(num_gpus))
    for (const int pp : divisors(num_gpus / tp))
      for (const int ep : divisors(config.moe ? tp : 1))
        for (const int dp : divisors(tp))
          out.push_back({.tp = tp, .pp = pp, .ep = ep, .dp = dp, .replicas = num_gpus / tp / pp});
  return out;
}

}  // namespace sluice
