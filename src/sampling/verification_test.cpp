// Rows of drafts: the tokens that one step keeps are those that one row a step would have chosen.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <sstream>
#include <utility>

#include "base/build.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/testing/source_dir.h"
#include "base/thread_pool.h"
#include "sampling/host_sampler.h"

namespace sluice {
namespace {

using Tokens = std::vector<std::int32_t>;

// A model whose logits depend on the last two tokens.
std::vector<float> logits_after(int vocab, std::int32_t before_last, std::int32_t last,
                                float scale = 2) {
  std::mt19937_64 random(
      hash_combine(static_cast<std::uint32_t>(before_last) + 1, static_cast<std::uint32_t>(last)));
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> row(static_cast<std::size_t>(vocab));
  for (float& x : row) x = normal(random);
  return row;
}

// One step of the sampler for sequences whose known tokens and drafts are given.
class Verifier {
 public:
  Verifier(int vocab, int slots, int threads = 1)
      : sampler(slots, vocab), vocab_(vocab), pool_(threads) {
    ctx_.pool = &pool_;
  }

  void start(int slot, const SamplingParams& params, const Tokens& prompt) {
    const SlotInit init{slot, params, prompt, {}, 0};
    sampler.apply(std::span(&init, 1));
  }
  // The rows of a sequence: its last token, then its drafts; of a tree with their parents, 0 for
  // the last token.
  void add(int slot, const Tokens& known, const Tokens& drafts, int num_top = -1,
           const Tokens& parents = {}) {
    const auto item = static_cast<std::int32_t>(batch_.items.size());
    const auto first = static_cast<std::int32_t>(known.size()) - 1;
    batch_.items.push_back({.sequence = static_cast<std::uint64_t>(slot),
                            .slot = slot,
                            .first = first,
                            .count = static_cast<std::int32_t>(drafts.size()) + 1,
                            .decode = true});
    std::vector<Tokens> paths = {known};  // of each row, itself included
    for (std::size_t i = 0; i <= drafts.size(); ++i) {
      const auto parent = i == 0            ? 0
                          : parents.empty() ? static_cast<std::int32_t>(i) - 1
                                            : parents[i - 1];
      if (i > 0) {
        paths.push_back(paths[static_cast<std::size_t>(parent)]);
        paths.back().push_back(drafts[i - 1]);
      }
      const Tokens& path = paths.back();
      batch_.logit_rows.push_back({.item = item,
                                   .row = batch_.num_tokens(),
                                   .position = static_cast<std::int32_t>(path.size()),
                                   .sample = true,
                                   .num_top_logprobs = num_top,
                                   .behind = i == 0 ? 1 : static_cast<std::int32_t>(i) - parent});
      batch_.token_ids.push_back(path.back());
      const std::pair last{path.size() == 1 ? -1 : path[path.size() - 2], path.back()};
      std::vector<float>& row = rows_[last];
      if (row.empty()) row = logits_after(vocab_, last.first, last.second);
      flat_.insert(flat_.end(), row.begin(), row.end());
    }
  }
  std::vector<float>& logits() { return flat_; }
  // `rows_at_once`: the logits come in pieces of so many rows.
  BatchResult run(std::int64_t rows_at_once = 1000, const SampleInputs& inputs = {}) {
    sampler.begin_rows(batch_, inputs);
    const auto total = static_cast<std::int64_t>(batch_.logit_rows.size());
    for (std::int64_t first = 0; first < total; first += rows_at_once) {
      const std::int64_t count = std::min(rows_at_once, total - first);
      sampler.process(ctx_, batch_, static_cast<std::int32_t>(first),
                      Tensor::dense(flat_.data() + first * vocab_, DType::kF32, {count, vocab_}));
    }
    BatchResult result = sampler.finish(batch_);
    batch_ = {};
    flat_.clear();
    return result;
  }

  HostSampler sampler;

