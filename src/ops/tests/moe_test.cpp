#include "ops/moe.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "ops/activation.h"
#include "ops/elementwise.h"
#include "ops/gemm.h"
#include "ops/testing/support.h"

namespace sluice::ops {
namespace {

struct Choice {
  std::vector<int> ids;
  std::vector<float> weights;
};

Choice route_one(Context& ctx, const std::vector<float>& logits, const std::vector<float>& bias,
                 const RouterParams& params) {
  const auto experts = static_cast<std::int64_t>(logits.size());
  Owned x(DType::kF32, {1, experts}), b(DType::kF32, {experts});
  Owned weights(DType::kF32, {1, params.top_k}), ids(DType::kI32, {1, params.top_k});
  std::copy(logits.begin(), logits.end(), x.data<float>());
  std::copy(bias.begin(), bias.end(), b.data<float>());
  route(ctx, x, bias.empty() ? Tensor{} : b.view, params, weights, ids);
  Choice choice;
  for (int j = 0; j < params.top_k; ++j) {
    choice.ids.push_back(ids.data<std::int32_t>()[j]);
    choice.weights.push_back(weights.data<float>()[j]);
  }
  return choice;
}

float sigmoid(float x) {
  return static_cast<float>(1 / (1 + std::exp(-static_cast<double>(x))));
}

TEST(Router, SoftmaxFamilies) {
  Machine machine(CpuIsa::kAvx2);
  const std::vector<float> logits = {1, 3, 2, 3, -1, 0};
  double sum = 0;
  for (float x : logits) sum += std::exp(double(x));
  // Ties go to the lower id, and experts are listed in ascending order.
  Choice plain = route_one(machine.ctx, logits, {}, softmax_router(3, false));
  EXPECT_EQ(plain.ids, (std::vector<int>{1, 2, 3}));
  EXPECT_FLOAT_EQ(plain.weights[1], static_cast<float>(std::exp(2.0) / sum));
  Choice mixtral = route_one(machine.ctx, logits, {}, softmax_router(2, true));
  EXPECT_EQ(mixtral.ids, (std::vector<int>{1, 3}));
  EXPECT_FLOAT_EQ(mixtral.weights[0], 0.5f);
  EXPECT_EQ(route_one(machine.ctx, logits, {}, softmax_router(1, false)).ids,
            (std::vector<int>{1}));
  Choice all = route_one(machine.ctx, logits, {}, softmax_router(6, false));
  EXPECT_EQ(all.ids, (std::vector<int>{0, 1, 2, 3, 4, 5}));
}

TEST(Router, DeepseekV2GroupsByTheirBestAndScaling) {
  Machine machine(CpuIsa::kAvx2);
  // Groups {0,1} {2,3} {4,5} have the best scores 5, 4, 4.5. The first and the last are kept.
  const std::vector<float> logits = {5, 0, 4, 4, 4.5f, -3};
  double sum = 0;
  for (float x : logits) sum += std::exp(double(x));
  Choice scaled = route_one(machine.ctx, logits, {}, deepseek_v2_router(3, 3, 2, false, 16.0f));
  EXPECT_EQ(scaled.ids, (std::vector<int>{0, 1, 4}));
  EXPECT_FLOAT_EQ(scaled.weights[0], static_cast<float>(16 * std::exp(5.0) / sum));
  Choice normalised = route_one(machine.ctx, logits, {}, deepseek_v2_router(3, 3, 2, true, 16.0f));
  EXPECT_NEAR(normalised.weights[0] + normalised.weights[1] + normalised.weights[2], 1.0f,
              4 * kEps);
  // One expert per token: never normalised.
  EXPECT_FLOAT_EQ(
      route_one(machine.ctx, logits, {}, deepseek_v2_router(1, 3, 2, true, 16.0f)).weights[0],
      static_cast<float>(16 * std::exp(5.0) / sum));
}

TEST(Router, DeepseekV3ChoosesWithTheBiasAndWeighsWithout) {
  Machine machine(CpuIsa::kAvx2);
  const std::vector<float> logits = {0.1f, 0.2f, 0.3f, 0.4f};
  const Choice c =
      route_one(machine.ctx, logits, {1.0f, 0, 0, 0}, deepseek_v3_router(2, 1, 1, true, 2.5f));
  EXPECT_EQ(c.ids, (std::vector<int>{0, 3}));
  const float a = sigmoid(0.1f), b = sigmoid(0.4f);
  EXPECT_FLOAT_EQ(c.weights[0], a / (a + b) * 2.5f);
  EXPECT_FLOAT_EQ(c.weights[1], b / (a + b) * 2.5f);
  const Choice raw =
      route_one(machine.ctx, logits, {1.0f, 0, 0, 0}, deepseek_v3_router(2, 1, 1, false, 2.5f));
  EXPECT_FLOAT_EQ(raw.weights[1], b * 2.5f);
}

TEST(Router, DeepseekV3GroupsBySumOfTwoBestAndMaskedGroupsAreMinusInfinity) {
  Machine machine(CpuIsa::kAvx2);
  // Choice values of the groups: {0.9, 0.0}, {0.5, 0.5}, {0.6, 0.1}. Their sums are 0.9, 1.0, 0.7,
  // so the middle group is kept.
  std::vector<float> logits(6, 0.0f);  // all scores 0.5
  const std::vector<float> bias = {0.4f, -0.5f, 0, 0, 0.1f, -0.4f};
  EXPECT_EQ(route_one(machine.ctx, logits, bias, deepseek_v3_router(2, 3, 1, true, 1)).ids,
            (std::vector<int>{2, 3}));
  // All kept values are negative: a masked expert that counts as 0 would win.
  const std::vector<float> negative = {-2, -2, -1, -1, -3, -3};
  EXPECT_EQ(route_one(machine.ctx, logits, negative, deepseek_v3_router(2, 3, 1, true, 1)).ids,
            (std::vector<int>{2, 3}));
  // If groups tie, the lower one is kept.
  EXPECT_EQ(route_one(machine.ctx, logits, std::vector<float>(6, 0.0f),
                      deepseek_v3_router(2, 3, 1, true, 1))
                .ids,
            (std::vector<int>{0, 1}));
}

TEST(Router, ErnieChoosesWithTheBiasAndBoundsTheSum) {
  Machine machine(CpuIsa::kAvx2);
  const std::vector<float> logits = {1, 3, 2, -1};
  double sum = 0;
  for (float x : logits) sum += std::exp(double(x));
  const auto p = [&](int e) { return static_cast<float>(std::exp(double(logits[e])) / sum); };
  const Choice c = route_one(machine.ctx, logits, {0, 0, 0, 2}, ernie_router(2, 1e-12f));
  EXPECT_EQ(c.ids, (std::vector<int>{1, 3}));
  EXPECT_FLOAT_EQ(c.weights[0], p(1) / (p(1) + p(3)));
  const Choice bounded = route_one(machine.ctx, logits, {0, -9, -9, 2}, ernie_router(2, 0.5f));
  EXPECT_EQ(bounded.ids, (std::vector<int>{0, 3}));
  EXPECT_FLOAT_EQ(bounded.weights[1], p(3) / 0.5f);  // p(0) + p(3) is 0.1
}

TEST(Router, Llama4ComparesLogitsAndWeighsWithTheirSigmoids) {
  Machine machine(CpuIsa::kAvx2);
  // All sigmoids but one are 1.
  const Choice c = route_one(machine.ctx, {90, 100, -3, 80}, {}, llama4_router(1));
  EXPECT_EQ(c.ids, (std::vector<int>{1}));
  EXPECT_EQ(c.weights[0], 1.0f);
  const Choice two = route_one(machine.ctx, {-1, 0.5f, -2, 0.25f}, {}, llama4_router(2));
  EXPECT_EQ(two.ids, (std::vector<int>{1, 3}));
  EXPECT_FLOAT_EQ(two.weights[1], sigmoid(0.25f));
}

TEST(Router, SparseMixerWeighsEachChoiceAmongItsNeighbours) {
  Machine machine(CpuIsa::kAvx2);
  // Round one: only 2.99 is within 2 % of 3.0. Round two: 2.99 is the best, and nothing is near it.
  const Choice c = route_one(machine.ctx, {2.99f, 1, 3, -5}, {}, sparse_mixer(0.01f));
  EXPECT_EQ(c.ids, (std::vector<int>{0, 2}));
  EXPECT_FLOAT_EQ(c.weights[0], 1.0f);
  EXPECT_NEAR(c.weights[1], 1 / (1 + std::exp(-0.01)), 4e-7);  // 2.99f is off by up to 1.2e-7
  // Negative logits: the distance is relative to the magnitude of each logit. Round one: (-2 +
  // 2.03) / 2.03 is near, (-2 + 3) / 3 is not. Round two has nothing else near -2.03.
  const Choice negative = route_one(machine.ctx, {-3, -2.03f, -2}, {}, sparse_mixer(0.01f));
  EXPECT_EQ(negative.ids, (std::vector<int>{1, 2}));
  EXPECT_NEAR(negative.weights[1], 1 / (1 + std::exp(-0.03)), 4e-7);
  EXPECT_FLOAT_EQ(negative.weights[0], 1.0f);
  EXPECT_THROW(
      route_one(machine.ctx, {1, 2, 3}, {}, {.method = TopkMethod::kSparseMixer, .top_k = 1}),
      Error);
}

// DeepSeek-V3 routing by sorting: 64 experts in 8 groups, 3 groups kept, 6 experts selected.
std::vector<int> route_by_sorting(const Tensor& logits, const Tensor& bias, std::int64_t t) {
  std::vector<std::pair<double, int>> groups,
      experts;  // negated: the best comes first, ties by lower id
  std::vector<double> choice(64);
  for (int e = 0; e < 64; ++e)
    choice[e] =
        sigmoid(static_cast<float>(get(logits, {t, e}))) + static_cast<float>(get(bias, {e}));
  for (int g = 0; g < 8; ++g) {
    std::vector<double> inside(choice.begin() + g * 8, choice.begin() + g * 8 + 8);
    std::sort(inside.rbegin(), inside.rend());
    groups.emplace_back(-(inside[0] + inside[1]), g);
  }
  std::sort(groups.begin(), groups.end());
  for (int i = 0; i < 3; ++i)
    for (int e = groups[i].second * 8; e < groups[i].second * 8 + 8; ++e)
      experts.emplace_back(-choice[e], e);
  std::sort(experts.begin(), experts.end());
  std::vector<int> ids;
  for (int j = 0; j < 6; ++j) ids.push_back(experts[j].second);
  std::sort(ids.begin(), ids.end());
  return ids;
}

TEST(Router, RowsAreIndependentAndBadSettingsAreBugs) {
  on_every_machine([](Context& ctx, Context& alone) {
    Owned logits(DType::kF32, {400, 64}, 1), bias(DType::kF32, {64}), w(DType::kF32, {400, 6}, 1),
        w1(DType::kF32, {1, 6});
    Owned ids(DType::kI32, {400, 6}, 1), ids1(DType::kI32, {1, 6});
    fill(logits, 1, 3.0);
    fill(bias, 2);
    const RouterParams params = deepseek_v3_router(6, 8, 3, true, 2.5f);
    route(ctx, logits, bias, params, w, ids);
    for (std::int64_t t = 0; t < 400; t += 7) {
      route(alone, logits->rows(t, 1), bias, params, w1, ids1);
      ASSERT_TRUE(same_bits(w->rows(t, 1), w1) && same_bits(ids->rows(t, 1), ids1));
      EXPECT_EQ(
          route_by_sorting(logits, bias, t),
          std::vector<int>(ids.data<std::int32_t>() + t * 7, ids.data<std::int32_t>() + t * 7 + 6));
    }
    EXPECT_THROW(route(ctx, logits, {}, params, w, ids), Error);
    EXPECT_THROW(route(ctx, logits, bias, deepseek_v3_router(6, 5, 3, true, 1), w, ids), Error);
    EXPECT_THROW(route(ctx, logits, {}, softmax_router(5, true), w, ids), Error);
  });
}

struct Experts {
  Experts(std::int64_t tokens, std::int64_t experts, std::int64_t top_k, std::int64_t hidden,
          std::int64_t inner, DType x_dtype, DType w_dtype)
      : x(x_dtype, {tokens, hidden}, 2),
        w13(w_dtype, {experts, 2 * inner, hidden}),
        w2(w_dtype, {experts, hidden, inner}),
        weights(DType::kF32, {tokens, top_k}),
        ids(DType::kI32, {tokens, top_k}) {
    fill(x, 1);
    fill(w13, 2);
    fill(w2, 3);
    fill(weights, 4);
    std::mt19937 random(5);
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::set<int> chosen;
      // Low ids are selected more often, the last expert never.
      while (std::ssize(chosen) < top_k)
        chosen.insert(
            static_cast<int>(std::min(random() % (experts - 1), random() % (experts - 1))));
      std::int64_t j = 0;
      for (int e : chosen) put(ids, {t, j++}, e);
    }
  }
  void run(Context& ctx, std::int64_t first, std::int64_t count, const Tensor& out,
           std::int64_t block = 0, const ExpertParams& params = {}) const {
    Arena arena(64 << 20);
    const MoeWorkspace workspace =
        take_moe_workspace(arena, block > 0 ? block : count, ids->dim(1), w13->dim(0), x->dim(1),
                           w2->dim(2), {x->dtype, w2->dim(2)});
    fused_experts(ctx, x->rows(first, count), w13, w2, weights->rows(first, count),
                  ids->rows(first, count), params, workspace, out);
  }

