#include "sampling/host_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"
#include "base/hash.h"

namespace sluice {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// One sampler with its context; rows of logits are given as vectors.
class Bench {
 public:
  explicit Bench(int vocab, int slots = 64, int threads = 1,
                 std::vector<std::int32_t> replayed = {})
      : pool_(threads), sampler(slots, vocab, {}, std::move(replayed)), vocab_(vocab) {
    ctx_.pool = &pool_;
  }

  void start(int slot, const SamplingParams& params, std::vector<std::int32_t> prompt = {},
             std::vector<std::int32_t> output = {}) {
    SlotInit init{slot, params, std::move(prompt), std::move(output), 0};
    init.num_output = static_cast<std::int32_t>(init.output.size());
    sampler.apply(std::span(&init, 1));
  }

  // Decode rows of slots[i] with row logits[i], all at `position`.
  BatchResult decode(const std::vector<int>& slots, const std::vector<std::vector<float>>& logits,
                     int position, int num_top = -1, bool want_hash = false) {
    Batch batch;
    std::vector<float> flat;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const auto n = static_cast<std::int32_t>(i);
      batch.items.push_back({i, slots[i], position - 1, 1, true});
      batch.token_ids.push_back(kTokenFromSlot);
      batch.logit_rows.push_back({n, n, position, true, -1, num_top, want_hash});
      flat.insert(flat.end(), logits[i].begin(), logits[i].end());
    }
    return sampler.sample(ctx_, batch, tensor(flat));
  }
  int decode_one(int slot, const std::vector<float>& logits, int position) {
    return decode({slot}, {logits}, position).tokens.at(0);
  }
  Tensor tensor(std::vector<float>& flat) {
    return Tensor::dense(flat.data(), DType::kF32,
                         {static_cast<std::int64_t>(flat.size()) / vocab_, vocab_});
  }
  const Context& context() const { return ctx_; }

 private:
  ThreadPool pool_;
  Context ctx_;

 public:
  HostSampler sampler;

 private:
  int vocab_;
};

std::vector<float> random_row(std::size_t n, std::uint64_t seed, float scale = 3) {
  std::mt19937_64 gen(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> row(n);
  for (float& x : row) x = normal(gen);
  return row;
}

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

TEST(HostSampler, GreedyTakesTheLowestIdOfTies) {
  Bench bench(40);
  bench.start(0, greedy());
  std::vector<float> row(40, -1.0f);
  row[21] = row[9] = row[33] = 5.0f;
  EXPECT_EQ(bench.decode_one(0, row, 10), 9);
  EXPECT_EQ(bench.sampler.last_token(0), 9);
  SamplingParams top1;
  top1.top_k = 1;
  bench.start(0, top1);
  EXPECT_EQ(bench.sampler.last_token(0), -1);
  EXPECT_EQ(bench.decode_one(0, row, 10), 9);
}

struct FilterCase {
  const char* name;
  float temperature;
  int top_k;
  float top_p;
  float min_p;
};

// 20,000 draws of a small vocabulary against the probabilities that the definitions give.
TEST(HostSampler, DrawsFollowTheFilteredDistribution) {
  const std::vector<double> p = {0.30, 0.02, 0.22, 0.05,
                                 0.01, 0.25, 0.10, 0.05};  // in order: 0 5 2 6 3 7 1 4
  std::vector<float> logits;
  for (double x : p) logits.push_back(static_cast<float>(std::log(x)));
  const std::vector<std::pair<FilterCase, std::vector<int>>> table = {
      {{"plain", 1, -1, 1, 0}, {0, 1, 2, 3, 4, 5, 6, 7}},
      {{"hot", 2, -1, 1, 0}, {0, 1, 2, 3, 4, 5, 6, 7}},
      {{"cold", 0.5f, -1, 1, 0}, {0, 1, 2, 3, 4, 5, 6, 7}},
      {{"top-k 3", 1, 3, 1, 0}, {0, 5, 2}},
      {{"top-k tie", 1, 5, 1, 0}, {0, 5, 2, 6, 3}},
      {{"top-p 0.5", 1, -1, 0.5f, 0}, {0, 5}},
      {{"top-p 0.8", 1, -1, 0.8f, 0}, {0, 5, 2, 6}},
      {{"min-p 0.3", 1, -1, 1, 0.3f}, {0, 5, 2, 6}},
      {{"top-k and top-p", 1, 6, 0.6f, 0}, {0, 5, 2}},
      {{"all", 1, 4, 0.9f, 0.5f}, {0, 5, 2}},
  };
  for (const auto& [c, kept] : table) {
    std::vector<double> wanted(p.size(), 0);
    double total = 0;
    for (int i : kept) total += wanted[i] = std::pow(p[i], 1.0 / c.temperature);
    Bench bench(8);
    SamplingParams params;
    params.temperature = c.temperature;
    params.top_k = c.top_k;
    params.top_p = c.top_p;
    params.min_p = c.min_p;
    params.seed = 1234;
    bench.start(0, params);
    constexpr int kDraws = 20000;
    std::vector<int> seen(p.size(), 0);
    for (int i = 0; i < kDraws; ++i) ++seen[bench.decode_one(0, logits, i)];
    double chi_square = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double expected = kDraws * wanted[i] / total;
      if (expected == 0) {
        EXPECT_EQ(seen[i], 0) << c.name << " token " << i;
      } else {
        chi_square += (seen[i] - expected) * (seen[i] - expected) / expected;
      }
    }
    // At most 7 degrees of freedom: 31.8 is exceeded with probability 4e-5.
    EXPECT_LT(chi_square, 31.8) << c.name;
  }
}

