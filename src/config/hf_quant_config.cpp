#include "config/hf_quant_config.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "config/config_reader.h"
#include "config/quant_config.h"

namespace sluice {
namespace {

constexpr const char* kFile = "hf_quant_config.json";
constexpr std::size_t kMaxBytes = 16 << 20;  // lists of modules grow with the layers
constexpr const char* kKeys[] = {"quantization_config", "compression_config"};

bool says_how(const Json& config) {
  return std::ranges::any_of(
      kKeys, [&](const char* key) { return config.contains(key) && !config[key].empty(); });
}

bool overrides(std::string_view override_args) {
  const Result<Json> patch = parse_json(override_args.empty() ? "{}" : override_args);
  return patch.ok() && patch->is_object() &&
         std::ranges::any_of(kKeys, [&](const char* key) { return patch->contains(key); });
}

}  // namespace

bool add_hf_quant_config(const std::string& directory, std::string_view override_args,
                         Json& config) {
  if (!config.is_object() || says_how(config) || overrides(override_args)) return false;
  const auto text = read_text_beneath(directory, kFile, kMaxBytes);
  if (!text) return false;
  const std::string what = directory + "/" + kFile;
  Json file = parse_config_text(*text, what);
  require(file.is_object() && file.contains("quantization") && file["quantization"].is_object(),
          "{}: an object \"quantization\" was expected", what);
  Json& quantization = file["quantization"];
  // Null, or absent: ModelOpt rounded the KV cache alone, or nothing.
  if (!quantization.contains("quant_algo") || quantization["quant_algo"].is_null()) return false;
  quantization["quant_method"] = "modelopt";
  read_quantization(ConfigReader(file, what), "quantization");  // refuses in the words of this file
  config["quantization_config"] = quantization;
  return true;
}

}  // namespace sluice