 private:
  const int vocab_;
  ThreadPool pool_;
  Context ctx_;
  Batch batch_;
  std::vector<float> flat_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<float>> rows_;
};

SamplingParams drawn(float temperature) {
  SamplingParams params;
  params.temperature = temperature;
  params.seed = 77;
  return params;
}

struct Generated {
  Tokens tokens;
  std::vector<float> logprobs;
};

// A tree of a chain: another token before or behind each of its tokens.
Tokens add_siblings(Tokens& drafts, std::mt19937& random, int vocab) {
  Tokens tokens, parents;
  std::int32_t parent = 0;
  for (const std::int32_t draft : drafts) {
    const bool before = random() % 2 == 0;
    const std::int32_t other = (draft + 1) % vocab;
    const auto place = static_cast<std::int32_t>(tokens.size()) + (before ? 2 : 1);
    tokens.insert(tokens.end(), {before ? other : draft, before ? draft : other});
    parents.insert(parents.end(), 2, std::exchange(parent, place));
  }
  drafts = tokens;
  return parents;
}

// Tokens one by one, or with drafts of which each is right with a probability; trees behind every
// other number of tokens.
Generated generate(Verifier& verifier, int slot, const Tokens& prompt, int count,
                   std::int64_t rows_at_once, const Generated* truth, double right,
                   std::mt19937& random, int vocab, int& accepted) {
  Generated out;
  Tokens known = prompt;
  while (std::cmp_less(out.tokens.size(), count)) {
    Tokens drafts;
    if (truth != nullptr)
      for (std::size_t d = 0; d < 5 && out.tokens.size() + d + 1 < truth->tokens.size(); ++d)
        drafts.push_back(std::uniform_real_distribution<>(0, 1)(random) < right
                             ? truth->tokens[out.tokens.size() + d]
                             : std::uniform_int_distribution<int>(0, vocab - 1)(random));
    const bool is_tree = drafts.size() > 1 && known.size() % 2 == 0;
    const Tokens parents = is_tree ? add_siblings(drafts, random, vocab) : Tokens{};
    verifier.add(slot, known, drafts, 0, parents);
    const BatchResult result = verifier.run(rows_at_once);
    accepted += static_cast<int>(result.tokens.size()) - 1;
    for (std::size_t i = 0; i < result.tokens.size(); ++i) {
      out.tokens.push_back(result.tokens[i]);
      out.logprobs.push_back(result.token_logprobs[i].logprob);
      known.push_back(result.tokens[i]);
    }
  }
  return out;
}

TEST(Verification, ChoosesTheTokensAndLogProbabilitiesOfOneRowAStep) {
  constexpr int kVocab = 24;
  const Tokens prompt = {3, 5, 3};
  std::vector<SamplingParams> kinds(6, drawn(0.9f));
  kinds[0].temperature = 0;
  kinds[1].top_k = 7;
  kinds[2].repetition_penalty = 1.4f;
  kinds[2].frequency_penalty = 0.6f;
  kinds[3].min_new_tokens = 20;
  kinds[3].stop_token_ids = {1, 2, 3, 4, 5, 6};
  kinds[4].logit_bias = {{7, 3.0f}, {8, -100.0f}};
  kinds[4].presence_penalty = 0.8f;
  kinds[5].top_p = 0.8f;
  kinds[5].min_p = 0.05f;
  std::mt19937 random(9);
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    int none = 0;
    Verifier plain(kVocab, 4);
    plain.start(2, kinds[kind], prompt);
    const Generated wanted = generate(plain, 2, prompt, 60, 1000, nullptr, 0, random, kVocab, none);
    EXPECT_EQ(none, 0);
    for (const double right : {1.0, 0.7, 0.0})
      for (const std::int64_t rows_at_once : {1000, 4, 1}) {
        int accepted = 0;
        Verifier verifier(kVocab, 4, 2);
        verifier.start(2, kinds[kind], prompt);
        Generated found = generate(verifier, 2, prompt, 60, rows_at_once, &wanted, right, random,
                                   kVocab, accepted);
        found.tokens.resize(60);
        found.logprobs.resize(60);
        EXPECT_EQ(found.tokens, wanted.tokens) << "kind " << kind << ", right " << right;
        EXPECT_EQ(found.logprobs, wanted.logprobs) << "kind " << kind << ", right " << right;
        if (right == 1.0) {
          EXPECT_GE(accepted, 49) << "kind " << kind;
        }
      }
  }
}

TEST(Verification, SequencesOfAStepDoNotMeet) {
  constexpr int kVocab = 16;
  Verifier verifier(kVocab, 3);
  for (int slot = 0; slot < 3; ++slot) verifier.start(slot, drawn(0), {1});
  const auto best = [](std::int32_t before_last, std::int32_t last) {
    const std::vector<float> row = logits_after(kVocab, before_last, last);
    return static_cast<std::int32_t>(std::ranges::max_element(row) - row.begin());
  };
  const std::int32_t a = best(-1, 1), b = best(1, a), c = best(a, b);
  verifier.add(0, {1}, {a, b});
  verifier.add(1, {1}, {});
  verifier.add(2, {1}, {a, (b + 1) % kVocab, c});
  const BatchResult result = verifier.run();
  EXPECT_EQ(result.token_offsets, (Tokens{0, 3, 4, 6}));
  EXPECT_EQ(result.tokens, (Tokens{a, b, c, a, a, b}));
  EXPECT_EQ(verifier.sampler.last_token(0), c);
  EXPECT_EQ(verifier.sampler.last_token(2), b);
}

// The position is the first of the next step, which says that it fails.
TEST(Verification, LogitsThatAreNotFiniteEndTheDraftsAndFailTheFirstRowOnly) {
  constexpr int kVocab = 8;
  Verifier verifier(kVocab, 1);
  verifier.start(0, drawn(0), {1});
  const std::vector<float> row = logits_after(kVocab, -1, 1);
  const auto best = static_cast<std::int32_t>(std::ranges::max_element(row) - row.begin());
  verifier.add(0, {1}, {best, 0});
  verifier.logits()[kVocab + 3] = std::nanf("");
  BatchResult result = verifier.run();
  EXPECT_EQ(result.tokens, Tokens{best});
  EXPECT_EQ(result.failed[0], 0);
  verifier.add(0, {1, best}, {0});
  verifier.logits()[3] = std::nanf("");
  result = verifier.run();
  EXPECT_EQ(result.failed[0], 1);
}

TEST(Verification, AMaskThatEndsTheDraftsSkipsItsRows) {
  constexpr int kVocab = 8;
  Verifier verifier(kVocab, 1);
  verifier.start(0, drawn(0), {1});
  SampleInputs inputs;
  const auto mask = [&](std::int32_t row, std::uint32_t bits, bool is_skipped) {
    inputs.masks.push_back({.logit_row = row, .bits = {bits}, .is_skipped = is_skipped});
  };
  mask(0, 1u << 5, false);
  mask(1, 1u << 6, false);
  mask(2, ~0u, true);
  Batch batch;
  batch.items.push_back({.sequence = 0, .slot = 0, .first = 0, .count = 3, .decode = true});
  batch.token_ids = {1, 5, 6};
  for (std::int32_t i = 0; i < 3; ++i)
    batch.logit_rows.push_back(
        {.item = 0, .row = i, .position = i + 1, .sample = true, .has_mask = true});
  std::vector<float> flat(3 * kVocab, 0.0f);
  ThreadPool pool(1);
  Context ctx;
  ctx.pool = &pool;
  verifier.sampler.begin_rows(batch, inputs);
  verifier.sampler.process(ctx, batch, 0, Tensor::dense(flat.data(), DType::kF32, {3, kVocab}));
  EXPECT_EQ(verifier.sampler.finish(batch).tokens, (Tokens{5, 6}));
}

// Reference chains (trees with one child a node) that lie beside the repository on machines of
// developers.
TEST(Verification, AcceptsWhatReferenceChainsAccept) {
  const std::filesystem::path file =
      std::filesystem::path(source_dir()).parent_path() / "shared/golden/speculation/tree.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  int chains = 0;
  const Json reference = parse_json_or_throw(text.str(), file.string());
  for (const Json& c : reference["cases"]) {
    if (c["topk"] != 1) continue;
    for (const Json& request : c["requests"]) {
      const Tokens tokens = request["draft_tokens"];
      const Json& greedy = request["verify_greedy"];
      const Tokens predicted = greedy["target_predict"];
      const int vocab =
          1 + std::max(*std::ranges::max_element(tokens), *std::ranges::max_element(predicted));
      Verifier verifier(vocab, 1);
      verifier.start(0, drawn(0), {0});
      verifier.add(0, {tokens[0]}, Tokens(tokens.begin() + 1, tokens.end()));
      std::ranges::fill(verifier.logits(), 0.0f);
      for (std::size_t i = 0; i < predicted.size(); ++i)
        verifier.logits()[i * static_cast<std::size_t>(vocab) +
                          static_cast<std::size_t>(predicted[i])] = 1;
      EXPECT_EQ(verifier.run().tokens, greedy["emitted"].get<Tokens>()) << c["number"];
      ++chains;
    }
  }
  EXPECT_GE(chains, 20);
}

// The probabilities that the sampler's filters leave, in double precision.
std::vector<double> filtered(const std::vector<float>& logits, const SamplingParams& params,
                             const Tokens& output) {
  const std::size_t size = logits.size();
  std::vector<double> p(logits.begin(), logits.end());
  for (const std::int32_t token : output)
    p[static_cast<std::size_t>(token)] -= params.frequency_penalty;
  for (double& x : p) x = std::exp(x / params.temperature);
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= sum;
  std::vector<std::size_t> order(size);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, std::greater(), [&](std::size_t i) { return p[i]; });
  std::vector<double> kept(size, 0.0);
  double before = 0;
  for (std::size_t rank = 0; rank < size; ++rank) {
    const std::size_t token = order[rank];
    const bool in_k = params.top_k < 0 || std::cmp_less(rank, params.top_k);
    if (in_k && before < params.top_p && p[token] >= params.min_p * p[order[0]])
      kept[token] = p[token];
    before += p[token];
  }
  const double left = std::accumulate(kept.begin(), kept.end(), 0.0);
  for (double& x : kept) x /= left;
  return kept;
}

