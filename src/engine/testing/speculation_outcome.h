// For tests of speculation: what an engine brings with it and without it.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/testing/source_dir.h"
#include "engine/engine.h"
#include "engine/testing/collector.h"

namespace sluice {

inline Options options_for(const std::string& model) {
  Options options;
  options.model = source_dir() + "/tests/golden/models/" + model;
  options.dtype = "float32";
  options.max_total_tokens = 8192;
  options.max_running_requests = 32;
  options.chunked_prefill_size = 24;
  options.threads = 1;
  return options;
}

// As many drafts as there are.
inline Options with_all_drafts(Options options) {
  options.speculative_adaptive = false;
  return options;
}

inline Options with_ngram(Options options, int num_draft_tokens = 5, int min_match = 1) {
  options.speculative_algorithm = "NGRAM";
  options.speculative_num_draft_tokens = num_draft_tokens;
  options.speculative_ngram_min_match = min_match;
  options.speculative_ngram_max_match = 4;
  return with_all_drafts(options);
}

// `more`: other keys, each behind a comma.
inline Options with_suffix(Options options, const std::string& more = "") {
  options.speculative_config = R"({"method": "suffix", "num_speculative_tokens": 8)" + more + "}";
  return with_all_drafts(options);
}

inline Options with_nextn(Options options, int num_draft_tokens = 4) {
  options.speculative_algorithm = "NEXTN";
  options.speculative_num_draft_tokens = num_draft_tokens;
  return with_all_drafts(options);
}

// All that a request brings, in a form that can be compared.
struct Answer {
  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<FinishReason> finish;
  std::vector<float> logprobs;
  std::vector<std::int32_t> top_ids;
  std::vector<std::uint64_t> hashes;
  friend bool operator==(const Answer&, const Answer&) = default;
};

// Ends at a pair of equal tokens.
class Doubled : public StopMatcher {
 public:
  bool push(std::int32_t token) override { return std::exchange(last_, token) == token; }

 private:
  std::int32_t last_ = -1;
};

struct Outcome {
  std::vector<Answer> answers;
  EngineStats stats;
};

inline Outcome outcome_of(const Options& options, const std::vector<Request>& requests) {
  TextHooks hooks;
  hooks.stop_matchers = [](const std::vector<std::string>&) { return std::make_unique<Doubled>(); };
  auto engine = Engine::create(options, hooks);
  std::vector<std::unique_ptr<Collector>> collectors;
  for (const Request& request : requests) {
    collectors.push_back(std::make_unique<Collector>(request.num_choices));
    EXPECT_TRUE(engine->submit(request, collectors.back()->sink()).ok());
  }
  Outcome out;
  for (auto& collector : collectors) {
    collector->wait();
    Answer answer;
    answer.tokens = collector->tokens;
    answer.finish = collector->finish;
    for (const auto* rows : {&collector->prompt_logprobs, &collector->logprobs})
      for (const RowLogprobs& row : *rows) {
        answer.logprobs.push_back(row.logprob);
        answer.hashes.push_back(row.logits_hash);
        for (const TokenLogprob& top : row.top) {
          answer.top_ids.push_back(top.token);
          answer.logprobs.push_back(top.logprob);
        }
      }
    out.answers.push_back(std::move(answer));
  }
  EXPECT_TRUE(engine->idle());
  // A step that was launched ahead may still be under way.
  for (int i = 0; i < 5000 && engine->stats().used_tokens > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  out.stats = engine->stats();
  EXPECT_EQ(out.stats.used_tokens, 0);
  EXPECT_TRUE(engine->flush_cache());
  return out;
}

// Prompts that repeat themselves, so that look-ups find something.
inline std::vector<std::int32_t> prompt_of(int number, int size) {
  std::vector<std::int32_t> prompt;
  for (int i = 0; i < size; ++i) prompt.push_back(3 + (i % 7) * 5 + (i % 14 == 0 ? number : 0));
  return prompt;
}

inline std::vector<Request> greedy_requests(int count) {
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request request = greedy(prompt_of(i, 5 + 9 * (i % 8)), 40 + i);
    request.params.num_top_logprobs = i % 3;
    request.want_logits_hash = i % 4 == 1;
    if (i % 5 == 2) request.logprob_start = 0;
    requests.push_back(std::move(request));
  }
  return requests;
}

inline void expect_equal(const Outcome& found, const Outcome& wanted) {
  ASSERT_EQ(found.answers.size(), wanted.answers.size());
  for (std::size_t i = 0; i < found.answers.size(); ++i) {
    EXPECT_EQ(found.answers[i].tokens, wanted.answers[i].tokens) << "request " << i;
    EXPECT_TRUE(found.answers[i] == wanted.answers[i]) << "request " << i;
  }
  EXPECT_FALSE(wanted.stats.has_speculation);
  EXPECT_TRUE(found.stats.has_speculation);
}

// A pool of 1.5 long requests, and none reserved: sequences are retracted and come back.
inline Options with_little_memory(Options options) {
  options.max_total_tokens = 320;
  options.schedule_conservativeness = 0.01;
  return options;
}

inline Options with_draft(Options options, const char* method, const std::string& draft) {
  options.speculative_algorithm = method;
  options.speculative_draft_model_path = draft;
  return with_all_drafts(options);
}

}  // namespace sluice