TEST(HostSampler, SeedAndPositionDecideTheDraw) {
  const std::vector<float> logits(1000, 0.0f);
  SamplingParams params;
  params.seed = 5;
  const auto draws = [&](std::uint64_t seed, int first) {
    Bench bench(1000);
    params.seed = seed;
    bench.start(3, params);
    std::vector<int> tokens;
    for (int i = 0; i < 20; ++i) tokens.push_back(bench.decode_one(3, logits, first + i));
    return tokens;
  };
  EXPECT_EQ(draws(5, 100), draws(5, 100));
  EXPECT_NE(draws(5, 100), draws(6, 100));
  EXPECT_NE(draws(5, 100), draws(5, 101));
  // Shifted positions give shifted draws: nothing but the position enters.
  const std::vector<int> a = draws(5, 100), b = draws(5, 101);
  EXPECT_TRUE(std::equal(a.begin() + 1, a.end(), b.begin()));
}

// Parameters of many kinds, each slot with its own.
SamplingParams varied_params(int i) {
  SamplingParams params;
  params.seed = static_cast<std::uint64_t>(i) * 77;
  params.temperature = i % 3 == 0 ? 0.0f : 0.5f + 0.1f * static_cast<float>(i);
  if (i % 2 == 0) params.top_k = 5 + i;
  if (i % 5 == 1) params.top_p = 0.8f;
  if (i % 5 == 2) params.min_p = 0.05f;
  if (i % 4 == 3) params.repetition_penalty = 1.3f;
  if (i % 7 == 4) params.frequency_penalty = 0.5f;
  if (i % 6 == 1) params.logit_bias = {{3, 2.0f}, {7, -50.0f}};
  params.min_new_tokens = i % 4;
  params.stop_token_ids = {0, 11};
  return params;
}

