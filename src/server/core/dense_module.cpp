#include "server/core/dense_module.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "checkpoint/weight_source.h"

namespace sluice {
namespace {

struct ActivationRow {
  std::string_view name;  // the last part of `activation_function`
  DenseActivation activation;
};
constexpr ActivationRow kActivations[] = {
    {"Identity", DenseActivation::kIdentity}, {"Tanh", DenseActivation::kTanh},
    {"ReLU", DenseActivation::kRelu},         {"GELU", DenseActivation::kGelu},
    {"SiLU", DenseActivation::kSilu},         {"Sigmoid", DenseActivation::kSigmoid},
};

std::int64_t features_of(const Json& config, const char* key, const std::string& file) {
  const auto found = config.find(key);
  require(found != config.end() && found->is_number_integer() && *found > 0 && *found <= 1 << 17,
          "{}: {} must be an integer from 1 to {}", file, key, 1 << 17);
  return found->get<std::int64_t>();
}

bool flag_of(const Json& config, const char* key, bool fallback, const std::string& file) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return fallback;
  require(found->is_boolean(), "{}: {} must be true or false", file, key);
  return found->get<bool>();
}

DenseActivation activation_of(const Json& config, const std::string& file) {
  const auto found = config.find("activation_function");
  if (found == config.end()) return DenseActivation::kTanh;
  require(found->is_string(), "{}: activation_function must be the name of a class of torch", file);
  const std::string& name = found->get_ref<const std::string&>();
  const auto* row = std::ranges::find(
      kActivations, std::string_view(name).substr(name.rfind('.') + 1), &ActivationRow::name);
  require(name.starts_with("torch.") && row != std::end(kActivations),
          "{}: activation_function is {}; supported are Identity, Tanh, ReLU, GELU, SiLU and "
          "Sigmoid of torch.nn",
          file, name.substr(0, 96));
  return row->activation;
}

std::vector<float> read_tensor(const WeightSource& source, std::string_view name,
                               std::vector<std::int64_t> shape) {
  require(source.has(name, true), "there is no tensor {}", name);
  std::vector<float> out(static_cast<std::size_t>(WeightRequest{name, shape}.numel()));
  source.load({.name = name, .shape = std::move(shape)}, DType::kF32,
              std::as_writable_bytes(std::span(out)));
  return out;
}

float activate(DenseActivation activation, float x) {
  switch (activation) {
    case DenseActivation::kIdentity:
      return x;
    case DenseActivation::kTanh:
      return std::tanh(x);
    case DenseActivation::kRelu:
      return std::max(x, 0.0f);
    case DenseActivation::kGelu:
      return 0.5f * x * (1 + std::erf(x * 0.70710678f));
    case DenseActivation::kSilu:
      return x / (1 + std::exp(-x));
    case DenseActivation::kSigmoid:
      return 1 / (1 + std::exp(-x));
  }
  return x;
}

// Sixteen partial sums in ascending order, joined by halves, then the rest one by one.
float dot(const float* a, const float* b, std::int64_t n) {
  constexpr std::int64_t kLanes = 8;
  using Lanes = float __attribute__((vector_size(32)));
  Lanes sums[2] = {};
  std::int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes)
    for (std::int64_t half = 0; half < 2; ++half) {
      Lanes x, y;
      std::memcpy(&x, a + i + half * kLanes, sizeof x);
      std::memcpy(&y, b + i + half * kLanes, sizeof y);
      sums[half] += x * y;
    }
  const Lanes all = sums[0] + sums[1];
  float sum = ((all[0] + all[4]) + (all[2] + all[6])) + ((all[1] + all[5]) + (all[3] + all[7]));
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

DenseModule DenseModule::load(const std::string& directory, std::string_view folder,
                              const Json& config, std::int64_t width) {
  const std::string file = fmt::format("{}/config.json", folder);
  require(!config.is_null(), "modules.json names {}, which is not there", file);
  DenseModule out;
  out.num_inputs_ = features_of(config, "in_features", file);
  out.num_outputs_ = features_of(config, "out_features", file);
  require(out.num_inputs_ == width, "{}: in_features is {}; the vector before it has {} numbers",
          file, out.num_inputs_, width);
  out.activation_ = activation_of(config, file);
  out.adds_input_ = flag_of(config, "use_residual", false, file);
  try {
    out.read_weights(directory, folder, flag_of(config, "bias", true, file));
  } catch (const Error& error) {
    fail(ErrorKind::kBadInput, "{}: {}", folder, error.message());
  }
  return out;
}

void DenseModule::read_weights(const std::string& directory, std::string_view folder,
                               bool has_bias) {
  const WeightSource source = WeightSource::checkpoint(fmt::format("{}/{}", directory, folder));
  const std::vector<std::int64_t> shape = {num_outputs_, num_inputs_};
  weight_ = read_tensor(source, "linear.weight", shape);
  if (has_bias)
    bias_ = read_tensor(source, "linear.bias", {num_outputs_});
  else
    bias_.resize(static_cast<std::size_t>(num_outputs_));
  if (adds_input_ && num_inputs_ != num_outputs_)
    residual_ = read_tensor(source, "residual.weight", shape);
}

void DenseModule::apply(std::span<std::vector<float>> rows) const {
  // Weights are read once for this many rows, which stay in a core's cache.
  constexpr std::size_t kRowsAtOnce = 16;
  for (std::size_t begin = 0; begin < rows.size(); begin += kRowsAtOnce) {
    const auto some = rows.subspan(begin, std::min(kRowsAtOnce, rows.size() - begin));
    std::vector<std::vector<float>> outputs(
        some.size(), std::vector<float>(static_cast<std::size_t>(num_outputs_)));
    for (std::int64_t o = 0; o < num_outputs_; ++o) {
      const float* weight = weight_.data() + o * num_inputs_;
      for (std::size_t r = 0; r < some.size(); ++r) {
        const auto at = static_cast<std::size_t>(o);
        float value = activate(activation_, dot(weight, some[r].data(), num_inputs_) + bias_[at]);
        if (adds_input_)
          value += residual_.empty()
                       ? some[r][at]
                       : dot(residual_.data() + o * num_inputs_, some[r].data(), num_inputs_);
        outputs[r][at] = value;
      }
    }
    std::ranges::move(outputs, some.begin());
  }
}

}  // namespace sluice
