// hf_quant_config.json: how ModelOpt says what it quantised, beside a config.json that does not.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace sluice {

// Puts what the file says into `config` as its quantization_config. Does nothing where there is no
// file, where `config` says how it is quantised, or where `override_args` sets the key.
// Error{kBadInput}: the file is no JSON, or says something that cannot be read. Source: the exports
// of ModelOpt and what vLLM reads of them.
// False: nothing was added.
bool add_hf_quant_config(const std::string& directory, std::string_view override_args,
                         Json& config);

}  // namespace sluice