TEST(HostSampler, RowsAreTheSameAloneInAnyBatchAndOnAnyThreads) {
  constexpr int kVocab = 777, kSlots = 24, kSteps = 6;
  const auto logits_of = [&](int slot, int step) { return random_row(kVocab, 1000 * slot + step); };
  // [slot][step]
  std::vector<std::vector<BatchResult>> alone(kSlots);
  for (int slot = 0; slot < kSlots; ++slot) {
    Bench bench(kVocab);
    bench.start(slot, varied_params(slot), {1, 2, 3, 2});
    for (int step = 0; step < kSteps; ++step)
      alone[slot].push_back(bench.decode({slot}, {logits_of(slot, step)}, 4 + step, 5, true));
  }
  for (int threads : {1, 2, 5}) {
    Bench bench(kVocab, kSlots, threads);
    for (int slot = 0; slot < kSlots; ++slot) bench.start(slot, varied_params(slot), {1, 2, 3, 2});
    for (int step = 0; step < kSteps; ++step) {
      std::vector<int> slots;
      std::vector<std::vector<float>> rows;
      for (int i = 0; i < kSlots; ++i) slots.push_back((i * 5 + step) % kSlots);
      for (int slot : slots) rows.push_back(logits_of(slot, step));
      const BatchResult result = bench.decode(slots, rows, 4 + step, 5, true);
      for (int i = 0; i < kSlots; ++i) {
        const BatchResult& one = alone[slots[i]][step];
        EXPECT_EQ(result.tokens[i], one.tokens[0]);
        EXPECT_EQ(result.token_logprobs[i].logprob, one.token_logprobs[0].logprob);
        EXPECT_EQ(result.token_logprobs[i].top, one.token_logprobs[0].top);
        EXPECT_EQ(result.token_logprobs[i].logits_hash, one.token_logprobs[0].logits_hash);
      }
    }
  }
}

TEST(HostSampler, PenaltiesAndBiasAgreeWithAPlainLoop) {
  constexpr int kVocab = 30;
  std::mt19937 gen(3);
  for (int trial = 0; trial < 200; ++trial) {
    SamplingParams params = greedy();
    params.repetition_penalty = 0.5f + 0.01f * static_cast<float>(gen() % 150);
    params.frequency_penalty = -2.0f + 0.02f * static_cast<float>(gen() % 200);
    params.presence_penalty = -2.0f + 0.02f * static_cast<float>(gen() % 200);
    params.logit_bias = {{static_cast<std::int32_t>(gen() % kVocab), 1.5f}};
    std::vector<std::int32_t> prompt, output;
    for (int i = 0; i < 8; ++i) prompt.push_back(static_cast<std::int32_t>(gen() % kVocab));
    for (int i = 0; i < 5; ++i) output.push_back(static_cast<std::int32_t>(gen() % kVocab));
    Bench bench(kVocab);
    bench.start(2, params, prompt, output);
    for (int step = 0; step < 6; ++step) {
      const std::vector<float> raw = random_row(kVocab, trial * 10 + step, 2);
      std::vector<float> x = raw;
      x[params.logit_bias[0].first] += params.logit_bias[0].second;
      for (int t = 0; t < kVocab; ++t) {
        const auto in_output = std::ranges::count(output, t);
        if (in_output > 0 || std::ranges::count(prompt, t) > 0)
          x[t] = x[t] > 0 ? x[t] / params.repetition_penalty : x[t] * params.repetition_penalty;
        if (in_output > 0)
          x[t] -=
              params.frequency_penalty * static_cast<float>(in_output) + params.presence_penalty;
      }
      const auto wanted = static_cast<std::int32_t>(std::ranges::max_element(x) - x.begin());
      const BatchResult result = bench.decode({2}, {raw}, 13 + step, 3);
      ASSERT_EQ(result.tokens[0], wanted) << "trial " << trial << " step " << step;
      output.push_back(wanted);
      // Log-probabilities are of the raw logits.
      double sum = 0;
      for (float v : raw) sum += std::exp(static_cast<double>(v));
      EXPECT_NEAR(result.token_logprobs[0].logprob, raw[wanted] - std::log(sum), 3e-6);
      EXPECT_EQ(result.token_logprobs[0].top[0].token, std::ranges::max_element(raw) - raw.begin());
    }
  }
}

