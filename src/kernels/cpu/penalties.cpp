// Rules of requests on their rows of logits, and log-probabilities, on the CPU: the arithmetic of sampling/sampler.h.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "base/thread_pool.h"
#include "kernels/cpu/draw.h"
#include "kernels/cpu/rule_math.h"
#include "kernels/cpu/step.h"

namespace sluice::cpu {
namespace {

using ops::RowAsk;
using ops::RowChoice;
using ops::TokenRule;

template <class Body>
void each_row(Context& ctx, std::int64_t rows, Body&& body) {
  ctx.pool->parallel_for(rows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(i);
  });
}

std::span<float> row_of(const Tensor& logits, std::int64_t i) {
  return {logits.rows(i, 1).ptr<float>(), static_cast<std::size_t>(logits.dim(1))};
}

struct RuleList {
  TokenRule* begin;
  std::int32_t& length;

  TokenRule* find(std::int32_t token) const {
    TokenRule* const end = begin + length;
    TokenRule* const found = std::find_if(begin, end, [&](const TokenRule& rule) { return rule.token == token; });
    return found == end ? nullptr : found;
  }
};
RuleList rules_of(const Tensor& rules, const Tensor& lengths, std::int32_t slot) {
  return {ops::token_rules(rules) + slot * rules.dim(1), lengths.ptr<std::int32_t>()[slot]};
}

}  // namespace

void read_logprobs(Context& ctx, const Tensor& logits, const Tensor& asks, const Tensor& choices) {
  each_row(ctx, logits.dim(0), [&](std::int64_t i) {
    const int wanted = ops::row_asks(asks)[i].num_top_logprobs;
    RowChoice& choice = ops::row_choices(choices)[i];
    choice = {};
    if (wanted < 0) return;
    const std::span<const float> row = row_of(logits, i);
    const draw::RowMax max = draw::row_max(row);
    if (!max.finite) return;
    choice.normaliser = draw::log_sum_exp(row, max.value);
    choice.num_top = draw::top_entries(row, std::min<int>(wanted, ops::kMaxTopLogprobs), choice.normaliser, choice.top);
  });
}

void adjust_logits(Context& ctx, const Tensor& asks, const Tensor& rules, const Tensor& lengths, const Tensor& logits) {
  each_row(ctx, logits.dim(0), [&](std::int64_t i) {
    const RowAsk& ask = ops::row_asks(asks)[i];
    if (ask.slot < 0) return;
    const std::span<float> row = row_of(logits, i);
    const RuleList list = rules_of(rules, lengths, ask.slot);
    for (std::int32_t k = 0; k < list.length; ++k) {
      TokenRule& rule = list.begin[k];
      rule.raw = row[static_cast<std::size_t>(rule.token)];
      row[static_cast<std::size_t>(rule.token)] = draw::ruled_logit(rule, ask);
    }
  });
}

void remember_choices(Context& ctx, const Tensor& tokens, const Tensor& logits, const Tensor& asks, const Tensor& rules,
                      const Tensor& lengths, const Tensor& choices) {
  each_row(ctx, tokens.dim(0), [&](std::int64_t i) {
    const RowAsk& ask = ops::row_asks(asks)[i];
    const std::int32_t token = tokens.ptr<std::int32_t>()[i];
    if (token < 0 || !ask.anything()) return;
    float raw = row_of(logits, i)[static_cast<std::size_t>(token)];
    if (ask.slot >= 0) {
      const RuleList list = rules_of(rules, lengths, ask.slot);
      TokenRule* const rule = list.find(token);
      if (rule != nullptr) raw = rule->raw;
      if (ask.remembers != 0 && rule != nullptr)
        rule->count = std::max(rule->count, 0) + 1;
      else if (ask.remembers != 0 && list.length < rules.dim(1))
        list.begin[list.length++] = {.token = token, .count = 1, .raw = raw};
    }
    RowChoice& choice = ops::row_choices(choices)[i];
    if (ask.num_top_logprobs >= 0) choice.logprob = static_cast<float>(static_cast<double>(raw) - choice.normaliser);
  });
}

}  // namespace sluice::cpu
