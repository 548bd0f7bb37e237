// Rounds of drafts, of which the next one is launched while one is in flight: what comes out equals
// what comes without drafts.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/testing/source_dir.h"
#include "engine/testing/speculation_outcome.h"

namespace sluice {
namespace {

struct Case {
  std::string name, model;
  Options (*with)(Options);
};

Options in_rounds(Options options) {
  options.drafts_as_rows = true;
  options.steps_in_flight = 2;
  return options;
}

class Rounds : public ::testing::TestWithParam<Case> {
 protected:
  static Options plain() {
    Options out = options_for("");
    out.model = source_dir() + "/" + GetParam().model;
    return out;
  }
  static Options rounds(const Options& plain) { return in_rounds(GetParam().with(plain)); }
};
const auto kFixed = ::testing::Values(
    Case{"bundled", "models/sluice-tiny", [](Options o) { return with_nextn(std::move(o)); }},
    Case{"one_draft", "models/sluice-tiny", [](Options o) { return with_nextn(std::move(o), 2); }},
    Case{"seven", "models/sluice-tiny", [](Options o) { return with_nextn(std::move(o), 8); }},
    Case{"latents", "tests/golden/models/deepseek-v3",
         [](Options o) { return with_nextn(std::move(o)); }},
    Case{"sparse", "tests/golden/models/deepseek-v32",
         [](Options o) { return with_nextn(std::move(o)); }},
    Case{"mimo", "tests/golden/models/mimo",
         [](Options o) { return with_nextn(std::move(o), 3); }});
// Its numbers of drafts follow the clock.
const Case kAdaptive = {"adaptive", "models/sluice-tiny", [](Options o) {
                          o = with_nextn(std::move(o));
                          o.speculative_adaptive = true;
                          return o;
                        }};
constexpr auto kNameOf = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Speculation, Rounds, kFixed, kNameOf);
INSTANTIATE_TEST_SUITE_P(SpeculationAdaptive, Rounds, ::testing::Values(kAdaptive), kNameOf);

class FixedRounds : public Rounds {};
INSTANTIATE_TEST_SUITE_P(Speculation, FixedRounds, kFixed, kNameOf);

// Requests that leave nothing to the host, but for what comes with the tokens.
std::vector<Request> requests_of(int count) {
  std::vector<Request> requests = greedy_requests(count);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].want_logits_hash = false;
    requests[i].logprob_start = -1;
    requests[i].ignore_eos = i % 2 == 0;
    if (i % 3 == 1) requests[i].params.temperature = 0.7f;
    if (i % 4 == 3) requests[i].num_choices = 2;
  }
  return requests;
}

TEST_P(Rounds, ChangeNothing) {
  for (const int count : {1, 3, 17}) {
    SCOPED_TRACE(count);
    std::vector<Request> requests = requests_of(count);
    for (Request& request : requests) request.max_new_tokens += 60;
    Options few = plain();
    few.max_running_requests = 3;
    const Outcome found = outcome_of(rounds(few), requests);
    expect_equal(found, outcome_of(few, requests));
    EXPECT_GT(found.stats.rounds_ahead, GetParam().name == "adaptive" ? -1 : 20);
  }
}

// Also at the end of an answer, where the round in flight may bring fewer tokens than are left.
TEST_P(FixedRounds, AreAsManyAsWithOneInFlight) {
  for (int more = 0; more < 8; more += 2) {
    std::vector<Request> requests = {greedy(prompt_of(more, 40), 60 + more)};
    requests[0].ignore_eos = true;
    Options alone = GetParam().with(plain());
    alone.drafts_as_rows = true;
    const Outcome found = outcome_of(rounds(plain()), requests);
    EXPECT_GT(found.stats.rounds_ahead, 2);
    EXPECT_EQ(found.stats.verifications, outcome_of(alone, requests).stats.verifications) << more;
  }
}

TEST_P(Rounds, RetractionChangesNothing) {
  const Options little = with_little_memory(plain());
  std::vector<Request> requests = requests_of(9);
  for (Request& request : requests) request.max_new_tokens += 60;
  const Outcome found = outcome_of(rounds(little), requests);
  expect_equal(found, outcome_of(little, requests));
  EXPECT_GT(found.stats.retracted, 0u);
  EXPECT_GT(found.stats.rounds_ahead, GetParam().name == "adaptive" ? -1 : 5);
}

// What only the host does ends the rounds, and other requests beside it.
TEST_P(Rounds, WhatTheHostDoesEndsThem) {
  std::vector<Request> requests = requests_of(8);
  requests[1].params.repetition_penalty = 1.2f;
  requests[2].params.logit_bias = {{7, 2.0f}};
  requests[3].params.min_new_tokens = 20;
  requests[4].want_logits_hash = true;
  requests[5].logprob_start = 0;
  requests[6].stop = {"x"};
  Options few = plain();
  few.max_running_requests = 2;
  expect_equal(outcome_of(rounds(few), requests), outcome_of(few, requests));
}

TEST_P(Rounds, CachedPrefixesChangeNothing) {
  Options options = plain();
  options.max_running_requests = 2;
  std::vector<Request> requests;
  for (int turn = 0; turn < 3; ++turn)
    for (int i = 0; i < 2; ++i) requests.push_back(greedy(prompt_of(i, 70 + 30 * turn), 70));
  const Outcome found = outcome_of(rounds(options), requests);
  expect_equal(found, outcome_of(options, requests));
  EXPECT_GT(found.stats.prefix_hit_tokens, 100u);
}

}  // namespace
}  // namespace sluice
