#include "attention/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/hybrid.h"
#include "base/error.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

KVPool small_pool() {
  return KVPool({{{.name = "full"}, {{"k", DType::kF32, 8, {0}}, {"v", DType::kF32, 8, {0}}}}},
                {1});
}

AttentionShape llama() {
  return {.num_layers = 1, .head_dim = 128, .value_dim = 128, .group = 4, .kv_dtype = DType::kBF16};
}
AttentionShape deepseek(std::int64_t topk = 0) {
  return {.num_layers = 1,
          .mla = true,
          .index_topk = topk,
          .kv_dtype = DType::kBF16,
          .latent = 512,
          .rope = 64,
          .index_heads = 64,
          .index_dim = 128,
          .index_dtype = DType::kBF16};
}
AttentionOptions on_gpu(const std::string& name, int sm = 90) {
  AttentionOptions options;
  options.name = name;
  options.device = DeviceKind::kCuda;
  options.sm = sm;
  return options;
}
std::string refusal(const AttentionOptions& options, const AttentionShape& shape) {
  try {
    pick_attention_backend(options, shape);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    return error.message();
  }
  return "";
}
std::string refusal(const std::string& name) {
  AttentionOptions options;
  options.name = name;
  return refusal(options, llama());
}

TEST(AttentionRegistry, AutoAndReferenceRunOnTheCpu) {
  const KVPool pool = small_pool();
  for (const std::string name : {"auto", "reference"}) {
    AttentionOptions options;
    options.name = name;
    EXPECT_EQ(make_attention_backend(options, {.num_layers = 1}, pool)->name(), "reference");
  }
}

TEST(AttentionRegistry, OnACpuEveryOtherNameIsRefusedWithTheReasonAndThoseThatCan) {
  int refused = 0;
  for (const std::string_view name : attention_backend_names()) {
    if (refusal(std::string(name)).empty()) continue;
    EXPECT_THAT(refusal(std::string(name)), AllOf(HasSubstr(std::string(name)),
                                                  HasSubstr("those that can are auto, reference")))
        << name;
    ++refused;
  }
  EXPECT_GT(refused, 5);
  EXPECT_THAT(refusal("fa3"), HasSubstr("NVIDIA GPU"));
  EXPECT_THAT(refusal("hybrid"), HasSubstr("--decode-attention-backend"));
}

TEST(AttentionRegistry, UnknownNamesListTheKnownOnes) {
  EXPECT_THAT(refusal("flashinfr"),
              HasSubstr("known are auto, native, reference, fa3, flashinfer"));
}