TEST(HostSampler, ASlotThatResumesGoesOnAsIfItHadNeverStopped) {
  constexpr int kVocab = 50;
  SamplingParams params = varied_params(4);
  params.presence_penalty = 1;
  Bench whole(kVocab), resumed(kVocab);
  whole.start(0, params, {9, 9, 1});
  std::vector<std::int32_t> output;
  for (int i = 0; i < 5; ++i) output.push_back(whole.decode_one(0, random_row(kVocab, i), 3 + i));
  resumed.start(7, params, {9, 9, 1}, output);
  for (int i = 5; i < 10; ++i)
    EXPECT_EQ(whole.decode_one(0, random_row(kVocab, i), 3 + i),
              resumed.decode_one(7, random_row(kVocab, i), 3 + i));
}

TEST(HostSampler, EndTokensAreBannedUntilMinNewTokens) {
  std::vector<float> row(20, 0.0f);
  row[4] = 9;
  row[6] = 8;
  row[2] = 1;
  SamplingParams params = greedy();
  params.min_new_tokens = 2;
  params.stop_token_ids = {4, 6, 1 << 30};  // an id past the vocabulary is skipped
  Bench bench(20);
  bench.start(0, params);
  EXPECT_EQ(bench.decode_one(0, row, 5), 2);
  EXPECT_EQ(bench.decode_one(0, row, 6), 2);
  EXPECT_EQ(bench.decode_one(0, row, 7), 4);
}

TEST(HostSampler, RowsThatAreNotFiniteFailAlone) {
  constexpr int kVocab = 33;
  const std::vector<float> good = random_row(kVocab, 1);
  std::vector<float> nan = good, inf = good;
  nan[32] = std::nanf("");
  inf[0] = kInf;
  const std::vector<float> nothing(kVocab, -kInf);
  SamplingParams ban_all = greedy();
  ban_all.min_new_tokens = 1;
  for (int i = 0; i < kVocab; ++i) ban_all.stop_token_ids.push_back(i);
  Bench bench(kVocab);
  for (int slot = 0; slot < 4; ++slot) bench.start(slot, varied_params(slot));
  bench.start(4, ban_all);
  bench.start(5, greedy());
  const BatchResult result =
      bench.decode({0, 1, 2, 3, 4, 5}, {good, nan, inf, nothing, good, good}, 9, 1);
  EXPECT_EQ(result.failed, (std::vector<std::uint8_t>{0, 1, 1, 1, 1, 0}));
  EXPECT_EQ(result.token_offsets, (std::vector<std::int32_t>{0, 1, 1, 1, 1, 1, 2}));
  ASSERT_EQ(result.tokens.size(), 2u);
  EXPECT_EQ(result.tokens[1], std::ranges::max_element(good) - good.begin());
  EXPECT_EQ(bench.sampler.last_token(1), -1);
}

