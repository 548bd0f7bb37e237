// hf_quant_config.json: how ModelOpt says what it quantised, beside a config.json that does not.
#pragma once

#include <string>

#include "base/json.h"

namespace sluice {

// Puts what the file says into `config` as its quantization_config; nothing where `config` has one,
// or where there is no file. Error{kBadInput}: the file is no JSON, or of another form. Source:
// the exports of ModelOpt and what vLLM reads of them.
void add_hf_quant_config(const std::string& directory, Json& config);

}  // namespace sluice
