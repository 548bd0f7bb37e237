// Sources: the tables of quantisation methods of SGLang 0.5 and vLLM 0.25.
#include "config/quantization_names.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice {
namespace {

constexpr std::string_view kUnquantised =
    "take the unquantised model and --quantization int8, int4 or fp8";
constexpr std::string_view kOtherExport = "take an export in the format of GPTQ or AWQ";

constexpr QuantizationName kNames[] = {
    {"awq", "awq", {}},
    {"awq-marlin", "awq", {}},
    {"gptq", "gptq", {}},
    {"gptq-marlin", "gptq", {}},
    {"moe-wna16", "awq gptq", {}},
    {"compressed-tensors", "compressed-tensors", {}},
    {"w8a8-int8", "compressed-tensors", {}, "int-quantized"},
    {"fbgemm-fp8", "fbgemm_fp8", {}},
    {"modelopt", "modelopt", {}},
    {"modelopt-fp8", "modelopt", {}, ""},
    {"modelopt-fp4", "modelopt", {}, "nvfp4"},
    {"petit-nvfp4", "modelopt", {}, "nvfp4"},
    {"nvfp4", "modelopt compressed-tensors", {}, "nvfp4"},
    {"mxfp4", "mxfp4", {}},
    {"gguf", "gguf", {}},
    {"marlin", {}, kOtherExport},
    {"gptq-marlin-24", {}, kOtherExport},
    {"gptq-bitblas", {}, kOtherExport},
    {"bitblas", {}, kOtherExport},
    {"auto-round", {}, kOtherExport},
    {"inc", {}, kOtherExport},
    {"qoq", {}, kOtherExport},
    {"w4afp8", {}, kOtherExport},
    {"bitsandbytes", {}, kUnquantised},
    {"experts-int8", {}, kUnquantised},
    {"rtn", {}, kUnquantised},
    {"deepspeedfp", {}, kUnquantised},
    {"tpu-int8", {}, kUnquantised},
    {"ipex", {}, kUnquantised},
    {"hqq", {}, kUnquantised},
    {"aqlm", {}, kUnquantised},
    {"torchao", {}, kUnquantised},
    {"quark", {}, kUnquantised},
    {"fp-quant", {}, kUnquantised},
};

}  // namespace

const QuantizationName* find_quantization_name(std::string_view name) {
  std::string wanted(name);
  std::ranges::replace(wanted, '_', '-');
  const auto found = std::ranges::find(kNames, wanted, &QuantizationName::name);
  return found == std::end(kNames) ? nullptr : found;
}

bool means_stored(std::string_view name) {
  const QuantizationName* row = find_quantization_name(name);
  return name == "auto" || (row != nullptr && !row->methods.empty());
}

bool keeps_stored(std::string_view name, const std::optional<QuantizationConfig>& stored) {
  return stored && (means_stored(name) || (name == "fp8" && stored->is_fp8()));
}

std::string refusal_of_name(std::string_view name, const std::optional<QuantizationConfig>& stored,
                            bool is_gguf) {
  const QuantizationName* row = find_quantization_name(name);
  if (row == nullptr) return {};
  if (row->methods == "gguf")
    return is_gguf ? ""
                   : "--quantization gguf is for GGUF files; name the .gguf file, or leave the "
                     "option out";
  const bool has_format =
      stored && (!row->format || (row->format->empty() ? stored->format.empty()
                                                       : stored->format.starts_with(*row->format)));
  const bool fits =
      has_format && fmt::format(" {} ", row->methods).find(fmt::format(" {} ", stored->method)) !=
                        std::string::npos;
  if (fits) return {};
  return fmt::format(
      "--quantization {} is for checkpoints that are {}, and this one is {}; leave the option out",
      row->name,
      row->format ? fmt::format("{}, {}", row->methods, row->format->empty() ? "fp8" : *row->format)
                  : std::string(row->methods),
      stored ? stored->describe() : "not quantised");
}

}  // namespace sluice