// Wilson and Hilferty's approximation of the chi-square quantile at p = 0.01.
double chi_square_limit(double freedom) {
  const double a = 2 / (9 * freedom);
  return freedom * std::pow(1 - a + 2.3263 * std::sqrt(a), 3);
}

// Pairs of tokens behind a prompt, sampled by a step with one draft and, where it was wrong, by the
// next. All seeds differ.
TEST(Verification, DrawsFollowTheModelsDistribution) {
  constexpr int kVocab = 10, kRows = 500;
  const int draws = kTimedBuild ? 1'000'000 : 50'000;
  std::vector<SamplingParams> kinds(5, drawn(0.8f));
  kinds[1].top_k = 4;
  kinds[2].top_p = 0.85f;
  kinds[3].min_p = 0.1f;
  kinds[4].frequency_penalty = 1.5f;
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    const std::int32_t start = 2;
    const std::vector<double> first = filtered(logits_after(kVocab, -1, start), kinds[kind], {});
    const auto draft = static_cast<std::int32_t>(std::ranges::max_element(first) - first.begin());
    std::vector<std::int64_t> counts(kVocab * kVocab, 0);
    Verifier verifier(kVocab, kRows);
    std::int64_t accepted = 0;
    for (int done = 0; done < draws; done += kRows) {
      SamplingParams params = kinds[kind];
      for (int slot = 0; slot < kRows; ++slot) {
        params.seed = static_cast<std::uint64_t>(done + slot);
        verifier.start(slot, params, {start});
        verifier.add(slot, {start}, {draft});
      }
      const BatchResult one = verifier.run();
      std::vector<std::pair<int, std::int32_t>> open;  // the draft was wrong
      for (int slot = 0; slot < kRows; ++slot) {
        const auto tokens = one.tokens_of(static_cast<std::size_t>(slot));
        if (tokens.size() == 2) {
          ++accepted;
          ++counts[static_cast<std::size_t>(tokens[0] * kVocab + tokens[1])];
        } else {
          open.emplace_back(slot, tokens[0]);
          verifier.add(slot, {start, tokens[0]}, {});
        }
      }
      const BatchResult two = verifier.run();
      for (std::size_t i = 0; i < open.size(); ++i)
        ++counts[static_cast<std::size_t>(open[i].second * kVocab + two.tokens[i])];
    }
    double chi_square = 0, freedom = -1;
    for (std::int32_t a = 0; a < kVocab; ++a) {
      const std::vector<double> second = filtered(logits_after(kVocab, start, a), kinds[kind], {a});
      for (std::int32_t b = 0; b < kVocab; ++b) {
        const double expected =
            draws * first[static_cast<std::size_t>(a)] * second[static_cast<std::size_t>(b)];
        const auto seen = static_cast<double>(counts[static_cast<std::size_t>(a * kVocab + b)]);
        if (expected == 0) {
          EXPECT_EQ(seen, 0) << "kind " << kind << ", " << a << ", " << b;
        } else if (expected >= 5) {
          chi_square += (seen - expected) * (seen - expected) / expected;
          ++freedom;
        }
      }
    }
    EXPECT_LT(chi_square, chi_square_limit(freedom)) << "kind " << kind << ", freedom " << freedom;
    EXPECT_GT(accepted, draws / 5) << "kind " << kind;
  }
}

}  // namespace
}  // namespace sluice