  Owned x, w13, w2, weights, ids;
};

// Rows with gaps between them, which stay as they were.
TEST(PlaceExperts, NumbersBecomePlacesOfTheRank) {
  Machine machine(CpuIsa::kAvx2, 3);
  Owned places(DType::kI32, {5}), ids(DType::kI32, {400, 2}, 3);
  const std::int32_t wanted[] = {-1, 0, -1, 1, 2};
  std::copy_n(wanted, 5, places.data<std::int32_t>());
  for (int t = 0; t < 400; ++t) put(ids, {t, 0}, t % 4), put(ids, {t, 1}, t % 4 + 1);
  place_experts(machine.ctx, places, ids);
  for (int t = 0; t < 400; ++t)
    for (int j = 0; j < 2; ++j) ASSERT_EQ(get(ids, {t, j}), wanted[t % 4 + j]) << t;
  EXPECT_EQ(ids.data<std::int32_t>()[2], -1);
  put(ids, {7, 1}, 5);
  EXPECT_THROW(place_experts(machine.ctx, places, ids), Error);
}

TEST(CountChoices, AddsTheTokensOfEachExpert) {
  Machine machine(CpuIsa::kAvx2, 3);
  Owned choices(DType::kI64, {4}), ids(DType::kI32, {30, 2}, 3);
  std::fill_n(choices.data<std::int64_t>(), 4, 100);
  for (int t = 0; t < 30; ++t) put(ids, {t, 0}, t % 3), put(ids, {t, 1}, 2);
  count_choices(machine.ctx, ids, choices);
  const std::int64_t* const counts = choices.data<std::int64_t>();
  EXPECT_EQ(std::vector(counts, counts + 4), (std::vector<std::int64_t>{110, 110, 140, 100}));
  put(ids, {7, 1}, 4);
  EXPECT_THROW(count_choices(machine.ctx, ids, choices), Error);
}

// Built from the separate ops, one pair at a time: the same arithmetic, so the same bits.
TEST(FusedExperts, EqualsTheExpertsOneByOne) {
  on_every_machine([](Context& ctx, Context& alone) {
    for (DType x_dtype : {DType::kF32, DType::kBF16}) {
      for (DType w_dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        constexpr std::int64_t kTokens = 23, kHidden = 40, kInner = 27;
        Experts e(kTokens, 7, 3, kHidden, kInner, x_dtype, w_dtype);
        put(e.ids, {4, 1}, -1);
        for (int j = 0; j < 3; ++j) put(e.ids, {5, j}, -1);
        Owned out(DType::kF32, {kTokens, kHidden}, 1), one(DType::kF32, {1, kHidden});
        e.run(ctx, 0, kTokens, out);
        EXPECT_TRUE(gaps_untouched(out));
        for (std::int64_t t = 0; t < kTokens; ++t) {
          std::vector<float> want(kHidden, 0.0f);
          for (int j = 0; j < 3; ++j) {
            const auto expert = static_cast<std::int64_t>(get(e.ids, {t, j}));
            if (expert < 0) continue;
            Owned both(DType::kF32, {1, 2 * kInner}), inner(x_dtype, {1, kInner}),
                down(DType::kF32, {1, kHidden});
            linear(alone, e.x->rows(t, 1), e.w13->at(expert), {}, both);
            silu_and_mul(alone, both, inner);
            linear(alone, inner, e.w2->at(expert), {}, down);
            const auto weight = static_cast<float>(get(e.weights, {t, j}));
            for (std::int64_t i = 0; i < kHidden; ++i)
              want[i] += weight * static_cast<float>(get(down, {0, i}));
          }
          for (std::int64_t i = 0; i < kHidden; ++i)
            ASSERT_EQ(get(out, {t, i}), want[i]) << t << " " << i;
          e.run(alone, t, 1, one);
          ASSERT_TRUE(same_bits(out->rows(t, 1), one)) << t;
        }
      }
    }
  });
}

struct Variant {
  bool interleaved, biases, weigh_input;
  float clamp;
};

// The definition in double, from row-major weights. float32 experts: gate and up are off by the
// rounding of a few operations on values of at most a few units. The w2 GEMM sums kInner of them.
TEST(FusedExperts, BiasesClampsAndWeighedInputsFollowTheirDefinition) {
  constexpr std::int64_t kTokens = 19, kExperts = 6, kTopK = 2, kHidden = 40, kInner = 70;
  for (const Variant& variant :
       {Variant{true, true, false, 1.5f}, Variant{false, true, false, 0.0f},
        Variant{false, false, true, 0.0f}, Variant{true, false, true, 0.7f}}) {
    on_every_machine([&](Context& ctx, Context& alone) {
      Experts e(kTokens, kExperts, kTopK, kHidden, kInner, DType::kF32, DType::kF32);
      put(e.ids, {4, 1}, -1);
      Owned up_bias(DType::kF32, {kExperts, 2 * kInner}),
          down_bias(DType::kF32, {kExperts, kHidden});
      fill(up_bias, 6);
      fill(down_bias, 7);
      ExpertParams params(Activation::kSilu);
      params.interleaved = variant.interleaved;
      params.clamp = variant.clamp;
      params.weigh_input = variant.weigh_input;
      if (variant.biases) params.up_bias = up_bias.view, params.down_bias = down_bias.view;
      Owned out(DType::kF32, {kTokens, kHidden}, 1), one(DType::kF32, {1, kHidden});
      e.run(ctx, 0, kTokens, out, 8, params);
      EXPECT_TRUE(gaps_untouched(out));
      for (std::int64_t t = 0; t < kTokens; ++t) {
        std::vector<double> want(kHidden, 0.0);
        double size = 0;
        for (int j = 0; j < kTopK; ++j) {
          const auto expert = static_cast<std::int64_t>(get(e.ids, {t, j}));
          if (expert < 0) continue;
          const double weight = get(e.weights, {t, j});
          const auto product = [&](std::int64_t r) {
            double sum = 0;
            for (std::int64_t i = 0; i < kHidden; ++i)
              sum += get(e.x, {t, i}) * get(e.w13, {expert, r, i});
            if (variant.weigh_input) sum *= weight;
            return variant.biases ? sum + get(up_bias, {expert, r}) : sum;
          };
          std::vector<double> inner(kInner);
          for (std::int64_t i = 0; i < kInner; ++i) {
            double gate = product(variant.interleaved ? 2 * i : i);
            double up = product(variant.interleaved ? 2 * i + 1 : kInner + i);
            if (variant.clamp > 0) {
              gate = std::min(gate, double(variant.clamp));
              up = std::clamp(up, -double(variant.clamp), double(variant.clamp));
              inner[i] = (up + 1) * gate / (1 + std::exp(-double(params.alpha) * gate));
            } else {
              inner[i] = up * gate / (1 + std::exp(-gate));
            }
          }
          for (std::int64_t h = 0; h < kHidden; ++h) {
            double sum = variant.biases ? get(down_bias, {expert, h}) : 0,
                   magnitude = std::abs(sum);
            for (std::int64_t i = 0; i < kInner; ++i) {
              sum += inner[i] * get(e.w2, {expert, h, i});
              magnitude += std::abs(inner[i] * get(e.w2, {expert, h, i}));
            }
            want[h] += variant.weigh_input ? sum : weight * sum;
            size = std::max(size, magnitude);
          }
        }
        // Each inner value is made of two sums of kHidden terms. Relative to its size, it is off by
        // a few kHidden eps.
        for (std::int64_t h = 0; h < kHidden; ++h)
          ASSERT_NEAR(get(out, {t, h}), want[h], 2 * (3 * kHidden + kInner) * kEps * (1 + size))
              << t << " " << h;
        e.run(alone, t, 1, one, 0, params);
        ASSERT_TRUE(same_bits(out->rows(t, 1), one)) << t;
      }
    });
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(FusedExperts, BlocksOfTokensDoNotShow) {
  on_every_machine([](Context& ctx, Context&) {
    Experts e(50, 5, 2, 16, 8, DType::kF32, DType::kBF16);
    Owned whole(DType::kF32, {50, 16}), blocks(DType::kF32, {50, 16});
    e.run(ctx, 0, 50, whole);
    e.run(ctx, 0, 50, blocks, 8);
    EXPECT_TRUE(same_bits(whole, blocks));
  });
  EXPECT_EQ(fused_experts_workspace(100000, 8, 256).pairs,
            fused_experts_workspace(50000, 8, 256).pairs);
}

TEST(FusedExperts, IdsThatDoNotAscendAreBugs) {
  Machine machine(CpuIsa::kAvx2);
  Experts e(2, 5, 2, 16, 8, DType::kF32, DType::kF32);
  Owned out(DType::kF32, {2, 16});
  for (auto [a, b] : {std::pair{3, 3}, std::pair{2, 1}, std::pair{1, 5}, std::pair{-2, 1}}) {
    put(e.ids, {1, 0}, a);
    put(e.ids, {1, 1}, b);
    EXPECT_THROW(e.run(machine.ctx, 0, 2, out), Error) << a << " " << b;
  }
}

}  // namespace
}  // namespace sluice::ops
