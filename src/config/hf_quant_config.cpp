#include "config/hf_quant_config.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "config/config_reader.h"

namespace sluice {
namespace {

constexpr const char* kFile = "hf_quant_config.json";
constexpr std::size_t kMaxBytes = 16 << 20;  // lists of modules grow with the layers

}  // namespace

void add_hf_quant_config(const std::string& directory, Json& config) {
  if (!config.is_object() || config.contains("quantization_config") ||
      config.contains("compression_config"))
    return;
  const auto text = read_text_beneath(directory, kFile, kMaxBytes);
  if (!text) return;
  const std::string what = directory + "/" + kFile;
  const Json file = parse_config_text(*text, what);
  require(file.is_object() && file.contains("quantization") && file["quantization"].is_object(),
          "{}: an object \"quantization\" was expected", what);
  Json quantization = file["quantization"];
  // Null, or absent: ModelOpt rounded the KV cache alone, or nothing.
  if (!quantization.contains("quant_algo") || quantization["quant_algo"].is_null()) return;
  quantization["quant_method"] = "modelopt";
  config["quantization_config"] = std::move(quantization);
}

}  // namespace sluice
