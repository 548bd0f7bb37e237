#include "speculative/verification.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "base/testing/source_dir.h"

namespace sluice {
namespace {

using Tokens = std::vector<std::int32_t>;
using Floats = std::vector<float>;

// 20 draws of each token are expected at least; 99.9 % of right samples stay below the bound, by
// Wilson and Hilferty's cube root.
void expect_distribution(const std::vector<int>& counts, const Floats& wanted) {
  double total = 0, chi = 0;
  for (const int count : counts) total += count;
  int degrees = -1;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double expected = total * wanted[i];
    if (wanted[i] <= 0) {
      EXPECT_EQ(counts[i], 0) << i;
      continue;
    }
    ASSERT_GT(expected, 20);
    chi += (counts[i] - expected) * (counts[i] - expected) / expected;
    ++degrees;
  }
  const double spread = 2.0 / (9 * degrees);
  EXPECT_LT(chi, degrees * std::pow(1 - spread + 3.09 * std::sqrt(spread), 3));
}

class Uniform {
 public:
  float operator()() { return std::uniform_real_distribution<float>(0, 1)(engine_); }
  std::int32_t draw(const Floats& weights) {
    return std::discrete_distribution<std::int32_t>(weights.begin(), weights.end())(engine_);
  }

 private:
  std::mt19937 engine_{11};
};

// The first token of a chain has the target's distribution, whatever drafted it.
TEST(Verification, AChainKeepsTheDistributionOfTheTarget) {
  const Floats target = {0.1f, 0.4f, 0, 0.3f, 0.2f}, next = {0.5f, 0, 0.25f, 0.25f, 0};
  for (const Floats& draft : {Floats{0.2f, 0.2f, 0.2f, 0.2f, 0.2f}, Floats{0, 0, 1, 0, 0},
                              Floats{0.1f, 0.4f, 0, 0.3f, 0.2f}, Floats{0.7f, 0.1f, 0.2f, 0, 0}}) {
    Uniform uniform;
    std::vector<int> first(5), second(5);
    Floats both = target;
    both.insert(both.end(), next.begin(), next.end());
    for (int i = 0; i < 100'000; ++i) {
      const Tokens drafts = {uniform.draw(draft)};
      const Floats coins = {uniform()};
      const ChainVerdict verdict = verify_chain(drafts, draft, both, coins, uniform());
      ++first[static_cast<std::size_t>(verdict.tokens[0])];
      ASSERT_EQ(verdict.tokens.size(), verdict.accepted + 1);
      if (verdict.accepted == 1) ++second[static_cast<std::size_t>(verdict.tokens[1])];
    }
    expect_distribution(first, target);
    if (draft[2] < 1) expect_distribution(second, next);
  }
}

// Drafts 1 and 3 behind the known token, 0 and 2 behind draft 1.
TEST(Verification, ATreeKeepsTheDistributionOfTheTarget) {
  const Tokens tokens = {9, 1, 3, 0, 2}, child = {1, 3, -1, -1, -1}, sibling = {-1, 2, -1, 4, -1};
  const Floats root = {0.1f, 0.4f, 0, 0.3f, 0.2f}, behind = {0.05f, 0.05f, 0.6f, 0.1f, 0.2f};
  Floats all;
  for (int node = 0; node < 5; ++node) {
    const Floats& row = node == 0 ? root : behind;
    all.insert(all.end(), row.begin(), row.end());
  }
  Uniform uniform;
  std::vector<int> first(5), second(5);
  for (int i = 0; i < 100'000; ++i) {
    Floats coins(5);
    std::ranges::generate(coins, std::ref(uniform));
    const TreeVerdict verdict = verify_tree({tokens, child, sibling, all}, coins, uniform(), {});
    ASSERT_EQ(verdict.tokens.size(), verdict.nodes.size());
    ++first[static_cast<std::size_t>(verdict.tokens[0])];
    if (verdict.tokens.size() > 1) ++second[static_cast<std::size_t>(verdict.tokens[1])];
  }
  expect_distribution(first, root);
  expect_distribution(second, behind);
}

TEST(Verification, ThresholdsAcceptMore) {
  const Tokens tokens = {9, 1}, child = {1, -1}, sibling = {-1, -1};
  const Floats rows = {0.7f, 0.3f, 0.5f, 0.5f}, coins = {0.35f, 0};
  const DraftTree tree{tokens, child, sibling, rows};
  EXPECT_EQ(verify_tree(tree, coins, 0, {}).nodes, (Tokens{0}));
  EXPECT_EQ(verify_tree(tree, coins, 0, {.single = 0.3}).nodes, (Tokens{0, 1}));
  EXPECT_EQ(verify_tree(tree, coins, 0, {.accumulated = 0.8}).nodes, (Tokens{0, 1}));
}

TEST(Verification, ARingOfNodesIsRefused) {
  const Tokens tokens = {0, 1}, child = {1, 0}, sibling = {-1, -1};
  const Floats rows(4, 0.5f), coins(2, 0);
  EXPECT_THROW(verify_tree({tokens, child, sibling, rows}, coins, 0, {}), Error);
}

Floats rows_of(const Json& rows) {
  Floats out;
  for (const Json& row : rows)
    for (const Json& value : row) out.push_back(value.get<float>());
  return out;
}

// References lie beside the repository on machines of developers.
TEST(Verification, EqualsRecordedVerdicts) {
  const auto file =
      std::filesystem::path(source_dir()).parent_path() / "shared/golden/speculation/verify.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  int trees = 0, chains = 0;
  const Json reference = parse_json_or_throw(text.str(), "verify.json");
  for (const Json& one : reference["cases"]) {
    SCOPED_TRACE(one["number"].get<int>());
    const Floats coins = one["coins"], target = rows_of(one["target_probs"]);
    const float last = one["coin_final"];
    if (one["kind"] == "tree_target_only") {
      const Tokens tokens = one["draft_tokens"], child = one["retrieve_next_token"],
                   sibling = one["retrieve_next_sibling"];
      const TreeVerdict verdict =
          verify_tree({tokens, child, sibling, target}, coins, last,
                      {.single = one["threshold_single"], .accumulated = one["threshold_acc"]});
      EXPECT_EQ(verdict.nodes, one["accepted_nodes"].get<Tokens>());
      EXPECT_EQ(verdict.tokens, one["emitted"].get<Tokens>());
      ++trees;
    } else {
      const Tokens drafts = one["drafts"];
      const ChainVerdict verdict =
          verify_chain(drafts, rows_of(one["draft_probs"]), target, coins, last);
      EXPECT_EQ(verdict.accepted, one["accepted"].get<std::size_t>());
      EXPECT_EQ(verdict.tokens, one["emitted"].get<Tokens>());
      ++chains;
    }
  }
  EXPECT_EQ(trees, 61);
  EXPECT_EQ(chains, 59);
}

}  // namespace
}  // namespace sluice
