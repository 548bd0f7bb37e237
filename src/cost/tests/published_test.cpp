// The model against published figures of a system of others: DeepSeek-V3 in SGLang on 96 H100 of 12
// hosts, prefill on 4 hosts and decode on 9 (LMSYS, May 2025). Rates of its kernels and of its
// network are published as well; docs/cost_model.md has the sources.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "cost/step_cost.h"

namespace sluice {
namespace {

constexpr std::string_view kDeepSeekV3 = R"({"architectures": ["DeepseekV3ForCausalLM"],
  "model_type": "deepseek_v3", "torch_dtype": "bfloat16", "vocab_size": 129280,
  "hidden_size": 7168, "num_hidden_layers": 61, "num_nextn_predict_layers": 1,
  "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536,
  "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
  "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 256,
  "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
  "moe_layer_freq": 1, "n_group": 8, "topk_group": 4, "topk_method": "noaux_tc",
  "scoring_func": "sigmoid", "norm_topk_prob": true, "routed_scaling_factor": 2.5,
  "hidden_act": "silu", "attention_bias": false, "rms_norm_eps": 1e-06, "rope_theta": 10000,
  "max_position_embeddings": 163840, "tie_word_embeddings": false})";

constexpr int kGpusOfHost = 8;

// A step's time when messages hide behind computing, and when they do not.
struct Range {
  double overlapped_s = 0, serial_s = 0;
};
Range range_of(const StepCost& step) {
  double messages = 0;
  for (const PartSeconds& part : step.parts)
    if (part.name == "collectives") messages = part.seconds;
  return {std::max(messages, step.seconds - messages), step.seconds};
}

// For the table of docs/cost_model.md.
void print(const char* what, const Range& range, double published_s) {
  fmt::print("{}: {:.1f} to {:.1f} ms, published {:.1f}\n", what, range.overlapped_s * 1e3,
             range.serial_s * 1e3, published_s * 1e3);
}

class Published : public ::testing::Test {
 protected:
  Published() {
    machine_.link_bytes_per_s = 50e9;  // 400 Gb/s of network for each GPU
    // DeepGEMM at its best, and what it reaches of that with 4,096 rows.
    machine_.fp8_flops = 1550e12;
    constants_.gemm_share = 1100.0 / 1550;
    // FlashMLA: bytes and operations.
    constants_.stream_share = 3000e9 / machine_.copy_bytes_per_s;
    constants_.prefill_attention_share = 660e12 / machine_.bf16_flops;
  }

  CostModel model() const { return {config_, types_, machine_, constants_, 16384}; }

  const ModelConfig config_ = parse_model_config(kDeepSeekV3, "test");
  const StoredTypes types_{.linear_bits = 8.02, .expert_bits = 8.02, .is_fp8 = true};
  GpuMachine machine_ = *find_gpu_machine("H100");
  CostConstants constants_ = calibrated_constants();
};

// 256 sequences a GPU with 2,000 tokens each. Two batches compute and send in turn. So the
// published time lies between that with all messages hidden and that with none.
TEST_F(Published, DecodeOn72Gpus) {
  constants_.expert_gemm_share = 870.0 / 1550;  // DeepGEMM, masked, 4 experts of 256 rows
  constants_.link_share = 45.0 / 50;            // DeepEP, low latency, 64 ranks: 42 and 47 GB/s
  const Mix mix{.tp = 72, .ep = 72, .dp = 72, .sent_copies = 8};
  const Range range = range_of(decode_step(model(), mix, 256.0 * mix.tp, 2000));
  const double published_s = 256.0 * kGpusOfHost / 22282;
  print("decode", range, published_s);
  EXPECT_GT(published_s, range.overlapped_s);
  EXPECT_LT(published_s, range.serial_s);
}

// 16,384 prompt tokens a GPU in each step. A row leaves once for each other host that has one of
// its experts. Of 8 groups of experts 4 are chosen, and each of the 4 hosts has 2: they are on 3.14
// hosts in the mean, of which three quarters are others.
TEST_F(Published, PrefillOn32Gpus) {
  constants_.expert_gemm_share = 1280.0 / 1550;  // DeepGEMM, contiguous
  constants_.link_share = 1;                     // DeepEP, 4 hosts: 61 GB/s with NVLink's part
  const Mix mix{.tp = 32, .ep = 32, .dp = 32, .sent_copies = 3.14 * 0.75};
  for (const auto& [length, rate] : {std::pair{1024, 57674.0}, {2048, 54543.0}, {4096, 50302.0}}) {
    const Range range = range_of(prefill(model(), mix, 16384.0 / length * mix.tp, length));
    const double published_s = 16384 * kGpusOfHost / rate;
    print("prefill", range, published_s);
    EXPECT_GT(published_s, range.overlapped_s);
    // As if nothing were hidden.
    EXPECT_NEAR(range.serial_s, published_s, 0.1 * published_s);
  }
}

}  // namespace
}  // namespace sluice
