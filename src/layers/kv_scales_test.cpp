#include "layers/kv_scales.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/testing/errors.h"
#include "base/testing/folder.h"
#include "checkpoint/testing/safetensors_writer.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class KvScalesTest : public ::testing::Test {
 protected:
  void add(const std::string& name, const std::vector<float>& scales,
           std::vector<std::int64_t> shape) {
    writer_.add("model.layers.0.self_attn." + name, "F32", std::move(shape), scales);
  }
  const WeightSource& source() {
    if (!source_) {
      writer_.add("model.norm.weight", "F32", {1}, std::vector<float>{1});
      writer_.write_to(folder_, "model.safetensors");
      // As with quantised weights, whose sources hide the tensors.
      source_.emplace(WeightSource::checkpoint(
          folder_.path(), {.quantization = QuantizationConfig{.method = "fp8"}}));
    }
    return *source_;
  }
  KvScales load(std::int64_t heads, DType cache = DType::kF8E4M3) {
    WeightLoader loader(source(), {.kv_stored = cache}, DType::kF32, ctx_);
    const KvScales scales = KvScales::load(loader.root().sub("model.layers.0.self_attn"), heads);
    stores_.push_back(loader.take_store());
    return scales;
  }
  static std::vector<float> numbers(const Tensor& scales) {
    if (!scales.defined()) return {};
    return {scales.ptr<float>(), scales.ptr<float>() + scales.dim(0)};
  }

  Context ctx_;
  TestFolder folder_;
  SafetensorsWriter writer_;
  std::optional<WeightSource> source_;
  std::vector<WeightStore> stores_;
};

TEST_F(KvScalesTest, OneOfALayerIsThatOfEachHead) {
  add("k_scale", {0.25f}, {1});
  add("v_scale", {0.5f}, {});
  const KvScales scales = load(3);
  EXPECT_THAT(numbers(scales.k), ElementsAre(0.25f, 0.25f, 0.25f));
  EXPECT_THAT(numbers(scales.v), ElementsAre(0.5f, 0.5f, 0.5f));
  EXPECT_NO_THROW(check_kv_scales(source()));
}

TEST_F(KvScalesTest, HeadsMayHaveTheirOwn) {
  add("k_proj.output_scale", {0.25f, 3}, {2, 1});
  add("v_proj.v_scale", {1, 1}, {2});
  const KvScales scales = load(2);
  EXPECT_THAT(numbers(scales.k), ElementsAre(0.25f, 3));
  EXPECT_FALSE(scales.v.defined());  // all are 1
}

TEST_F(KvScalesTest, OtherCachesReadNone) {
  add("kv_scale", {0.25f}, {1});
  EXPECT_FALSE(load(2, DType::kBF16).k.defined());
  EXPECT_THAT(numbers(load(2).k), ElementsAre(0.25f, 0.25f));
  EXPECT_THAT(numbers(load(2).v), ElementsAre(0.25f, 0.25f));
}

TEST_F(KvScalesTest, AnotherNumberIsRefused) {
  add("k_scale", {0.25f, 1, 1}, {3});
  EXPECT_THAT(message_of([&] { load(2); }),
              HasSubstr("self_attn.k_scale has 3 scales of the KV cache; 1 or 2 (one a KV head)"));
}

TEST_F(KvScalesTest, ScalesThatAreNotPositiveAreRefused) {
  add("k_scale", {1}, {1});
  add("v_scale", {0}, {1});
  EXPECT_THAT(message_of([&] { check_kv_scales(source()); }),
              HasSubstr("self_attn.v_scale has the scale 0 of the KV cache; a positive number was "
                        "expected"));
}

TEST_F(KvScalesTest, NeitherAreNegativeOnesAndNan) {
  for (const float bad :
       {-1.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    TestFolder folder;
    SafetensorsWriter writer;
    writer.add("model.layers.0.self_attn.attn.k_scale", "F32", {2}, std::vector<float>{1, bad});
    writer.write_to(folder, "model.safetensors");
    const WeightSource source = WeightSource::checkpoint(folder.path());
    EXPECT_THAT(message_of([&] { check_kv_scales(source); }), HasSubstr("the scale"));
  }
}

}  // namespace
}  // namespace sluice
