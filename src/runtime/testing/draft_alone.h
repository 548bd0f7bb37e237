// For tests: a target and its draft without a runner. A test reads the target's states, and gives
// the draft states and tokens.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/steps/batch_buffers.h"
#include "runtime/testing/draft_sequence.h"

namespace sluice::draft_test {

using Floats = std::vector<float>;

inline Floats floats_of_base64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  unsigned bits = 0, count = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<unsigned>(kDigits.find(c));
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>(bits >> count & 0xff));
  }
  Floats out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
  return out;
}

// Of one row of logits.
inline Floats log_softmax(std::span<const float> logits) {
  const double top = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - top);
  Floats out;
  for (const float x : logits) out.push_back(static_cast<float>(x - top - std::log(sum)));
  return out;
}

// One sequence; its slots are filled from the front, and may be filled again.
class DraftAlone {
 public:
  static constexpr int kMaxTokens = 4352;
  static constexpr std::size_t kPiece = 512;  // tokens of a pass

  // The model's own layer drafts, or the model in `draft`.
  explicit DraftAlone(const fs::path& model, const fs::path& draft = {},
                      CpuIsa isa = detect_cpu_isa())
      : config_(load_model_config(model)) {
    set_log_level(LogLevel::kWarning);
    RunnerOptions options;
    options.placement.num_threads = 1;
    options.model.numerics.compute = DType::kF32;
    options.model.context_length = kMaxTokens;
    options.model.draft_layer = draft.empty();
    if (!draft.empty()) options.draft = draft_in(draft, config_);
    rank_ = std::make_unique<Rank>(options.placement, false, nullptr);
    ctx().cpu_isa = isa;
    model_ = load_rank_model(*rank_, options, config_, WeightSource::checkpoint(model),
                             [](const std::string&, double, const std::string&) {});
    const std::vector<PageGroupSpec> groups = model_->kv_groups();
    num_groups_ = static_cast<int>(num_page_groups(groups));
    has_states_ = std::cmp_less(num_groups_, groups.size());
    pool_ = std::make_unique<KVPool>(groups, std::vector<std::int64_t>(groups.size(), kNumPages));
    attention_ =
        make_attention_backend(options.attention, attention_shape(config_, options.model), *pool_);
    if (const SeparateDraft* separate = model_->separate_draft())
      own_attention_ =
          make_attention_backend(options.attention, separate->attention_shape(), *pool_);
    const std::span<const std::int32_t> targets = model_->draft_model()->target_tokens();
    row_of_token_.assign(static_cast<std::size_t>(config_.vocab_size), -1);
    for (int i = 0; std::cmp_less(i, shape().vocab_size); ++i)
      row_of_token_[static_cast<std::size_t>(targets.empty() ? i : targets[i])] = i;
    ctx().arena = &arena_;
  }
  ~DraftAlone() { set_log_level(LogLevel::kInfo); }

  const DraftShape& shape() const { return model_->draft_model()->draft_shape(); }
  // The draft's number of a token of the target; -1: the draft cannot say it.
  int row_of(std::int32_t token) const { return row_of_token_[static_cast<std::size_t>(token)]; }
  std::int32_t best_of(std::span<const float> logits) const {
    const auto row = static_cast<int>(std::ranges::max_element(logits) - logits.begin());
    return static_cast<std::int32_t>(std::ranges::find(row_of_token_, row) - row_of_token_.begin());
  }

  // The target's states of tokens from position 0 on, [tokens, target_width].
  Floats states_of(const Tokens& tokens) {
    Floats states;
    for (std::size_t first = 0; first < tokens.size(); first += kPiece) {
      const std::size_t end = std::min(first + kPiece, tokens.size());
      const Floats piece = states_of_piece(static_cast<int>(first), part(tokens, first, end));
      states.insert(states.end(), piece.begin(), piece.end());
    }
    return states;
  }

  // Fills slots from `first` on. `states`: the target's, one row a slot, or none where the draft's
  // own lead on; then there is one slot. Returns logits [wanted, vocab_size]; what is wanted is of
  // the last kPiece slots.
  std::vector<Floats> fill_slots(int first, const Tokens& tokens, std::span<const float> states,
                                 const std::vector<std::size_t>& wanted) {
    const std::size_t before = tokens.size() > kPiece ? tokens.size() - kPiece : 0;
    const auto width = static_cast<std::size_t>(shape().target_width);
    const auto states_in = [&](std::size_t begin, std::size_t end) {
      return states.empty() ? states : states.subspan(begin * width, (end - begin) * width);
    };
    for (std::size_t begin = 0; begin < before; begin += kPiece) {
      const std::size_t end = std::min(begin + kPiece, before);
      fill_piece(first + static_cast<int>(begin), part(tokens, begin, end), states_in(begin, end),
                 {});
    }
    std::vector<std::size_t> rows;
    for (const std::size_t row : wanted) rows.push_back(row - before);
    return fill_piece(first + static_cast<int>(before), part(tokens, before, tokens.size()),
                      states_in(before, tokens.size()), rows);
  }
  // A block of `count` rows whose first is the last known token, at `first`.
  std::vector<Floats> run_block(int first, std::int32_t token, int count) {
    Tokens tokens(static_cast<std::size_t>(count), shape().mask_token),
        ends(static_cast<std::size_t>(count), first + count - 1);
    tokens[0] = token;
    std::vector<std::size_t> wanted(static_cast<std::size_t>(count - 1));
    std::iota(wanted.begin(), wanted.end(), 1);
    states_.assign(static_cast<std::size_t>(count * shape().hidden_size), 0.0F);
    DraftIO io;
    io.states = view(states_, count);
    io.last_seen = Tensor::dense(ends.data(), DType::kI32, {count});
    return run(fill(first, tokens, wanted, true, false), io, wanted.size());
  }
  // The draft's state of the last slot, which the next depth reads.
  std::span<const float> last_state() const {
    return std::span(states_).last(static_cast<std::size_t>(shape().hidden_size));
  }

