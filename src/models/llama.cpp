// Llama, Mistral, Qwen2, Qwen3, Mixtral, Qwen2-MoE, Qwen3-MoE. What differs among them is data: biases and
// head norms are there or not, windows and experts are facts of a layer.
//
// Sources: transformers LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM,
// MixtralForCausalLM, Qwen2MoeForCausalLM, Qwen3MoeForCausalLM.
#include "models/llama.h"

#include "layers/gqa.h"
#include "layers/rope.h"
#include "models/ends.h"
#include "ops/elementwise.h"

namespace sluice {
namespace {

struct DecoderLayer {
  RmsNorm input_norm;
  GqaAttention attention;
  RmsNorm post_attention_norm;
  FeedForward feed_forward;
};

class Llama final : public Model {
 public:
  Llama(WeightLoader& loader, const ModelConfig& config, const MoeNames& names)
      : config_(config), rotary_(config.rope, config.max_position_embeddings) {
    const Weights root = loader.root();
    kv_dtype_ = root.numerics().kv();
    rotary_.place(root);
    ends_ = DecoderEnds::load(root, config);
    for (int i = 0; i < config.num_layers; ++i) {
      const Weights layer = root.sub("model").sub("layers", i);
      layers_.push_back(
          {RmsNorm::load(layer, "input_layernorm", config.hidden_size, config.rms_norm_eps),
           GqaAttention::load(layer.sub("self_attn"), config, i),
           RmsNorm::load(layer, "post_attention_layernorm", config.hidden_size, config.rms_norm_eps),
           FeedForward::load(layer, config, config.layer(i), names)});
    }
    store_ = loader.take_store();
  }

  void forward(Context& ctx, const ForwardBatch& fb, AttentionBackend& backend, StageIO& io) override {
    if (fb.num_tokens == 0) return;
    ends_.begin(ctx, fb, io);
    {
      Arena::Scope scope(*ctx.arena);
      const Tensor cos_sin = ctx.arena->take(DType::kF32, {fb.num_tokens, rotary_.dim()});
      const Tensor branch = ctx.arena->take(DType::kF32, {fb.num_tokens, config_.hidden_size});
      rotary_.cos_sin(ctx, fb, cos_sin);
      // A layer's last branch joins the stream in the norm of the next one.
      for (int i = io.layer_begin; i < io.layer_end; ++i) {
        const DecoderLayer& layer = layers_[static_cast<std::size_t>(i)];
        Arena::Scope layer_scope(*ctx.arena);
        const Tensor attention_input = ctx.arena->take(layer.attention.qkv.input, {fb.num_tokens, config_.hidden_size});
        const Tensor mlp_input = ctx.arena->take(layer.feed_forward.input(), {fb.num_tokens, config_.hidden_size});
        if (i == io.layer_begin) {
          layer.input_norm.forward(ctx, io.hidden, attention_input);
        } else {
          layer.input_norm.add_forward(ctx, branch, io.hidden, attention_input);
          ends_.keep_aux(ctx, io, i - 1);
        }
        layer.attention.forward(ctx, fb, backend, cos_sin, attention_input, branch);
        layer.post_attention_norm.add_forward(ctx, branch, io.hidden, mlp_input);
        layer.feed_forward.forward(ctx, mlp_input, branch);
      }
      if (io.layer_begin < io.layer_end) {
        ops::add(ctx, io.hidden, branch, io.hidden);
        ends_.keep_aux(ctx, io, io.layer_end - 1);
      }
    }
    ends_.end(ctx, fb, io);
  }

  std::vector<PageGroupSpec> kv_groups() const override {
    return gqa_page_groups(config_, layers_.front().attention.num_kv_heads, kv_dtype_);
  }
  std::int64_t weight_bytes() const override { return store_.bytes(); }

 private:
  ModelConfig config_;
  Rotary rotary_;
  DType kv_dtype_{};
  DecoderEnds ends_;
  std::vector<DecoderLayer> layers_;
  WeightStore store_;
};

}  // namespace

std::unique_ptr<Model> load_llama(WeightLoader& loader, const ModelConfig& config, const ModelOptions&,
                                  const MoeNames& names) {
  return std::make_unique<Llama>(loader, config, names);
}

}  // namespace sluice