TEST(HostSampler, PromptRowsGiveLogprobsOfTheirTargetsInAnyChunks) {
  constexpr int kVocab = 40;
  Bench bench(kVocab);
  bench.start(0, greedy());
  bench.start(1, greedy());
  Batch batch;
  batch.items = {{1, 0, 0, 4, false}, {2, 1, 0, 3, false}, {3, 2, 0, 1, false}};
  for (std::int32_t row = 0; row < 4; ++row)
    batch.logit_rows.push_back({0, row, row + 1, row == 3, row == 3 ? -1 : row * 2, 2});
  batch.logit_rows.push_back({1, 5, 2, false, 39, -1});
  batch.logit_rows.push_back({1, 6, 3, true, -1, -1});
  std::vector<float> flat;
  for (int i = 0; i < 6; ++i) {
    const std::vector<float> row = random_row(kVocab, 50 + i);
    flat.insert(flat.end(), row.begin(), row.end());
  }
  std::vector<float> copy = flat;
  const BatchResult whole = bench.sampler.sample(bench.context(), batch, bench.tensor(copy));
  EXPECT_EQ(whole.token_offsets, (std::vector<std::int32_t>{0, 1, 2, 2}));
  EXPECT_EQ(whole.prompt_offsets, (std::vector<std::int32_t>{0, 3, 4, 4}));
  for (int i = 0; i < 3; ++i) {
    const float* row = flat.data() + i * kVocab;
    double sum = 0;
    for (int t = 0; t < kVocab; ++t) sum += std::exp(static_cast<double>(row[t]));
    EXPECT_NEAR(whole.prompt_logprobs[i].logprob, row[i * 2] - std::log(sum), 3e-6);
    EXPECT_EQ(whole.prompt_logprobs[i].top.size(), 2u);
  }
  EXPECT_TRUE(whole.prompt_logprobs[3].top.empty());
  EXPECT_TRUE(whole.token_logprobs[1].top.empty());

  copy = flat;
  bench.sampler.begin(batch);
  for (int i : {4, 0, 2})
    bench.sampler.process(bench.context(), batch, i, bench.tensor(copy).rows(i, 2));
  const BatchResult chunked = bench.sampler.finish(batch);
  EXPECT_EQ(chunked.tokens, whole.tokens);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(chunked.prompt_logprobs[i].logprob, whole.prompt_logprobs[i].logprob);
    EXPECT_EQ(chunked.prompt_logprobs[i].top, whole.prompt_logprobs[i].top);
  }
}

TEST(HostSampler, AReplayedAnswerIsTakenByPosition) {
  Bench bench(4, 1, 1, {0, 0, 3, 1});
  bench.start(0, greedy());
  const std::vector<float> likes_2 = {0, 0, 5, 0};
  const auto accept = [&](std::int32_t position, std::int32_t token) {
    Batch batch;
    batch.items.push_back({0, 0, position - 1, 1, true});
    batch.token_ids.push_back(kTokenFromSlot);
    batch.logit_rows.push_back({0, 0, position, true});
    return bench.sampler.accept(batch, {&token, 1});
  };
  // As the host chooses, and as a device has chosen. Behind the replay's end the logits count.
  for (const auto& [position, token] : {std::pair{2, 3}, std::pair{3, 1}, std::pair{4, 2}}) {
    EXPECT_EQ(bench.decode_one(0, likes_2, position), token);
    EXPECT_EQ(bench.sampler.last_token(0), token);
    EXPECT_EQ(accept(position, 2).tokens, std::vector{token});
  }
  EXPECT_EQ(accept(2, -1).failed.at(0), 1) << "a row that was not finite stays one";
}

TEST(HostSampler, HashIsOfTheRawBits) {
  const std::vector<float> row = random_row(64, 4);
  SamplingParams params = greedy();
  params.logit_bias = {{5, 1.0f}};
  Bench bench(64);
  bench.start(0, params);
  const BatchResult result = bench.decode({0}, {row}, 3, -1, true);
  EXPECT_EQ(result.token_logprobs[0].logits_hash, hash_span(std::span<const float>(row)));
}

TEST(HostSampler, RowsLeftOutOrGivenTwiceAreBugs) {
  Bench bench(8);
  bench.start(0, greedy());
  Batch batch;
  batch.items = {{1, 0, 0, 1, true}};
  batch.logit_rows = {{0, 0, 1, true, -1, -1}};
  std::vector<float> flat(8, 0.0f);
  bench.sampler.begin(batch);
  EXPECT_THROW(bench.sampler.finish(batch), Error);
  bench.sampler.process(bench.context(), batch, 0, bench.tensor(flat));
  EXPECT_THROW(bench.sampler.process(bench.context(), batch, 0, bench.tensor(flat)), Error);
}

}  // namespace
}  // namespace sluice