// A pure function: this test needs no GPU.
TEST(AttentionRegistry, OnAGpuARowServesTheModelsThatItsKernelsKnow) {
  for (const char* name : {"native", "reference", "fa3", "flashinfer"})
    EXPECT_EQ(refusal(on_gpu(name), llama()), "") << name;
  for (const char* name : {"native", "reference", "flashinfer_mla"})
    EXPECT_EQ(refusal(on_gpu(name), deepseek()), "") << name;
  for (const char* name : {"native", "reference", "dsa", "nsa"})
    EXPECT_EQ(refusal(on_gpu(name), deepseek(2048)), "") << name;

  // Latents in e4m3 are served by the same rows; other types by those of every shape.
  AttentionShape codes = deepseek(), chosen_codes = deepseek(2048), wide = deepseek();
  codes.kv_dtype = chosen_codes.kv_dtype = DType::kF8E4M3;
  wide.kv_dtype = DType::kF32;
  for (const char* name : {"native", "reference", "flashinfer_mla"})
    EXPECT_EQ(refusal(on_gpu(name), codes), "") << name;
  EXPECT_EQ(refusal(on_gpu("dsa"), chosen_codes), "");
  EXPECT_EQ(refusal(on_gpu("native", 80), codes), "");
  EXPECT_THAT(refusal(on_gpu("flashinfer_mla"), wide),
              HasSubstr("512 + 64 in bfloat16 and e4m3; the model has float32 ones"));

  EXPECT_THAT(refusal(on_gpu("fa3", 80), llama()),
              AllOf(HasSubstr("9.0"), HasSubstr("auto, native, reference, flashinfer")));
  EXPECT_EQ(refusal(on_gpu("flashinfer", 80), llama()), "");
  AttentionShape bytes = llama();
  bytes.kv_dtype = DType::kF8E4M3;
  for (const char* name : {"native", "reference", "fa3", "flashinfer"})
    EXPECT_EQ(refusal(on_gpu(name), bytes), "") << name;
  EXPECT_THAT(refusal(on_gpu("fa3"), deepseek()), HasSubstr("latents"));
  EXPECT_THAT(refusal(on_gpu("flashinfer_mla"), llama()), HasSubstr("keys and values of heads"));
  EXPECT_THAT(refusal(on_gpu("flashinfer_mla"), deepseek(2048)), HasSubstr("'dsa'"));
  EXPECT_THAT(refusal(on_gpu("dsa"), deepseek()), HasSubstr("no indexer"));
  AttentionShape odd = llama();
  odd.head_dim = odd.value_dim = 80;
  EXPECT_THAT(refusal(on_gpu("flashinfer"), odd), HasSubstr("heads of 80"));
  AttentionShape modified = llama();
  modified.has_score_mods = true;
  EXPECT_THAT(refusal(on_gpu("fa3"), modified), HasSubstr("soft caps"));
  AttentionOptions deterministic = on_gpu("fa3");
  deterministic.deterministic = true;
  EXPECT_THAT(refusal(deterministic, llama()), HasSubstr("--deterministic"));
}

TEST(AttentionRegistry, AutoSaysWhyEachOtherRowWasNotTaken) {
  const AttentionPick gpu = pick_attention_backend(on_gpu("auto"), llama());
  EXPECT_EQ(gpu.prefill, "native");
  EXPECT_EQ(gpu.decode, "native");
  AttentionOptions exact = on_gpu("auto");
  exact.deterministic = true;
  const AttentionPick ordered = pick_attention_backend(exact, llama());
  EXPECT_EQ(ordered.prefill, "native");
  EXPECT_THAT(ordered.reason,
              HasSubstr("not fa3, flashinfer, flashinfer_mla, dsa, nsa: --deterministic takes"));
  const AttentionPick cpu = pick_attention_backend({}, llama());
  EXPECT_EQ(cpu.prefill, "reference");
  for (const AttentionPick* pick : {&gpu, &cpu})
    for (const std::string_view name : attention_backend_names())
      EXPECT_THAT(pick->reason, HasSubstr(std::string(name)));
  EXPECT_THAT(
      cpu.reason,
      HasSubstr("not native, fa3, flashinfer, flashinfer_mla, dsa, nsa: it needs an NVIDIA GPU"));
}

TEST(AttentionRegistry, AnotherEnginesNameSaysWhoseKernelsServeIt) {
  EXPECT_THAT(pick_attention_backend(on_gpu("fa3"), llama()).reason,
              AllOf(HasSubstr("Sluice's own"), HasSubstr("FlashAttention-3, which is not part")));
}

// Their kernels run everywhere, and so do those that stand in for them.
TEST(AttentionRegistry, PortableNamesAreServedByThePortableKernels) {
  for (const std::string name : {"triton", "torch_native", "flex_attention"}) {
    AttentionOptions on_cpu;
    on_cpu.name = name;
    for (const AttentionOptions& options : {on_cpu, on_gpu(name), on_gpu(name, 80)})
      for (const AttentionShape& shape : {llama(), deepseek(), deepseek(2048)}) {
        const AttentionPick pick = pick_attention_backend(options, shape);
        EXPECT_EQ(pick.prefill, name);
        EXPECT_THAT(pick.reason,
                    AllOf(HasSubstr("attention " + name), HasSubstr("portable kernels")));
      }
    EXPECT_EQ(make_attention_backend(on_gpu(name), llama(), small_pool())->name(), name);
  }
  // Nothing chooses them by itself.
  EXPECT_EQ(pick_attention_backend(on_gpu("auto", 70), llama()).prefill, "reference");
}

