#include "attention/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attention/hybrid.h"
#include "base/error.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

KVPool small_pool() {
  return KVPool({{.name = "full", .planes = {{"k", DType::kF32, 8, {0}}, {"v", DType::kF32, 8, {0}}}}}, {1});
}

std::string refusal(const std::string& name) {
  const KVPool pool = small_pool();
  AttentionOptions options;
  options.name = name;
  try {
    make_attention_backend(options, {.num_layers = 1}, pool);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    return error.message();
  }
  return "";
}

TEST(AttentionRegistry, AutoAndReferenceRunOnTheCpu) {
  const KVPool pool = small_pool();
  for (const std::string name : {"auto", "reference"}) {
    AttentionOptions options;
    options.name = name;
    EXPECT_EQ(make_attention_backend(options, {.num_layers = 1}, pool)->name(), "reference");
  }
}

TEST(AttentionRegistry, KnownNamesThatDoNotRunHereSayWhy) {
  int refused = 0;
  for (const std::string_view name : attention_backend_names()) {
    if (name == "reference") continue;
    EXPECT_THAT(refusal(std::string(name)), HasSubstr(std::string(name))) << name;
    ++refused;
  }
  EXPECT_GT(refused, 5);
  EXPECT_THAT(refusal("fa3"), HasSubstr("NVIDIA GPU"));
}

TEST(AttentionRegistry, UnknownNamesListTheKnownOnes) {
  EXPECT_THAT(refusal("flashinfr"), HasSubstr("flashinfer"));
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
  void select_keys(Context&, const ForwardBatch&, int, const Tensor&, const Tensor&, const Tensor&) override {
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
  for (const Row row :
       {Row{ForwardMode::kDecode, true}, Row{ForwardMode::kIdle, true}, Row{ForwardMode::kExtend, false},
        Row{ForwardMode::kMixed, false}, Row{ForwardMode::kTargetVerify, false}}) {
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
  }
}

}  // namespace
}  // namespace sluice
