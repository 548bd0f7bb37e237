#include "checkpoint/gguf/gguf_rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "base/error.h"

namespace sluice {
namespace {

constexpr double kTolerance = 1e-4;  // relative, per divisor: files store divisors in float32
constexpr std::int64_t kMaxDivisors = 8192;

double wave_length(double theta, std::size_t i, std::size_t num) {
  return 2 * std::numbers::pi * std::pow(theta, static_cast<double>(i) / static_cast<double>(num));
}

// transformers `_compute_llama3_parameters`, as the divisor of the frequency.
double divisor_of(const Llama3Scaling& scaling, double length) {
  if (length > scaling.original_max_position) return scaling.factor;
  if (length < scaling.original_max_position / scaling.high_freq_factor) return 1;
  const double smooth =
      (scaling.original_max_position / length - 1) / (scaling.high_freq_factor - 1);
  return 1 / ((1 - smooth) / scaling.factor + smooth);
}

double nearest_whole(double value, double tolerance) {
  const double whole = std::round(value);
  return std::abs(whole - value) <= tolerance * value ? whole : value;
}

std::vector<float> read_divisors(const GgufFile& file, const GgufTensor& tensor) {
  require(tensor.shape.size() == 1 && tensor.dtype == DType::kF32 && !tensor.blocks &&
              tensor.unreadable.empty() && tensor.columns() <= kMaxDivisors,
          "{}: the tensor {} is {} with {} dimensions; a float32 vector of at most {} was expected",
          file.name(), tensor.name, tensor.type_name(), tensor.shape.size(), kMaxDivisors);
  std::vector<float> divisors(static_cast<std::size_t>(tensor.columns()));
  file.read(tensor, 0, std::as_writable_bytes(std::span(divisors)));
  return divisors;
}

Json llama3_rope(const GgufFile& file, const GgufTensor& tensor, double theta) {
  const std::vector<float> divisors = read_divisors(file, tensor);
  if (std::all_of(divisors.begin(), divisors.end(), [](float d) { return d == 1; })) return {};
  const auto scaling = fit_llama3_scaling(divisors, theta);
  require(scaling.has_value(),
          "{}: the frequencies of {} are scaled in a way that is not Llama 3's; only that one is "
          "supported",
          file.name(), tensor.name);
  return {{"rope_type", "llama3"},
          {"factor", scaling->factor},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", scaling->high_freq_factor},
          {"original_max_position_embeddings", std::llround(scaling->original_max_position)}};
}

Json number_list(const std::vector<float>& values) {
  Json list = Json::array();
  for (const float value : values) list.push_back(value);
  return list;
}

// Two lists of divisors, for short and for long texts (Phi-3).
Json long_rope(const GgufFile& file, const GgufTensor& long_factors,
               const GgufTensor& short_factors, const std::string& prefix) {
  Json rope = {{"rope_type", "longrope"},
               {"long_factor", number_list(read_divisors(file, long_factors))},
               {"short_factor", number_list(read_divisors(file, short_factors))}};
  if (const auto original = file.find_integer(prefix + "original_context_length"))
    rope["original_max_position_embeddings"] = *original;
  if (const auto attention = file.find_number(prefix + "attn_factor"))
    rope["attention_factor"] = *attention;
  return rope;
}

}  // namespace

std::optional<Llama3Scaling> fit_llama3_scaling(std::span<const float> divisors, double theta) {
  Llama3Scaling scaling;
  for (const float divisor : divisors)
    if (!(divisor >= 1 && divisor <= 1e6)) return std::nullopt;
  if (divisors.empty()) return std::nullopt;
  scaling.factor = *std::max_element(divisors.begin(), divisors.end());
  if (scaling.factor <= 1) return std::nullopt;
  // Between the two ends 1 / divisor is linear in 1 / wave length: smooth = a / length - b, with b
  // = 1 / (high - 1) and a = original / (high - 1).
  std::vector<std::pair<double, double>> band;  // 1 / length, smooth
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    const double smooth =
        (1 / static_cast<double>(divisors[i]) - 1 / scaling.factor) / (1 - 1 / scaling.factor);
    if (smooth > kTolerance && smooth < 1 - kTolerance)
      band.emplace_back(1 / wave_length(theta, i, divisors.size()), smooth);
  }
  if (band.empty()) return std::nullopt;
  double a = 0, b = 1.0 / (scaling.high_freq_factor -
                           1);  // only one point: use the high_freq_factor of all known models
  if (band.size() > 1 && band.front().first != band.back().first) {
    a = (band.front().second - band.back().second) / (band.front().first - band.back().first);
    b = a * band.front().first - band.front().second;
  } else {
    a = (band.front().second + b) / band.front().first;
  }
  if (!(a > 0 && b > 0)) return std::nullopt;
  scaling.high_freq_factor = nearest_whole(1 + 1 / b, 1e-3);
  scaling.original_max_position = nearest_whole(a * (scaling.high_freq_factor - 1), 1e-3);
  if (scaling.original_max_position < 1 || scaling.original_max_position > 1e9) return std::nullopt;
  scaling.original_max_position = std::round(scaling.original_max_position);
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    const double wanted = divisor_of(scaling, wave_length(theta, i, divisors.size()));
    if (std::abs(divisors[i] - wanted) > kTolerance * wanted) return std::nullopt;
  }
  return scaling;
}

