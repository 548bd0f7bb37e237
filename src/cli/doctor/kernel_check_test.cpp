#include "cli/doctor/kernel_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cli/doctor/kernel_cases.h"
#include "cli/doctor/machine_info.h"
#include "ops/elementwise.h"

namespace sluice {
namespace {

// Whether a body that makes `out` from a sample of ones passes as "twice the input, within 1e-3".
KernelResult judged(const std::function<void(Context&, Sample& in, Sample& out)>& body) {
  KernelCheck check({}, 1);
  Sample in(check, DType::kF32, {2, 3}), out(check, DType::kF32, {2, 3});
  in.set([](std::int64_t) { return 1.0; });
  Expected expected;
  for (int i = 0; i < 6; ++i) expected.add(2, 1e-3);
  check.compare("double", "2 x 3", out, expected, [&](Context& ctx) { body(ctx, in, out); });
  EXPECT_EQ(check.results().size(), check.columns().size());
  return check.results().front();
}

TEST(KernelCheck, ARightResultPassesWithItsDistance) {
  const KernelResult right = judged(
      [](Context& ctx, Sample& in, Sample& out) { ops::scale(ctx, in(ctx), 2.0005f, out(ctx)); });
  EXPECT_EQ(right.failed, 0);
  EXPECT_NEAR(right.worst_difference, 5e-4, 1e-6);
  EXPECT_NEAR(right.worst_share, 0.5, 1e-2);
}

TEST(KernelCheck, WrongUnwrittenAndChangingResultsFail) {
  const KernelResult wrong = judged(
      [](Context& ctx, Sample& in, Sample& out) { ops::scale(ctx, in(ctx), 2.01f, out(ctx)); });
  EXPECT_EQ(wrong.failed, 1);
  EXPECT_NE(wrong.first_failure.find("2 x 3: element 0 is 2.00999"), std::string::npos)
      << wrong.first_failure;
  EXPECT_EQ(judged([](Context&, Sample&, Sample&) {}).failed, 1);  // still poisoned
  float factor = 2;
  const KernelResult changing = judged([&](Context& ctx, Sample& in, Sample& out) {
    ops::scale(ctx, in(ctx), factor, out(ctx));
    factor = std::nextafter(factor, 3.0f);
  });
  EXPECT_EQ(changing.failed, 1);
  EXPECT_NE(changing.first_failure.find("in one run"), std::string::npos) << changing.first_failure;
}

TEST(KernelCheck, SamplesForConversionAreMultiplesOfBfloat16) {
  KernelCheck check({}, 1);
  Sample x(check, DType::kF32, {100});
  x.fill(3, 5);
  double largest = 0;
  for (std::int64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(x.at(i), static_cast<float>(BF16(static_cast<float>(x.at(i)))));
    largest = std::max(largest, std::abs(x.at(i)));
  }
  EXPECT_GT(largest, 4);
  EXPECT_LE(largest, 5);
}

ModelConfig small_shapes() {
  ModelConfig config = usual_shapes();
  config.hidden_size = 96;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 32;
  config.intermediate_size = 160;
  config.rope.rotary_dim = 32;
  config.layers[0].window = 100;
  config.moe.emplace();
  config.moe->num_experts = 8;
  config.moe->top_k = 2;
  config.moe->moe_intermediate_size = 64;
  return config;
}

TEST(KernelCases, AllFamiliesPassOnThisMachine) {
  KernelCheck check({}, 2);
  ModelConfig config = small_shapes();
  for (const KernelFamily& family : kernel_families()) family.run(check, config);
  config.mla = MlaConfig{.q_lora_rank = 0,
                         .kv_lora_rank = 64,
                         .qk_nope_head_dim = 32,
                         .qk_rope_head_dim = 16,
                         .v_head_dim = 32};
  config.indexer = IndexerConfig{.num_heads = 4, .head_dim = 32, .topk = 64};
  check_latent_kernels(check, config);
  check_indexer(check, config);
  for (const RecurrentKind kind : {RecurrentKind::kGatedDelta, RecurrentKind::kKeyDelta,
                                   RecurrentKind::kMamba2, RecurrentKind::kShortConv}) {
    config.recurrent = RecurrentConfig{.kind = kind,
                                       .conv_kernel = 4,
                                       .num_key_heads = 2,
                                       .num_value_heads = 4,
                                       .key_head_dim = 24,
                                       .value_head_dim = 40};
    check_recurrent_kernels(check, config);
  }
  std::vector<std::string> ops;
  for (const KernelResult& r : check.results()) {
    EXPECT_EQ(r.failed, 0) << r.op << " on " << r.column << ": " << r.first_failure;
    EXPECT_GT(r.cases, 0);
    ops.push_back(r.op);
  }
  for (const char* op : {"rms_norm",
                         "rope",
                         "act_and_mul",
                         "linear int4",
                         "paged_attention panels",
                         "mla_sparse_attention",
                         "index_topk",
                         "route",
                         "fused_experts tiles",
                         "linear FP8",
                         "linear FP8 rows",
                         "linear int8 groups",
                         "linear int4 groups",
                         "linear int4 with zeros",
                         "linear MXFP4 groups",
                         "linear NVFP4 groups",
                         "embedding int4 with zeros",
                         "embedding NVFP4 groups",
                         "embedding MXFP4 groups",
                         "fused_experts FP8",
                         "fused_experts MXFP4 groups",
                         "fused_experts NVFP4 groups",
                         "paged_attention FP8",
                         "mla_attention FP8",
                         "tree attention",
                         "causal_conv",
                         "recurrent_scan",
                         "mask_logits"})
    EXPECT_NE(std::find(ops.begin(), ops.end(), op), ops.end()) << op;
}

TEST(MachineInfo, EveryPartIsNamedAndAMissingGpuIsBadOnlyWhereItIsAskedFor) {
  const auto verdict_of = [](const std::vector<MachineFact>& info, std::string_view name) {
    for (const MachineFact& fact : info) {
      EXPECT_FALSE(fact.text.empty()) << fact.name;
      if (fact.name == name) return fact.verdict;
    }
    ADD_FAILURE() << name;
    return Verdict::kBad;
  };
  const auto info = machine_info("auto", 0);
  for (const char* name :
       {"processor", "memory", "huge pages", "libcurl", "cuBLASLt", "NCCL", "transformers"})
    EXPECT_NE(verdict_of(info, name), Verdict::kBad) << name;
  const bool has_gpu = verdict_of(info, "GPU") == Verdict::kOk;
  EXPECT_EQ(verdict_of(machine_info("cuda", 0), "GPU"), has_gpu ? Verdict::kOk : Verdict::kBad);
}

}  // namespace
}  // namespace sluice
