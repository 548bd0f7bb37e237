// Steps that are launched while another is in flight, where no draft pays: what comes out equals
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

class DraftsAhead : public ::testing::TestWithParam<Case> {
 protected:
  static Options plain() {
    Options out = options_for("");
    out.model = source_dir() + "/" + GetParam().model;
    return out;
  }
  static Options ahead(const Options& plain) {
    Options out = GetParam().with(plain);
    out.speculative_adaptive = true;
    out.steps_in_flight = 2;
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(
    Speculation, DraftsAhead,
    ::testing::Values(Case{"latents", "tests/golden/models/deepseek-v3",
                           [](Options o) { return with_nextn(std::move(o)); }},
                      Case{"sparse", "tests/golden/models/deepseek-v32",
                           [](Options o) { return with_nextn(std::move(o)); }},
                      Case{"few", "tests/golden/models/mimo",
                           [](Options o) { return with_nextn(std::move(o), 2); }},
                      Case{"model", "tests/golden/models/llama-plain",
                           [](Options o) {
                             o.speculative_algorithm = "STANDALONE";
                             o.speculative_draft_model_path =
                                 source_dir() + "/tests/golden/models/llama-yarn";
                             o.speculative_num_steps = 3;
                             return o;
                           }},
                      Case{"text", "tests/golden/models/llama-plain",
                           [](Options o) { return with_ngram(std::move(o)); }},
                      Case{"answers", "tests/golden/models/mistral-swa",
                           [](Options o) { return with_suffix(std::move(o)); }}),
    [](const auto& info) { return info.param.name; });

TEST_P(DraftsAhead, ChangeNothing) {
  for (const int count : {1, 3, 17}) {
    SCOPED_TRACE(count);
    std::vector<Request> requests = greedy_requests(count);
    for (Request& request : requests) request.max_new_tokens += 60;
    expect_equal(outcome_of(ahead(plain()), requests), outcome_of(plain(), requests));
  }
}

TEST_P(DraftsAhead, RetractionChangesNothing) {
  const Options little = with_little_memory(plain());
  std::vector<Request> requests = greedy_requests(9);
  for (Request& request : requests) request.max_new_tokens += 60;
  expect_equal(outcome_of(ahead(little), requests), outcome_of(little, requests));
}

}  // namespace
}  // namespace sluice
