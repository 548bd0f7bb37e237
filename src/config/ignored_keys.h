// Keys of a config.json that change nothing in what is read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// The keys whose value can be replaced by one of another kind without a difference or an error.
// `override_args` is laid over the file first. A key of an inner object is named by its path
// ("quantization_config.modules"), unless the whole object changes nothing. Empty where the file is
// refused, and where the Transformers plugin has to read it.
std::vector<std::string> ignored_config_keys(const std::string& config_text,
                                             std::string_view override_args);

}  // namespace sluice
