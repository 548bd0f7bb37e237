// The prompts of a load test.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cli/bench/bench_backend.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice {

struct DatasetSettings {
  std::string name = "random";  // random, random-ids, sharegpt, generated-shared-prefix
  std::string path;             // of sharegpt
  int num_prompts = 1000;
  int input_len = 1024, output_len = 1024;
  double range_ratio = 0;  // the least length as a share of the most
  std::optional<int> sharegpt_output_len, sharegpt_context_len;
  int num_groups = 64, prompts_per_group = 16, system_prompt_len = 2048, question_len = 128,
      group_output_len = 256;
  std::uint64_t seed = 1;
};

// `tokenizer` may be null for random prompts that go out as ids. Texts are made so that they have
// the wanted number of tokens; where that fails by a few, prompt_len says how many there are.
// Error{kBadInput} for a bad file.
std::vector<LoadPrompt> make_dataset(const DatasetSettings& settings, const Tokenizer* tokenizer);

// Error{kBadInput} where so many prompts of so many tokens, with the requests that are made of
// them, take more than the free memory.
void require_room_for_prompts(std::int64_t num_prompts, std::int64_t tokens_each);

// A length from [low, most], where low is `most` times `range_ratio` but at least 1.
int random_length(std::mt19937_64& gen, int most, double range_ratio);

// Seconds to wait before each request after the first: gaps of a Gamma distribution with this rate;
// 0 for an infinite one.
std::vector<double> arrival_gaps(std::size_t num_requests, double rate, double burstiness,
                                 std::uint64_t seed);

}  // namespace sluice