 private:
  static constexpr int kNumPages = kMaxTokens / kPageSize;

  static Tokens part(const Tokens& tokens, std::size_t begin, std::size_t end) {
    return {tokens.begin() + static_cast<std::ptrdiff_t>(begin),
            tokens.begin() + static_cast<std::ptrdiff_t>(end)};
  }
  Floats states_of_piece(int first, const Tokens& tokens) {
    const auto rows = static_cast<std::int64_t>(tokens.size()), width = shape().target_width;
    Floats states(static_cast<std::size_t>(rows * width));
    Floats hidden(static_cast<std::size_t>(rows * config_.hidden_size)),
        logits(static_cast<std::size_t>(config_.vocab_size));
    std::vector<std::int32_t> topk(static_cast<std::size_t>(rows * model_->topk_width()));
    const ForwardBatch& fb = fill(first, tokens, {tokens.size() - 1}, false, has_states_);
    StageIO io;
    io.layer_end = config_.num_layers;
    io.hidden = view(hidden, rows);
    if (model_->topk_width() > 0)
      io.topk_indices = Tensor::dense(topk.data(), DType::kI32, {rows, model_->topk_width()});
    io.logits = view(logits, 1);
    const Tensor out = view(states, rows);
    if (shape().target_layers.empty()) io.final_hidden = out;
    for (const int layer : shape().target_layers) {
      const auto at = static_cast<std::int64_t>(io.aux_layers.size()) * config_.hidden_size;
      io.aux_layers.push_back(layer - 1);
      io.aux_hidden.push_back(out.slice(1, at, config_.hidden_size));
    }
    attention_->plan(ctx(), fb);
    model_->forward(ctx(), fb, *attention_, io);
    return states;
  }
  std::vector<Floats> fill_piece(int first, const Tokens& tokens, std::span<const float> states,
                                 const std::vector<std::size_t>& wanted) {
    const auto rows = static_cast<std::int64_t>(tokens.size());
    const bool are_targets = !states.empty();
    const auto own = static_cast<std::ptrdiff_t>(shape().hidden_size);
    if (are_targets)
      states_.assign(static_cast<std::size_t>(rows * own), 0.0F);
    else
      states_.erase(states_.begin(), states_.end() - own);  // but of the last slot
    Floats target(states.begin(), states.end());
    DraftIO io;
    if (are_targets) io.target = view(target, rows);
    if (own > 0) io.states = view(states_, rows);
    return run(fill(first, tokens, wanted, !are_targets && rows == 1, false), io, wanted.size());
  }

  Context& ctx() { return rank_->context(); }
  static Tensor view(Floats& values, std::int64_t rows) {
    return Tensor::dense(values.data(), DType::kF32,
                         {rows, static_cast<std::int64_t>(values.size()) / rows});
  }
  const ForwardBatch& fill(int first, const Tokens& tokens, const std::vector<std::size_t>& wanted,
                           bool decode, bool with_states) {
    Batch batch;
    const auto count = static_cast<std::int32_t>(tokens.size());
    batch.mode = !decode      ? ForwardMode::kExtend
                 : count == 1 ? ForwardMode::kDecode
                              : ForwardMode::kTargetVerify;
    batch.items = {{.sequence = 1, .slot = 0, .first = first, .count = count, .decode = decode}};
    batch.token_ids = tokens;
    for (int g = 0; g < num_groups_; ++g) {
      PageRows& pages = batch.groups.emplace_back();
      pages.pages.resize(kNumPages);
      std::iota(pages.pages.begin(), pages.pages.end(), 0);
      pages.offsets = {0, kNumPages};
    }
    if (with_states) batch.state_slots = {0};
    for (const std::size_t row : wanted)
      batch.logit_rows.push_back({.item = 0,
                                  .row = static_cast<std::int32_t>(row),
                                  .position = first + static_cast<std::int32_t>(row)});
    buffers_ = std::make_unique<BatchBuffers>(BatchLimits{.max_tokens = kMaxTokens,
                                                          .max_seqs = 1,
                                                          .max_seq_pages = kNumPages,
                                                          .max_logit_rows = kMaxTokens,
                                                          .num_groups = num_groups_,
                                                          .has_states = with_states});
    return buffers_->fill(batch, {});
  }
  std::vector<Floats> run(const ForwardBatch& fb, DraftIO io, std::size_t num_logits) {
    AttentionBackend& attention = own_attention_ ? *own_attention_ : *attention_;
    const auto columns = static_cast<std::size_t>(shape().vocab_size);
    Floats logits(num_logits * columns);
    if (num_logits > 0) io.logits = view(logits, static_cast<std::int64_t>(num_logits));
    attention.plan(ctx(), fb);
    model_->draft_model()->draft(ctx(), fb, attention, io);
    std::vector<Floats> out;
    for (auto row = logits.begin(); row != logits.end();
         row += static_cast<std::ptrdiff_t>(columns))
      out.emplace_back(row, row + static_cast<std::ptrdiff_t>(columns));
    return out;
  }

  const ModelConfig config_;
  std::unique_ptr<Rank> rank_;
  std::unique_ptr<Model> model_;
  int num_groups_ = 0;
  bool has_states_ = false;
  std::unique_ptr<KVPool> pool_;
  std::unique_ptr<AttentionBackend> attention_, own_attention_;
  std::vector<int> row_of_token_;
  Arena arena_{std::int64_t{512} << 20};
  std::unique_ptr<BatchBuffers> buffers_;
  Floats states_;
};

}  // namespace sluice::draft_test