Json gguf_rope_scaling(const GgufFile& file, const std::string& arch, double theta) {
  const std::string prefix = arch + ".rope.scaling.";
  const GgufTensor* const long_factors = file.find_tensor("rope_factors_long.weight");
  const GgufTensor* const short_factors = file.find_tensor("rope_factors_short.weight");
  require((long_factors == nullptr) == (short_factors == nullptr),
          "{}: rope_factors_long.weight and rope_factors_short.weight must stand together",
          file.name());
  if (long_factors != nullptr) return long_rope(file, *long_factors, *short_factors, prefix);
  if (const GgufTensor* divisors = file.find_tensor("rope_freqs.weight"))
    return llama3_rope(file, *divisors, theta);
  const std::string type(file.find_string(prefix + "type").value_or("none"));
  if (type == "none") {
    const double factor =
        file.find_number(arch + ".rope.scale_linear").value_or(1);  // the key of old files
    return factor == 1 ? Json() : Json{{"rope_type", "linear"}, {"factor", factor}};
  }
  const auto factor = file.find_number(prefix + "factor");
  if (type == "linear") {
    require(factor.has_value(), "{}: the key {}factor is missing", file.name(), prefix);
    return {{"rope_type", "linear"}, {"factor", *factor}};
  }
  require(type == "yarn", "{}: {}type is {}; supported are none, linear and yarn", file.name(),
          prefix, type.substr(0, 64));
  require(factor.has_value(), "{}: the key {}factor is missing", file.name(), prefix);
  Json rope = {{"rope_type", "yarn"}, {"factor", *factor}};
  if (const auto original = file.find_integer(prefix + "original_context_length"))
    rope["original_max_position_embeddings"] = *original;
  if (const auto attention = file.find_number(prefix + "attn_factor"))
    rope["attn_factor"] = *attention;
  if (const auto attention = file.find_number(prefix + "yarn_attn_factor"))
    rope["attention_factor"] = *attention;
  if (const auto fast = file.find_number(prefix + "yarn_beta_fast")) rope["beta_fast"] = *fast;
  if (const auto slow = file.find_number(prefix + "yarn_beta_slow")) rope["beta_slow"] = *slow;
  // deepseek2 stores 0.1 mscale_all_dim; in its models mscale has the same value.
  if (const auto multiplier = file.find_number(prefix + "yarn_log_multiplier");
      multiplier && *multiplier > 0)
    rope["mscale"] = rope["mscale_all_dim"] = std::round(*multiplier * 1e7) / 1e6;
  return rope;
}

}  // namespace sluice
