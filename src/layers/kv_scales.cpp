#include "layers/kv_scales.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "layers/head_norm.h"

namespace sluice {
namespace {

// Below the attention's name, in the order in which they are tried.
constexpr std::array<std::string_view, 7> kKeyNames = {
    "k_scale",           "attn.k_scale",        "k_proj.k_scale", "qkv_proj.k_scale",
    "qkv_proj.kv_scale", "k_proj.output_scale", "kv_scale"};
constexpr std::array<std::string_view, 7> kValueNames = {
    "v_scale",           "attn.v_scale",        "v_proj.v_scale", "qkv_proj.v_scale",
    "qkv_proj.kv_scale", "v_proj.output_scale", "kv_scale"};

void require_positive(std::string_view name, const std::vector<float>& scales) {
  for (const float scale : scales)
    require(std::isfinite(scale) && scale > 0,
            "the tensor {} has the scale {} of the KV cache; a positive number was expected, the "
            "checkpoint is damaged; --kv-cache-dtype auto does not read it",
            name, scale);
}

// Undefined where no name exists, or all scales are 1.
Tensor load_first(const Weights& attention, std::span<const std::string_view> names,
                  std::int64_t kv_heads) {
  for (const std::string_view name : names) {
    std::vector<float> scales = attention.small_tensor(name);
    if (scales.empty()) continue;
    const auto count = static_cast<std::int64_t>(scales.size());
    require(count == 1 || count == kv_heads,
            "the tensor {} has {} scales of the KV cache; 1 or {} (one a KV head) were expected",
            attention.path(name), count, kv_heads);
    require_positive(attention.path(name), scales);
    if (count == 1) scales.resize(static_cast<std::size_t>(kv_heads), scales.front());
    if (std::ranges::all_of(scales, [](float scale) { return scale == 1; })) return {};
    const AxisRange own = share_heads(attention, kv_heads, "key heads");
    return attention.constant({scales.begin() + own.begin, scales.begin() + own.begin + own.count});
  }
  return {};
}

bool names_scale(std::string_view name, std::span<const std::string_view> endings) {
  return std::ranges::any_of(endings, [&](std::string_view ending) {
    return name.ends_with(ending) && name.size() > ending.size() &&
           name[name.size() - ending.size() - 1] == '.';
  });
}

}  // namespace

KvScales KvScales::load(const Weights& attention, std::int64_t kv_heads) {
  if (attention.numerics().kv() != DType::kF8E4M3) return {};
  return {.k = load_first(attention, kKeyNames, kv_heads),
          .v = load_first(attention, kValueNames, kv_heads)};
}

void check_kv_scales(const WeightSource& source) {
  int count = 0;
  for (const std::string& name : source.stored_names()) {
    if (!names_scale(name, kKeyNames) && !names_scale(name, kValueNames)) continue;
    ++count;
    const std::vector<float> scales = source.small_tensor(name);
    require(!scales.empty(), "the tensor {} has no scale of the KV cache; at least 1 was expected",
            name);
    require_positive(name, scales);
  }
  if (count == 0)
    log_info(
        "KV cache in fp8_e4m3: the checkpoint has no k_scale and v_scale, so keys and values are "
        "stored with the scale 1");
}

}  // namespace sluice
