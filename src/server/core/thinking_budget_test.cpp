// The limit of thoughts, token by token.
#include "server/core/thinking_budget.h"
#include "base/testing/source_dir.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace sluice {
namespace {

constexpr std::int32_t kVocab = 4096;

std::shared_ptr<const Tokenizer> tiny_tokenizer() {
  static const std::shared_ptr<const Tokenizer> kTokenizer =
      Tokenizer::load(source_dir() + "/models/sluice-tiny");
  return kTokenizer;
}

ThinkingBudget budget_of(std::int64_t max_tokens, bool is_thinking) {
  ThinkingBudget budget;
  budget.max_tokens = max_tokens;
  budget.tokenizer = tiny_tokenizer();
  budget.open = budget.tokenizer->token_id("<think>");
  budget.close = budget.tokenizer->token_id("</think>").value();
  budget.is_thinking = is_thinking;
  return budget;
}

std::vector<std::int32_t> allowed(TokenConstraint& constraint) {
  std::vector<std::uint32_t> bits(kVocab / 32);
  EXPECT_TRUE(constraint.fill(bits));
  std::vector<std::int32_t> out;
  for (std::int32_t id = 0; id < kVocab; ++id)
    if (bits[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1) out.push_back(id);
  return out;
}

std::int32_t word_token() {
  return tiny_tokenizer()->encode("word", {.add_special_tokens = false})[0];
}

// Allows one token alone.
class Only : public TokenConstraint {
 public:
  explicit Only(std::int32_t token) : token_(token) {}
  bool fill(std::span<std::uint32_t> bits) override {
    std::ranges::fill(bits, 0);
    bits[static_cast<std::size_t>(token_) / 32] = 1u << (token_ % 32);
    return true;
  }
  bool accept(std::int32_t token) override { return token == token_; }
  void rollback(std::size_t) override {}

 private:
  const std::int32_t token_;
};

TEST(ThinkingBudget, OnlyTheClosingMarkMayComeAtTheLimit) {
  const ThinkingBudget budget = budget_of(3, true);
  const auto constraint = limit_thoughts(budget, {})();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(allowed(*constraint).size(), static_cast<std::size_t>(kVocab)) << i;
    EXPECT_TRUE(constraint->accept(word_token()));
  }
  EXPECT_EQ(allowed(*constraint), std::vector<std::int32_t>{budget.close});
  EXPECT_TRUE(constraint->accept(budget.close));
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(allowed(*constraint).size(), static_cast<std::size_t>(kVocab)) << i;
    EXPECT_TRUE(constraint->accept(word_token()));
  }
}

TEST(ThinkingBudget, CountsFromTheModelsOwnOpeningMark) {
  const ThinkingBudget budget = budget_of(1, false);
  const auto constraint = limit_thoughts(budget, {})();
  const std::int32_t newline = budget.tokenizer->encode("\n", {.add_special_tokens = false})[0];
  EXPECT_TRUE(constraint->accept(newline));
  EXPECT_TRUE(constraint->accept(*budget.open));
  EXPECT_EQ(allowed(*constraint).size(), static_cast<std::size_t>(kVocab));
  EXPECT_TRUE(constraint->accept(word_token()));
  EXPECT_EQ(allowed(*constraint), std::vector<std::int32_t>{budget.close});
}

TEST(ThinkingBudget, MarksInAnAnswerAreText) {
  const ThinkingBudget budget = budget_of(0, false);
  const auto constraint = limit_thoughts(budget, {})();
  EXPECT_TRUE(constraint->accept(word_token()));
  EXPECT_TRUE(constraint->accept(*budget.open));
  EXPECT_EQ(allowed(*constraint).size(), static_cast<std::size_t>(kVocab));
}

TEST(ThinkingBudget, TokensTakenBackCountNoMore) {
  const ThinkingBudget budget = budget_of(2, true);
  const auto constraint = limit_thoughts(budget, {})();
  EXPECT_TRUE(constraint->accept(word_token()));
  EXPECT_TRUE(constraint->accept(word_token()));
  EXPECT_EQ(allowed(*constraint).size(), 1u);
  constraint->rollback(1);
  EXPECT_EQ(allowed(*constraint).size(), static_cast<std::size_t>(kVocab));
  EXPECT_TRUE(constraint->accept(word_token()));
  EXPECT_TRUE(constraint->accept(budget.close));
  EXPECT_EQ(allowed(*constraint).size(), static_cast<std::size_t>(kVocab));
  constraint->rollback(1);
  EXPECT_EQ(allowed(*constraint), std::vector<std::int32_t>{budget.close});
}

TEST(ThinkingBudget, AGrammarHoldsBesideIt) {
  const ThinkingBudget budget = budget_of(0, true);
  const auto closing =
      limit_thoughts(budget, [&] { return std::make_unique<Only>(budget.close); })();
  EXPECT_EQ(allowed(*closing), std::vector<std::int32_t>{budget.close});
  EXPECT_FALSE(closing->accept(word_token()));
  // A grammar that does not let the thoughts end is not broken by the budget.
  const auto other = limit_thoughts(budget, [] { return std::make_unique<Only>(word_token()); })();
  EXPECT_EQ(allowed(*other), std::vector<std::int32_t>{word_token()});
}

}  // namespace
}  // namespace sluice
