// Names that SGLang and vLLM take for --quantization, beside int8, int4 and fp8. A name is for
// checkpoints of some methods (QuantizationConfig::method), or stands for a form that is not
// computed.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "config/quant_config.h"

namespace sluice {

struct QuantizationName {
  std::string_view name;
  std::string_view methods;  // of checkpoints, with spaces between; "gguf": files; empty: refused
  std::string_view reason;   // of a refusal: what to take instead
  // How QuantizationConfig::format begins, or none; nothing: any.
  std::optional<std::string_view> format = {};
};

// Null: no such name. '_' and '-' are one letter.
const QuantizationName* find_quantization_name(std::string_view name);

// Whether `name` means weights as the checkpoint stores them: "auto", or a name that is not
// refused.
bool means_stored(std::string_view name);

// Whether quantised matrices of a checkpoint stay so under --quantization `name`; false where none
// is quantised.
bool keeps_stored(std::string_view name, const std::optional<QuantizationConfig>& stored);

// Why a checkpoint does not fit a name of find_quantization_name(); empty if it does, and for other
// names. `stored`: as read_quantization() gives it.
std::string refusal_of_name(std::string_view name, const std::optional<QuantizationConfig>& stored,
                            bool is_gguf);

}  // namespace sluice
