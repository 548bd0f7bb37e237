// Models with integer weights, against an exact model of the arithmetic.
#include <gtest/gtest.h>

#include <iostream>
#include <tuple>

#include "kernels/types/quantize_model.h"
#include "models/testing/driver.h"
#include "models/testing/golden_support.h"
#include "ops/activation.h"
#include "ops/norm.h"

namespace sluice::testing {
namespace {

using ops::Format;
using ops::testing::ModelMatrix;
using Vector = std::vector<float>;

Tensor view(Vector& v) {
  return Tensor::dense(v.data(), DType::kF32, {1, static_cast<std::int64_t>(v.size())});
}

// A Llama or Qwen3 model with matrices of ModelMatrix. It computes sequences of one token: their
// attention output is the value itself. Norms and activations are the operations of Sluice, which
// have their own tests.
class ExactModel {
 public:
  ExactModel(const std::string& directory, Format format, std::int64_t group, CpuIsa isa)
      : config_(parse_model_config(*read_text_beneath(directory, "config.json", 1 << 20),
                                   "config.json")),
        source_(WeightSource::checkpoint(directory)),
        format_(format),
        group_(group) {
    ctx_.cpu_isa = isa;
    const std::int64_t hidden = config_.hidden_size, width = config_.intermediate_size;
    for (int i = 0; i < config_.num_layers; ++i) {
      const std::string at = fmt::format("model.layers.{}.", i);
      layers_.push_back(
          {values(at + "input_layernorm.weight", {hidden}),
           values(at + "post_attention_layernorm.weight", {hidden}),
           matrix(at + "self_attn.v_proj.weight", config_.num_kv_heads * config_.head_dim, hidden),
           matrix(at + "self_attn.o_proj.weight", hidden, config_.num_heads * config_.head_dim),
           matrix(at + "mlp.gate_proj.weight", width, hidden),
           matrix(at + "mlp.up_proj.weight", width, hidden),
           matrix(at + "mlp.down_proj.weight", hidden, width)});
    }
  }

  Vector logits(int token) {
    const std::int64_t hidden = config_.hidden_size;
    const bool tied = config_.tie_word_embeddings;
    const ModelMatrix head =
        matrix(tied ? "model.embed_tokens.weight" : "lm_head.weight", config_.vocab_size, hidden);
    Vector residual(static_cast<std::size_t>(hidden));
    // An untied embedding keeps the checkpoint's values; a tied embedding is the head.
    const Vector table = values("model.embed_tokens.weight", {config_.vocab_size, hidden});
    for (std::int64_t k = 0; k < hidden; ++k)
      residual[static_cast<std::size_t>(k)] =
          tied ? head.value(token, k) : table[static_cast<std::size_t>(token * hidden + k)];
    for (Layer& layer : layers_) {
      const Vector v = product(layer.v, norm(residual, layer.input_norm));
      // Every query head of a GQA group sees the one value of its KV head.
      Vector mixed;
      for (std::int64_t head_index = 0; head_index < config_.num_heads; ++head_index) {
        const std::int64_t first =
            head_index / (config_.num_heads / config_.num_kv_heads) * config_.head_dim;
        mixed.insert(mixed.end(), v.begin() + first, v.begin() + first + config_.head_dim);
      }
      add(residual, product(layer.o, mixed));
      const Vector x = norm(residual, layer.post_norm);
      Vector both = product(layer.gate, x);
      const Vector up = product(layer.up, x);
      both.insert(both.end(), up.begin(), up.end());
      Vector inner(up.size());
      ops::act_and_mul(ctx_, Activation::kSilu, view(both), view(inner));
      add(residual, product(layer.down, inner));
    }
    Vector last = values("model.norm.weight", {hidden});
    return product(head, norm(residual, last));
  }

  const ModelConfig& config() const { return config_; }

 private:
  struct Layer {
    Vector input_norm, post_norm;
    ModelMatrix v, o, gate, up, down;
  };

  Vector values(const std::string& name, std::vector<std::int64_t> shape) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    Vector out(static_cast<std::size_t>(count));
    source_.load({.name = name, .shape = std::move(shape)}, DType::kF32,
                 std::as_writable_bytes(std::span(out)));
    return out;
  }
  ModelMatrix matrix(const std::string& name, std::int64_t rows, std::int64_t columns) {
    Vector plain = values(name, {rows, columns});
    return ModelMatrix::quantised(
        format_, Tensor::dense(plain.data(), DType::kF32, {rows, columns}), group_);
  }
  Vector product(const ModelMatrix& w, const Vector& x) const {
    const ops::testing::ModelRow row(x.data(), w.columns, w.group);
    Vector out;
    for (std::int64_t n = 0; n < w.rows; ++n) out.push_back(w.product(row, n));
    return out;
  }
  Vector norm(Vector& x, Vector& weight) {
    Vector out(x.size());
    ops::rms_norm(
        ctx_, view(x),
        Tensor::dense(weight.data(), DType::kF32, {static_cast<std::int64_t>(weight.size())}),
        static_cast<float>(config_.rms_norm_eps), view(out));
    return out;
  }
  static void add(Vector& to, const Vector& from) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
  }

