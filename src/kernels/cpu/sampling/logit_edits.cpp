// Logit edits and log-probabilities on the CPU. sampling/host_sampler.h defines the arithmetic.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "base/thread_pool.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/sampling/sample.h"
#include "kernels/types/logit_edit_math.h"

namespace sluice::cpu {
namespace {

using ops::LogitEdit;
using ops::LogitEdits;
using ops::SampledRow;

template <class Body>
void each_row(Context& ctx, std::int64_t rows, Body&& body) {
  ctx.pool->parallel_for(rows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(i);
  });
}

std::span<float> row_of(const Tensor& logits, std::int64_t i) {
  return {logits.rows(i, 1).ptr<float>(), static_cast<std::size_t>(logits.dim(1))};
}

struct EditList {
  LogitEdit* begin;
  std::int32_t& length;

  LogitEdit* find(std::int32_t token) const {
    LogitEdit* const end = begin + length;
    LogitEdit* const found =
        std::find_if(begin, end, [&](const LogitEdit& edit) { return edit.token == token; });
    return found == end ? nullptr : found;
  }
};
EditList list_of(const Tensor& edit_lists, const Tensor& lengths, std::int32_t slot) {
  return {ops::as_logit_edit_list(edit_lists) + slot * edit_lists.dim(1),
          lengths.ptr<std::int32_t>()[slot]};
}

}  // namespace

void read_logprobs(Context& ctx, const Tensor& logits, const Tensor& logit_edits,
                   const Tensor& sampled_rows) {
  each_row(ctx, logits.dim(0), [&](std::int64_t i) {
    const int wanted = ops::as_logit_edits(logit_edits)[i].num_top_logprobs;
    SampledRow& choice = ops::as_sampled_rows(sampled_rows)[i];
    choice = {};
    if (wanted < 0) return;
    const std::span<const float> row = row_of(logits, i);
    // Zeros for a row that is not finite: its token is -1.
    const draw::RowMax max = draw::row_max(row);
    if (!max.finite) return;
    choice.normaliser = draw::log_sum_exp(row, max.value);
    choice.num_top = draw::top_entries(row, std::min<int>(wanted, ops::kMaxTopLogprobs),
                                       choice.normaliser, choice.top);
  });
}

void adjust_logits(Context& ctx, const Tensor& logit_edits, const Tensor& edit_lists,
                   const Tensor& lengths, const Tensor& logits) {
  each_row(ctx, logits.dim(0), [&](std::int64_t i) {
    const LogitEdits& row_edits = ops::as_logit_edits(logit_edits)[i];
    if (row_edits.slot < 0) return;
    const std::span<float> row = row_of(logits, i);
    const EditList list = list_of(edit_lists, lengths, row_edits.slot);
    for (std::int32_t k = 0; k < list.length; ++k) {
      LogitEdit& edit = list.begin[k];
      // Keep the raw logit: log-probabilities are those of the raw row.
      edit.raw = row[static_cast<std::size_t>(edit.token)];
      row[static_cast<std::size_t>(edit.token)] = draw::edited_logit(edit, row_edits);
    }
  });
}

void mask_logits(Context& ctx, const Tensor& mask_of_row, const Tensor& masks,
                 const Tensor& logits) {
  each_row(ctx, logits.dim(0), [&](std::int64_t i) {
    const std::int32_t mask = mask_of_row.ptr<std::int32_t>()[i];
    if (mask < 0) return;
    const auto* const words = static_cast<const std::uint32_t*>(masks.at(mask).data);
    const std::span<float> row = row_of(logits, i);
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    // NaN and +infinity stay: they fail the row.
    for (std::size_t t = 0; t < row.size(); ++t)
      if ((words[t / 32] >> (t % 32) & 1) == 0 && row[t] < kInfinity) row[t] = -kInfinity;
  });
}

void record_sampled_rows(Context& ctx, const Tensor& tokens, const Tensor& logits,
                         const Tensor& logit_edits, const Tensor& edit_lists, const Tensor& lengths,
                         const Tensor& sampled_rows) {
  each_row(ctx, tokens.dim(0), [&](std::int64_t i) {
    const LogitEdits& row_edits = ops::as_logit_edits(logit_edits)[i];
    const std::int32_t token = tokens.ptr<std::int32_t>()[i];
    if (token < 0 || !row_edits.anything()) return;
    float raw = row_of(logits, i)[static_cast<std::size_t>(token)];
    if (row_edits.slot >= 0) {
      const EditList list = list_of(edit_lists, lengths, row_edits.slot);
      LogitEdit* const edit = list.find(token);
      if (edit != nullptr) raw = edit->raw;
      // A sampled token is counted in its slot's edits, for the penalties of later steps.
      if (row_edits.remembers != 0 && edit != nullptr)
        edit->count = std::max(edit->count, 0) + 1;
      else if (row_edits.remembers != 0 && list.length < edit_lists.dim(1))
        list.begin[list.length++] = {.token = token, .count = 1, .raw = raw};
    }
    SampledRow& choice = ops::as_sampled_rows(sampled_rows)[i];
    if (row_edits.num_top_logprobs >= 0)
      choice.logprob = static_cast<float>(static_cast<double>(raw) - choice.normaliser);
  });
}

}  // namespace sluice::cpu
