// One attention back end made of two: one for prefill and one for decode. Both read and write the
// same pool.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "attention/backend.h"

namespace sluice {

// Pure decode batches, also with drafts, go to `decode`, all others (MIXED too) to `prefill`: one
// back end plans the whole batch. Deterministic steps all go to `prefill`, so that every row has
// the same order of summation. Source: SGLang `HybridAttnBackend`.
class HybridAttnBackend final : public AttentionBackend {
 public:
  HybridAttnBackend(std::unique_ptr<AttentionBackend> prefill,
                    std::unique_ptr<AttentionBackend> decode)
      : prefill_(std::move(prefill)),
        decode_(std::move(decode)),
        name_(std::string(prefill_->name()) + "+" + std::string(decode_->name())) {}

  std::string_view name() const override { return name_; }
  void plan(Context& ctx, const ForwardBatch& fb) override { of(ctx, fb).plan(ctx, fb); }
  void mha(Context& ctx, const ForwardBatch& fb, const MhaArgs& args) override {
    of(ctx, fb).mha(ctx, fb, args);
  }
  void mla(Context& ctx, const ForwardBatch& fb, const MlaArgs& args) override {
    of(ctx, fb).mla(ctx, fb, args);
  }
  void write_index_keys(Context& ctx, const ForwardBatch& fb, int layer,
                        const Tensor& keys) override {
    of(ctx, fb).write_index_keys(ctx, fb, layer, keys);
  }
  void select_keys(Context& ctx, const ForwardBatch& fb, int layer, const Tensor& q,
                   const Tensor& weights, const Tensor& indices) override {
    of(ctx, fb).select_keys(ctx, fb, layer, q, weights, indices);
  }
  Tensor state_plane(int layer, std::string_view plane) const override {
    return prefill_->state_plane(layer, plane);
  }
  MethodCounts method_counts() const override {
    MethodCounts sum = prefill_->method_counts();
    const MethodCounts other = decode_->method_counts();
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
    return sum;
  }

 private:
  AttentionBackend& of(const Context& ctx, const ForwardBatch& fb) {
    const bool decodes = is_decode_or_idle(fb.mode) || fb.mode == ForwardMode::kTargetVerify;
    return decodes && !ctx.deterministic ? *decode_ : *prefill_;
  }

  std::unique_ptr<AttentionBackend> prefill_;
  std::unique_ptr<AttentionBackend> decode_;
  std::string name_;
};

}  // namespace sluice