  ModelConfig config_;
  WeightSource source_;
  Format format_;
  std::int64_t group_;
  Context ctx_;
  std::vector<Layer> layers_;
};

struct Case {
  std::string model;
  Format format;
  std::int64_t group;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.model << " format " << static_cast<int>(c.format) << " group " << c.group;
}

class QuantisedModel : public ::testing::TestWithParam<Case> {};

DriverOptions driver_options(const Case& c) {
  DriverOptions options;
  options.numerics.quantization = c.format;
  options.numerics.quantization_group = c.group;
  return options;
}

TEST_P(QuantisedModel, LogitsAreThoseOfTheExactModelBitForBit) {
  const Case& c = GetParam();
  ExactModel exact(golden_models() + c.model, c.format, c.group, detect_cpu_isa());
  TestDriver driver(golden_models() + c.model, driver_options(c));
  std::vector<DriverItem> items;
  for (const int token : {0, 3, 77, 200, exact.config().vocab_size - 1})
    items.push_back({.sequence = static_cast<int>(items.size()), .tokens = {token}});
  const Rows rows = driver.step(items);
  for (std::size_t i = 0; i < items.size(); ++i)
    EXPECT_EQ(rows[i], exact.logits(items[i].tokens[0])) << "row " << i;
}

TEST_P(QuantisedModel, APromptHasTheSameBitsHoweverItIsCutOnEveryInstructionSetsOwn) {
  const Case& c = GetParam();
  const std::string directory = golden_models() + c.model;
  const std::vector<int> ids = ids_of(read_json(directory, "golden.json")["prompts"][3]);
  for (const CpuIsa isa : kCpuIsas) {
    if (isa > detect_cpu_isa()) continue;
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      DriverOptions options = driver_options(c);
      options.numerics.compute = dtype;
      options.isa = isa;
      options.max_tokens = 1024;
      TestDriver driver(directory, options);
      const Rows whole = driver.step({{0, ids}});
      Rows cut;
      for (std::size_t at = 0; at < ids.size(); at += 7) {
        const std::vector<int> piece(
            ids.begin() + static_cast<std::ptrdiff_t>(at),
            ids.begin() + static_cast<std::ptrdiff_t>(std::min(ids.size(), at + 7)));
        for (std::vector<float>& row : driver.step({{1, piece}})) cut.push_back(std::move(row));
      }
      EXPECT_EQ(cut, whole);
      options.threads = 2;
      TestDriver two(directory, options);
      EXPECT_EQ(two.step({{0, ids}}), whole);
    }
  }
}

// The cost of a format is the root mean square error of a normally distributed weight, in units of
// sigma. For bfloat16 it is 2^-9 / sqrt(3) * E[2^floor(log2 |x|)] = 8e-4. For integers the step is
// 1/n of the largest value of a group (2.4 sigma of 32, 2.9 of 128), and the error 1 / sqrt(12) of
// a step. Log-probabilities change in proportion, so bfloat16's recorded mean gives the scale; 1.5
// is the margin of tests/golden/README.md.
TEST_P(QuantisedModel, LogProbabilitiesChangeByWhatTheFormatCosts) {
  const Case& c = GetParam();
  const std::string directory = golden_models() + c.model;
  const Json golden = read_json(directory, "golden.json");
  double sum = 0;
  std::int64_t count = 0;
  for (const Json& prompt : golden["prompts"]) {
    TestDriver driver(directory, driver_options(c));
    const Rows rows = driver.step({{0, ids_of(prompt)}});
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::size_t j = 0; j < prompt["top5_ids"][i].size(); ++j, ++count)
        sum += std::abs(rows[i][prompt["top5_ids"][i][j].get<std::size_t>()] -
                        log_sum_exp(rows[i]) - prompt["top5_logprobs"][i][j].get<double>());
  }
  const double recorded = golden["checks"]["bfloat16"]["mean_abs_dlogprob_top5"].get<double>();
  const double step = (c.group == 32 ? 2.4 : 2.9) / (c.format == Format::kInt8 ? 127 : 8);
  const double allowed = 1.5 * recorded * (step / std::sqrt(12.0)) / 8e-4,
               mean = sum / static_cast<double>(count);
  std::cout << "[ measured ] mean change of log-probabilities " << mean << ", allowed " << allowed
            << "\n";
  EXPECT_LE(mean, allowed);
}

INSTANTIATE_TEST_SUITE_P(Models, QuantisedModel,
                         ::testing::Values(Case{"llama-plain", Format::kInt8, 32},
                                           Case{"llama-plain", Format::kInt4, 32},
                                           Case{"qwen3", Format::kInt8, 128},
                                           Case{"qwen3", Format::kInt4, 128},
                                           Case{"llama-llama3-tied", Format::kInt8, 32},
                                           Case{"llama-llama3-tied", Format::kInt4, 32}));

}  // namespace
}  // namespace sluice::testing
