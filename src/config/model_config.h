// A checkpoint's config.json in one form.
//
//   ModelConfig config = load_model_config("/models/glm-5");
//   for (int i = 0; i < config.num_layers; ++i) build(config.layer(i));
//
// Both spellings of config.json are read (the older one of published checkpoints, and that of
// transformers 5) and give equal values. Every alias, class default and per-layer rule is resolved
// here. So lower layers need neither a key nor the name of an architecture. A key that is missing
// without a class default, or out of range, is an Error{kBadInput} that names the key, the value
// seen and what is allowed. `auto_map` is logged and ignored. A ModelConfig does not change after
// it is loaded; any thread may read it.
//
// Sources: transformers 5 `*Config` classes; DeepSeek-V3.2 and GLM-5 published configurations.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/quant_config.h"
#include "kernels/types/model_enums.h"
#include "tensor/dtype.h"

namespace sluice {

enum class RopeType { kDefault, kLinear, kDynamic, kLlama3, kYarn, kLongRope };

// Rotary position embedding; layers/rope.h has the formulas.
struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000;
  int rotary_dim = 0;        // r: rotated dims of a head, even; qk_rope_head_dim for MLA
  bool interleaved = false;  // pairs (2i, 2i+1) instead of (i, i + r/2)
  double factor = 1;
  int original_max_position = 0;  // default: max_position_embeddings
  double low_freq_factor = 0;     // llama3
  double high_freq_factor = 0;    // llama3
  double beta_fast = 32;          // yarn
  double beta_slow = 1;           // yarn
  double mscale = 0;              // yarn; 0: not given
  double mscale_all_dim = 0;      // yarn; 0: not given. Also scales the softmax of MLA (squared)
  // yarn: multiplies cos and sin; derived from the above when empty
  std::optional<double> attention_factor;
  bool truncate = true;  // yarn: round the ramp's ends to whole dims
  // longrope: divisors of the frequencies, [r / 2]; the long ones for sequences beyond
  // original_max_position.
  std::vector<double> short_factor = {}, long_factor = {};
  std::optional<double> short_mscale,
      long_mscale;  // longrope: multiply cos and sin, before attention_factor (PhiMoE)

  bool operator==(const RopeConfig&) const = default;
};

// Mixture of experts, for the layers whose `is_moe` is set.
struct MoeConfig {
  int num_experts = 0;
  int top_k = 0;                  // <= topk_group * (num_experts / n_group)
  int moe_intermediate_size = 0;  // width of one routed expert
  int num_shared_experts = 0;     // 0: none
  // width of all shared experts together, which are one MLP; 0: none
  int shared_expert_intermediate_size = 0;
  // Qwen2-MoE: the shared output is multiplied by sigmoid(shared_expert_gate x)
  bool shared_expert_gate = false;
  bool norm_topk_prob = false;  // divide the chosen weights by their sum
  double topk_norm_min = 0;     // minimum of that sum (ERNIE)
  double mixer_eps = 0;         // kSparseMixer: half the relative distance that counts as near
  // Llama 4: the routing weight multiplies an expert's input, not its output
  bool weigh_input = false;
  // > 0: gpt-oss's experts with clamped gate/up projections (ops::ExpertParams)
  double swiglu_limit = 0;
  double swiglu_alpha = 1.702;
  double routed_scaling_factor = 1;
  RouterScoring scoring = RouterScoring::kSoftmax;
  TopkMethod topk_method = TopkMethod::kGreedy;
  int n_group = 1;     // divides num_experts
  int topk_group = 1;  // <= n_group

  bool operator==(const MoeConfig&) const = default;
};

// Multi-head latent attention (DeepSeek-V2, section 2.1). Per head q and k are [nope | rope].
struct MlaConfig {
  int q_lora_rank = 0;  // 0: queries are not compressed
  int kv_lora_rank = 0;
  int qk_nope_head_dim = 0;
  int qk_rope_head_dim = 0;
  int v_head_dim = 0;
  bool rotates = true;  // Kimi-Linear: no part of a head rotates, in spite of its name

  int qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
  bool operator==(const MlaConfig&) const = default;
};

// The indexer of DeepSeek sparse attention, for the layers whose `indexer` is not kNone.
struct IndexerConfig {
  int num_heads = 0;
  int head_dim = 0;  // the first qk_rope_head_dim of them rotate
  int topk = 0;      // positions that a query attends to
  bool rope_interleaved = false;