TEST(AttentionRegistry, PrefillAndDecodeMayDiffer) {
  AttentionOptions options = on_gpu("auto");
  options.prefill_name = "fa3";
  options.decode_name = "flashinfer";
  const AttentionPick both = pick_attention_backend(options, llama());
  EXPECT_EQ(both.prefill, "fa3");
  EXPECT_EQ(both.decode, "flashinfer");
  EXPECT_EQ(make_attention_backend(options, llama(), small_pool())->name(), "fa3+flashinfer");
  options.name = "hybrid";  // unused, since both halves are named
  EXPECT_EQ(pick_attention_backend(options, llama()).decode, "flashinfer");
  options = on_gpu("flashinfer");
  options.prefill_name = "reference";
  EXPECT_EQ(pick_attention_backend(options, llama()).prefill, "reference");
  EXPECT_EQ(pick_attention_backend(options, llama()).decode, "flashinfer");
  AttentionOptions cpu;
  cpu.prefill_name = "reference";
  cpu.decode_name = "flashinfer";
  EXPECT_THAT(refusal(cpu, llama()), HasSubstr("'flashinfer'"));
}

// A back end that only counts which calls reach it.
class Counting final : public AttentionBackend {
 public:
  Counting(std::string_view name, int& calls) : name_(name), calls_(calls) {}
  std::string_view name() const override { return name_; }
  void plan(Context&, const ForwardBatch&) override { ++calls_; }
  void mha(Context&, const ForwardBatch&, const MhaArgs&) override { ++calls_; }
  void mla(Context&, const ForwardBatch&, const MlaArgs&) override { ++calls_; }
  void write_index_keys(Context&, const ForwardBatch&, int, const Tensor&) override { ++calls_; }
  void select_keys(Context&, const ForwardBatch&, int, const Tensor&, const Tensor&,
                   const Tensor&) override {
    ++calls_;
  }
  Tensor state_plane(int, std::string_view) const override { return {}; }
  MethodCounts method_counts() const override { return {calls_}; }

 private:
  std::string_view name_;
  int& calls_;
};

TEST(HybridAttnBackend, DecodeBatchesGoToOneAndAllOthersToTheOther) {
  struct Row {
    ForwardMode mode;
    bool decode;
  };
  for (const Row row : {Row{ForwardMode::kDecode, true}, Row{ForwardMode::kIdle, true},
                        Row{ForwardMode::kExtend, false}, Row{ForwardMode::kMixed, false}}) {
    int prefill_calls = 0, decode_calls = 0;
    HybridAttnBackend hybrid(std::make_unique<Counting>("a", prefill_calls),
                             std::make_unique<Counting>("b", decode_calls));
    EXPECT_EQ(hybrid.name(), "a+b");
    Context ctx;
    ForwardBatch fb;
    fb.mode = row.mode;
    hybrid.plan(ctx, fb);
    hybrid.mha(ctx, fb, {});
    hybrid.mla(ctx, fb, {});
    hybrid.write_index_keys(ctx, fb, 0, {});
    hybrid.select_keys(ctx, fb, 0, {}, {}, {});
    EXPECT_EQ(prefill_calls, row.decode ? 0 : 5);
    EXPECT_EQ(decode_calls, row.decode ? 5 : 0);
    EXPECT_EQ(hybrid.method_counts()[0], 5);
    ctx.deterministic = true;
    const int before = prefill_calls;
    hybrid.mha(ctx, fb, {});
    EXPECT_EQ(prefill_calls, before + 1);  // all rows use one order of summation
  }
}

}  // namespace
}  // namespace sluice
