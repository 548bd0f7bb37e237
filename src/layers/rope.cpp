#include "layers/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "ops/rope.h"
#include "tensor/copy.h"

namespace sluice {
namespace {

std::vector<double> unscaled(double theta, int rotary_dim) {
  std::vector<double> inv(static_cast<std::size_t>(rotary_dim / 2));
  for (std::size_t i = 0; i < inv.size(); ++i)
    inv[i] = std::pow(theta, -2.0 * static_cast<double>(i) / rotary_dim);
  return inv;
}

// Long wavelengths are divided by the factor, short ones kept, those between blended.
void scale_llama3(const RopeConfig& c, std::vector<double>& inv) {
  const double orig = c.original_max_position;
  for (double& f : inv) {
    const double wavelength = 2 * std::numbers::pi / f;
    if (wavelength < orig / c.high_freq_factor) continue;
    if (wavelength > orig / c.low_freq_factor) {
      f /= c.factor;
      continue;
    }
    const double s =
        (orig / wavelength - c.low_freq_factor) / (c.high_freq_factor - c.low_freq_factor);
    f = (1 - s) * f / c.factor + s * f;
  }
}

void scale_yarn(const RopeConfig& c, std::vector<double>& inv) {
  const double r = c.rotary_dim;
  // The dimension that turns `n` times within the original context.
  const auto correction = [&](double n) {
    return r * std::log(c.original_max_position / (2 * std::numbers::pi * n)) /
           (2 * std::log(c.theta));
  };
  double low = correction(c.beta_fast), high = correction(c.beta_slow);
  if (c.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, r - 1);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < inv.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    inv[i] = inv[i] * (1 - ramp) + inv[i] / c.factor * ramp;
  }
}

double mscale(double factor, double m) {
  return factor <= 1 ? 1.0 : 0.1 * m * std::log(factor) + 1.0;
}

// The base of dynamic NTK scaling for sequences of `length` tokens.
double dynamic_theta(const RopeConfig& config, std::int64_t max_position, std::int64_t length) {
  const double r = config.rotary_dim;
  const double ratio =
      static_cast<double>(std::max(length, max_position)) / static_cast<double>(max_position);
  return config.theta * std::pow(config.factor * ratio - (config.factor - 1), r / (r - 2));
}

std::vector<float> narrowed(const std::vector<double>& inv) {
  return {inv.begin(), inv.end()};
}

Tensor view_of(const std::vector<float>& values) {
  return Tensor::dense(const_cast<float*>(values.data()), DType::kF32,
                       {static_cast<std::int64_t>(values.size())});
}

}  // namespace

bool depends_on_length(const RopeConfig& config, std::int64_t max_position, std::int64_t context) {
  if (config.type == RopeType::kLongRope)
    return (config.short_factor != config.long_factor ||
            config.short_mscale != config.long_mscale) &&
           context > config.original_max_position;
  return config.type == RopeType::kDynamic && context > max_position;
}

RopeConfig rope_for_context(const RopeConfig& config, std::int64_t max_position,
                            std::int64_t context) {
  RopeConfig fixed = config;
  if (config.type == RopeType::kLongRope) {
    if (context > config.original_max_position) {
      fixed.short_factor = config.long_factor;
      fixed.short_mscale = config.long_mscale;
    }
    fixed.long_factor = fixed.short_factor;
    fixed.long_mscale = fixed.short_mscale;
  } else if (config.type == RopeType::kDynamic) {
    fixed.type = RopeType::kDefault;
    fixed.theta = dynamic_theta(config, max_position, context);
  }
  return fixed;
}

std::vector<float> rope_inv_freq(const RopeConfig& config) {
  std::vector<double> inv = unscaled(config.theta, config.rotary_dim);
  switch (config.type) {
    case RopeType::kDefault:
    case RopeType::kDynamic:
      break;
    case RopeType::kLinear:
      for (double& f : inv) f /= config.factor;
      break;
    case RopeType::kLlama3:
      scale_llama3(config, inv);
      break;
    case RopeType::kYarn:
      scale_yarn(config, inv);
      break;
    case RopeType::kLongRope:
      return longrope_inv_freq(config, false);
  }
  return narrowed(inv);
}

std::vector<float> longrope_inv_freq(const RopeConfig& config, bool is_long) {
  std::vector<double> inv = unscaled(config.theta, config.rotary_dim);
  const std::vector<double>& factors = is_long ? config.long_factor : config.short_factor;
  for (std::size_t i = 0; i < inv.size(); ++i) inv[i] /= factors[i];
  return narrowed(inv);
}

std::vector<float> dynamic_inv_freq(const RopeConfig& config, std::int64_t max_position,
                                    std::int64_t length) {
  return narrowed(unscaled(dynamic_theta(config, max_position, length), config.rotary_dim));
}

float rope_attention_factor(const RopeConfig& config, bool is_long) {
  if (config.type != RopeType::kYarn && config.type != RopeType::kLongRope) return 1;
  if (const auto& given = is_long ? config.long_mscale : config.short_mscale)
    return static_cast<float>(*given);
  if (config.attention_factor) return static_cast<float>(*config.attention_factor);
  if (config.type == RopeType::kLongRope)
    return config.factor <= 1
               ? 1.0f
               : static_cast<float>(std::sqrt(1 + std::log(config.factor) /
                                                      std::log(config.original_max_position)));
  if (config.mscale != 0 && config.mscale_all_dim != 0)
    return static_cast<float>(mscale(config.factor, config.mscale) /
                              mscale(config.factor, config.mscale_all_dim));
  return static_cast<float>(mscale(config.factor, 1));
}

double yarn_softmax_factor(const RopeConfig& config) {
  if (config.type == RopeType::kDefault || config.mscale_all_dim == 0) return 1;
  const double m = mscale(config.factor, config.mscale_all_dim);
  return m * m;
}

Rotary::Rotary(const RopeConfig& config, std::int64_t max_position)
    : config_(config),
      max_position_(max_position),
      inv_freq_(rope_inv_freq(config)),
      attention_factor_(rope_attention_factor(config)) {}

void Rotary::cos_sin(Context& ctx, const ForwardBatch& fb, const Tensor& cos_sin) const {
  if (!depends_on_length(config_, max_position_, fb.max_seq_len)) {
    ops::rope_cos_sin(ctx, fb.positions, frequencies_, attention_factor_, cos_sin);
    return;
  }
  for (std::size_t s = 0; s < static_cast<std::size_t>(fb.num_seqs); ++s) {
    const std::int64_t begin = fb.host_extend_start_loc[s];
    const std::int64_t count = fb.host_extend_start_loc[s + 1] - begin;
    const std::int64_t length = fb.host_seq_lens[s];
    const bool is_long = length > config_.original_max_position;
    const std::vector<float> inv_freq = config_.type == RopeType::kDynamic
                                            ? dynamic_inv_freq(config_, max_position_, length)
                                            : longrope_inv_freq(config_, is_long);
    Arena::Scope scope(*ctx.arena);
    ops::rope_cos_sin(ctx, fb.positions.rows(begin, count), to_device(ctx, view_of(inv_freq)),
                      rope_attention_factor(config_, is_long), cos_sin.rows(begin, count));
  }
}

}  // namespace sluice