  bool operator==(const IndexerConfig&) const = default;
};

enum class IndexerRole {
  kNone,    // dense attention
  kFull,    // owns an indexer and an index-key cache
  kShared,  // uses the positions of the nearest earlier kFull layer
};

// Layers that keep a state of fixed size per sequence instead of keys and values: the layers whose
// `recurrent` is set.
enum class RecurrentKind {
  kGatedDelta,  // Qwen3-Next, Qwen3.5: a gated delta rule, one decay per head
  kKeyDelta,    // Kimi-Linear (KDA): a gated delta rule, one decay per channel of the keys
  kMamba2,      // state-space duality: no delta, keys and queries shared by groups of heads
  kShortConv,   // LFM2: only a gated short convolution
};

struct RecurrentConfig {
  RecurrentKind kind = RecurrentKind::kGatedDelta;
  int conv_kernel = 0;  // taps of the causal convolution, from 2 to 8
  bool conv_bias = false;
  bool proj_bias = false;  // biases of the projections around it
  // Unused for kShortConv. Mamba2: groups, heads, state_size, head_dim.
  int num_key_heads = 0;  // divides num_value_heads
  int num_value_heads = 0;
  int key_head_dim = 0;
  int value_head_dim = 0;
  // Mamba2: bounds of a token's step.
  double min_step = 0;
  double max_step = 0;  // 0: no bound

  bool operator==(const RecurrentConfig&) const = default;
};

// The rotation of a layer's queries and keys.
enum class LayerRope {
  kMain,   // ModelConfig::rope
  kLocal,  // ModelConfig::local_rope
  kNone,   // no rotation
};

// How token positions enter a model.
enum class PositionKind {
  kRope,     // queries and keys are rotated, except in layers with LayerRope::kNone
  kLearned,  // a table of embeddings is added to the token embeddings
  kAlibi,    // a slope times the distance is added to the scores
};

// How the two halves of a decoder layer are combined.
enum class ResidualForm {
  kSequential,       // x += Attention(..x..); x += MLP(..x..)
  kParallelOneNorm,  // x += Attention(n) + MLP(n), n = norm(x)
  kParallelTwoNorms  // x += Attention(norm x) + MLP(norm' x)
};

// Factor of queries at position p: 1 + beta * ln(1 + floor((p + offset) / length)).
struct QueryScaling {
  double beta = 0;
  int length = 1;
  int offset = 0;
  bool unrotated_only = false;  // only in layers with LayerRope::kNone

  bool operator==(const QueryScaling&) const = default;
};

struct LayerConfig {
  int window = 0;  // a query sees itself and the window - 1 previous tokens; 0: all
  // a query sees no key before its own chunk of so many positions; 0: all. Not together with a
  // window
  int chunk = 0;
  bool sinks = false;    // a learned score per head takes part in the softmax
  int num_kv_heads = 0;  // 0: ModelConfig::num_kv_heads
  LayerRope rope = LayerRope::kMain;
  bool is_moe = false;
  IndexerRole indexer = IndexerRole::kNone;
  bool recurrent = false;  // a state instead of keys and values: ModelConfig::recurrent

  bool operator==(const LayerConfig&) const = default;
};

// The implementation of the model: a class of this program, or transformers through its plugin.
enum class ModelImpl {
  kAuto,          // a class of this program if there is one
  kSluice,        // only a class of this program
  kTransformers,  // the plugin, even if there is a class
};

struct ImplementationChoice {
  ModelImpl impl = ModelImpl::kSluice;
  bool plugin_installed = false;   // false: kAuto means kSluice
  bool trust_remote_code = false;  // the plugin may run code of the model's repository
};

// The inputs from which the plugin builds the model.
struct FallbackConfig {
  std::string directory;  // with config.json
  // why the class of this program does not take the configuration; empty: there is none, or the
  // plugin was asked for
  std::string native_refusal;
  bool trust_remote_code = false;

  bool operator==(const FallbackConfig&) const = default;
};

