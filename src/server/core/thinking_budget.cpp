#include "server/core/thinking_budget.h"

#include <algorithm>

namespace sluice {
namespace {

class ThoughtLimit : public TokenConstraint {
 public:
  ThoughtLimit(const ThinkingBudget& budget, std::unique_ptr<TokenConstraint> inner)
      : budget_(budget), inner_(std::move(inner)), begin_(budget.is_thinking ? 0 : -1) {}

  bool fill(std::span<std::uint32_t> bits) override {
    if (inner_) {
      if (!inner_->fill(bits)) return false;
      if (!must_close() || !is_set(bits)) return true;
    } else if (!must_close()) {
      std::ranges::fill(bits, ~std::uint32_t{0});
      return true;
    }
    std::ranges::fill(bits, 0);
    bits[word()] = std::uint32_t{1} << (static_cast<std::uint32_t>(budget_.close) % 32);
    return true;
  }

  bool accept(std::int32_t token) override {
    if (inner_ && !inner_->accept(token)) return false;
    ++num_tokens_;
    if (end_ >= 0) return true;
    if (begin_ >= 0) {
      if (token == budget_.close) end_ = num_tokens_;
    } else if (token == budget_.open) {
      begin_ = num_tokens_;
    } else if (!is_space(token)) {
      end_ = num_tokens_;  // the answer has begun: marks in it are text
    }
    return true;
  }

  void rollback(std::size_t count) override {
    if (inner_) inner_->rollback(count);
    num_tokens_ -= static_cast<std::int64_t>(count);
    if (end_ > num_tokens_) end_ = -1;
    if (begin_ > num_tokens_) begin_ = -1;
  }

  void draft(int max_drafts, std::vector<std::int32_t>& drafts) override {
    if (must_close())
      drafts.push_back(budget_.close);
    else if (inner_)
      inner_->draft(max_drafts, drafts);
  }

 private:
  std::size_t word() const { return static_cast<std::size_t>(budget_.close) / 32; }
  bool is_set(std::span<const std::uint32_t> bits) const {
    return (bits[word()] >> (static_cast<std::uint32_t>(budget_.close) % 32) & 1) != 0;
  }
  bool must_close() const {
    return begin_ >= 0 && end_ < 0 && num_tokens_ - begin_ >= budget_.max_tokens;
  }
  bool is_space(std::int32_t token) const {
    return budget_.tokenizer->token_bytes_view(token).find_first_not_of(" \t\r\n") ==
           std::string_view::npos;
  }

  const ThinkingBudget budget_;
  const std::unique_ptr<TokenConstraint> inner_;
  std::int64_t num_tokens_ = 0;
  std::int64_t begin_;     // tokens before the first thought; -1: none has come
  std::int64_t end_ = -1;  // tokens up to the end of the thoughts; -1: they have not ended
};

}  // namespace

ConstraintMaker limit_thoughts(ThinkingBudget budget, ConstraintMaker inner) {
  return [budget = std::move(budget), inner = std::move(inner)] {
    return std::make_unique<ThoughtLimit>(budget, inner ? inner() : nullptr);
  };
}

}  // namespace sluice
