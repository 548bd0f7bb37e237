#include "cli/bench/bench_dataset.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "cli/files.h"
#include "runtime/memory_plan.h"
#include "tensor/host_memory.h"

namespace sluice {
namespace {

// Ids that stand in for a vocabulary that is not known.
constexpr std::int32_t kFirstPlainId = 256, kLastPlainId = 999;

class RandomTokens {
 public:
  RandomTokens(const Tokenizer* tokenizer, std::uint64_t seed)
      : tokenizer_(tokenizer), gen_(seed) {}

  std::mt19937_64& gen() { return gen_; }

  std::int32_t next() {
    if (tokenizer_ == nullptr)
      return std::uniform_int_distribution(kFirstPlainId, kLastPlainId)(gen_);
    for (;;) {
      const std::int32_t id =
          std::uniform_int_distribution<std::int32_t>(0, tokenizer_->size() - 1)(gen_);
      if (tokenizer_->is_token(id) && !tokenizer_->is_special(id)) return id;
    }
  }

  std::vector<std::int32_t> ids(int count) {
    std::vector<std::int32_t> out(static_cast<std::size_t>(count));
    for (std::int32_t& id : out) id = next();
    return out;
  }

 private:
  const Tokenizer* tokenizer_;
  std::mt19937_64 gen_;
};

// Decoding random ids and encoding the text again rarely gives as many: cut, or add, until it does.
LoadPrompt from_ids(std::vector<std::int32_t> ids, int output_len, const Tokenizer* tokenizer,
                    RandomTokens& random) {
  LoadPrompt prompt;
  prompt.output_len = output_len;
  const std::size_t wanted = ids.size();
  if (tokenizer != nullptr) {
    for (int round = 0; round < 4; ++round) {
      prompt.text = tokenizer->decode(ids, false);
      ids = tokenizer->encode(prompt.text, {.add_special_tokens = false, .parse_special = true});
      if (ids.size() == wanted) break;
      while (ids.size() < wanted) ids.push_back(random.next());
      ids.resize(wanted);
    }
    prompt.text = tokenizer->decode(ids, false);
    ids = tokenizer->encode(prompt.text, {.add_special_tokens = false, .parse_special = true});
  }
  prompt.prompt_len = static_cast<int>(ids.size());
  prompt.ids = std::move(ids);
  return prompt;
}

std::vector<LoadPrompt> random_prompts(const DatasetSettings& s, const Tokenizer* tokenizer) {
  RandomTokens random(tokenizer, s.seed);
  std::vector<LoadPrompt> prompts;
  for (int i = 0; i < s.num_prompts; ++i) {
    const int input = random_length(random.gen(), s.input_len, s.range_ratio);
    const int output = random_length(random.gen(), s.output_len, s.range_ratio);
    prompts.push_back(from_ids(random.ids(input), output, tokenizer, random));
  }
  return prompts;
}

std::vector<LoadPrompt> shared_prefixes(const DatasetSettings& s, const Tokenizer& tokenizer) {
  RandomTokens random(&tokenizer, s.seed);
  std::vector<LoadPrompt> prompts;
  for (int group = 0; group < s.num_groups; ++group) {
    const LoadPrompt system = from_ids(random.ids(s.system_prompt_len), 1, &tokenizer, random);
    for (int i = 0; i < s.prompts_per_group; ++i) {
      LoadPrompt prompt =
          from_ids(random.ids(s.question_len), s.group_output_len, &tokenizer, random);
      prompt.text = system.text + "\n\n" + prompt.text;
      prompt.ids =
          tokenizer.encode(prompt.text, {.add_special_tokens = false, .parse_special = true});
      prompt.prompt_len = static_cast<int>(prompt.ids.size());
      prompts.push_back(std::move(prompt));
    }
  }
  std::ranges::shuffle(prompts, random.gen());
  return prompts;
}

// The text of turn `i` of a conversation, or nothing.
std::string turn(const Json& conversation, std::size_t i) {
  if (!conversation.is_array() || i >= conversation.size() || !conversation[i].is_object())
    return "";
  const auto value = conversation[i].find("value");
  return value != conversation[i].end() && value->is_string() ? value->get<std::string>() : "";
}

// Conversations of at least two turns: the first is the prompt, the second tells how long an answer
// is. Shorter than 4 tokens, or longer than 1024 (2048 with the answer), is left out, as ShareGPT
// is commonly read.
std::vector<LoadPrompt> sharegpt(const DatasetSettings& s, const Tokenizer& tokenizer) {
  constexpr JsonLimits kLimits{.max_depth = 64, .max_elements = 100'000'000};
  const Json file = parse_json_or_throw(read_text_file(s.path), s.path, kLimits);
  require(file.is_array(), "{} is no list of conversations", s.path);
  std::vector<Json> conversations;
  for (const Json& entry : file) {
    if (!entry.is_object()) continue;
    const auto found = entry.find("conversations");
    const auto other = entry.find("conversation");
    const Json& turns = found != entry.end() ? *found : other != entry.end() ? *other : entry;
    if (!turn(turns, 0).empty() && !turn(turns, 1).empty()) conversations.push_back(turns);
  }
  std::mt19937_64 gen(s.seed);
  std::ranges::shuffle(conversations, gen);
  std::vector<LoadPrompt> prompts;
  for (const Json& conversation : conversations) {
    if (prompts.size() >= static_cast<std::size_t>(s.num_prompts)) break;
    LoadPrompt prompt;
    prompt.text = turn(conversation, 0);
    prompt.ids =
        tokenizer.encode(prompt.text, {.add_special_tokens = false, .parse_special = false});
    prompt.prompt_len = static_cast<int>(prompt.ids.size());
    prompt.output_len = s.sharegpt_output_len.value_or(static_cast<int>(
        tokenizer
            .encode(turn(conversation, 1), {.add_special_tokens = false, .parse_special = false})
            .size()));
    const int whole = prompt.prompt_len + prompt.output_len;
    if (prompt.prompt_len < 2 || prompt.output_len < 2) continue;
    if (s.sharegpt_context_len ? whole > *s.sharegpt_context_len
                               : prompt.prompt_len > 1024 || whole > 2048)
      continue;
    prompts.push_back(std::move(prompt));
  }
  require(!prompts.empty(), "{} has no conversation that fits; each needs two turns with text",
          s.path);
  return prompts;
}

}  // namespace

int random_length(std::mt19937_64& gen, int most, double range_ratio) {
  const int low = std::clamp(static_cast<int>(most * range_ratio), 1, most);
  return std::uniform_int_distribution(low, most)(gen);
}

std::vector<double> arrival_gaps(std::size_t num_requests, double rate, double burstiness,
                                 std::uint64_t seed) {
  std::vector<double> gaps(num_requests, 0);
  if (std::isinf(rate)) return gaps;
  std::mt19937_64 gen(seed);
  // The mean of shape x scale is 1 / rate; shape 1 is the exponential distribution of a Poisson
  // process.
  std::gamma_distribution<double> gap(burstiness, 1 / (rate * burstiness));
  for (std::size_t i = 1; i < num_requests; ++i) gaps[i] = gap(gen);
  return gaps;
}

void require_room_for_prompts(std::int64_t num_prompts, std::int64_t tokens_each) {
  constexpr std::int64_t kTokenBytes = 16;  // its id, its text, and both again in a request
  constexpr double kMax = 1e18;             // what format_bytes() takes
  const double bytes =
      static_cast<double>(num_prompts) * (static_cast<double>(tokens_each) * kTokenBytes + 1024);
  const std::int64_t free = available_host_bytes();
  require(bytes <= static_cast<double>(free),
          "{} prompts of up to {} tokens take {} of memory, and {} are free; ask for fewer, or for "
          "shorter ones",
          num_prompts, tokens_each, format_bytes(static_cast<std::int64_t>(std::min(bytes, kMax))),
          format_bytes(free));
}

std::vector<LoadPrompt> make_dataset(const DatasetSettings& s, const Tokenizer* tokenizer) {
  constexpr std::string_view kNames[] = {"random", "random-ids", "sharegpt",
                                         "generated-shared-prefix"};
  require(std::ranges::count(kNames, s.name) > 0, "--dataset-name is {}; allowed are {}", s.name,
          fmt::join(kNames, ", "));
  if (s.name == "random" || s.name == "random-ids") {
    require_room_for_prompts(s.num_prompts, s.input_len);
    return random_prompts(s, tokenizer);
  }
  require(tokenizer != nullptr,
          "the dataset {} needs a tokenizer; give --tokenizer a model's directory", s.name);
  if (s.name == "sharegpt") {
    require(!s.path.empty(), "the dataset sharegpt needs --dataset-path");
    return sharegpt(s, *tokenizer);
  }
  require_room_for_prompts(std::int64_t{s.num_groups} * s.prompts_per_group,
                           std::int64_t{s.system_prompt_len} + s.question_len);
  return shared_prefixes(s, *tokenizer);
}

}  // namespace sluice