struct ModelConfig {
  std::string architecture;  // architectures[0]
  std::string model_type;
  std::string override_args;  // the JSON object that was laid over the file; empty: none
  std::string wrapper;        // the multimodal architecture around this text model; empty: none
  int vocab_size = 0;
  int hidden_size = 0;
  int num_layers = 0;  // without next-token-prediction layers
  int num_heads = 0;
  int num_kv_heads = 0;       // divides num_heads; equal to it for MLA
  int head_dim = 0;           // width of q and k; nope + rope for MLA
  int v_head_dim = 0;         // width of v, except for MLA; 0: head_dim
  double value_scale = 1;     // factor of v
  int intermediate_size = 0;  // width of dense MLPs
  double rms_norm_eps = 0;    // epsilon of every norm, of any kind
  Activation hidden_act = Activation::kSilu;
  int max_position_embeddings = 0;
  // the file's flag; a checkpoint without lm_head.weight is tied in any case
  bool tie_word_embeddings = false;
  // Optional tensors according to the family and the file. A checkpoint's tensors decide; these
  // fields serve dummy weights and messages.
  bool qkv_bias = false;  // q, k, v; for MLA q_a and kv_a
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;    // norms of q and k, of the family's kind
  bool head_bias = false;  // bias of the output head
  DType dtype{};           // type of the checkpoint's weights; bfloat16 if the file has none
  double initializer_range = 0.02;
  std::optional<int> bos_token_id;
  // of config.json only, ascending; generation_config.h has the union
  std::vector<int> eos_token_ids;
  std::optional<int> pad_token_id;
  PositionKind positions = PositionKind::kRope;
  RopeConfig rope;                       // rotary_dim is 0 if nothing rotates
  std::optional<RopeConfig> local_rope;  // for layers whose `rope` is kLocal
  ResidualForm residual = ResidualForm::kSequential;
  // Factors and caps of some families; a factor of 1 and a cap of 0 change nothing.
  double embedding_multiplier = 1;
  bool embedding_multiplier_rounds = false;  // rounds the factor to the compute type, as Gemma does
  double residual_multiplier = 1;            // factor of the outputs of attention and MLP
  double attention_scale = 0;                // factor of q . k; 0: head_dim^-0.5
  double attention_softcap = 0;              // c: a score s becomes c tanh(s / c)
  double logit_scale = 1;
  double logit_softcap = 0;
  double clip_qkv = 0;  // q, k and v are clamped to [-c, c]; 0: no clamp
  std::optional<QueryScaling> query_scaling;
  std::optional<MoeConfig> moe;
  std::optional<MlaConfig> mla;
  std::optional<IndexerConfig> indexer;
  std::optional<RecurrentConfig> recurrent;
  std::vector<LayerConfig> layers;  // [num_layers]
  int num_nextn_predict_layers = 0;
  std::optional<QuantizationConfig> quantization;  // for SourceOptions
  // Set: the Transformers plugin runs the model. Then only the sizes, the type and the tokens above
  // are known.
  std::optional<FallbackConfig> fallback;

  // The properties of layer i. A layer i >= num_layers is a next-token-prediction layer: MoE if the
  // model has experts, with its own indexer if the model is sparse, no window.
  LayerConfig layer(int i) const;
  // KV heads of a layer without MLA.
  int kv_heads_of(int i) const {
    return layer(i).num_kv_heads > 0 ? layer(i).num_kv_heads : num_kv_heads;
  }
  int value_dim() const { return v_head_dim > 0 ? v_head_dim : head_dim; }

  bool operator==(const ModelConfig&) const = default;
};

// What the warnings and errors about an override are named after.
inline constexpr std::string_view kOverrideArgs = "--json-model-override-args";

// Reads `directory`/config.json, and what hf_quant_config.h adds to it. `override_args`, if not
// empty, is a JSON object laid over the file before it is read. Objects merge key by key, any other
// value replaces (null becomes null). checkpoint/load_config.h reads GGUF files too.
ModelConfig load_config_json(const std::string& directory, std::string_view override_args = {},
                             const ImplementationChoice& choice = {});

// As load_config_json(), from the text of a config.json; `what` names it in errors.
ModelConfig parse_model_config(std::string_view text, std::string_view what,
                               std::string_view override_args = {},
                               const ImplementationChoice& choice = {});

// The architecture of the table whose name is nearest to `name`.
std::string_view nearest_architecture(std::string_view name);

// The architectures that parse_model_config accepts, in the order of the table.
std::vector<std::string_view> supported_architectures();

}  // namespace sluice
