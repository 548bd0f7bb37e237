// Which modules a configuration of quantised weights means by its lists of names and patterns:
//
//   "lm_head", "mlp.gate"            a part of the name, between dots
//   "model.layers.*.self_attn"       the same from the beginning, '*' for any characters
//   "re:.*\\.mlp\\.gate$"            a regular expression from the beginning
//   (config/modules/name_regex.h)
//
// Sources: transformers, should_convert_module of its quantizers; the compressed-tensors library,
// match_name; ModelOpt, which matches as Python's fnmatch.
// Immutable; any thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "config/modules/name_regex.h"
#include "config/quant_config.h"

namespace sluice {

class ModulePatterns {
 public:
  // A warning names regular expressions that cannot be read; they match nothing.
  explicit ModulePatterns(const std::vector<std::string>& patterns);

  // `name` is that of a text model's own checkpoint. Patterns may name it within a larger model.
  bool match(std::string_view name) const;

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  bool match_one(std::string_view name) const;

  std::unordered_set<std::string, Hash, std::equal_to<>> parts_;
  std::vector<std::string> globs_;
  std::vector<NameRegex> regexes_;
  bool has_wrapped_ = false;  // a pattern names a text model within another one
};

// Whether the configuration says that a module is quantised.
class QuantizedModules {
 public:
  explicit QuantizedModules(const QuantizationConfig& config)
      : plain_(config.plain_modules),
        targets_(config.target_modules),
        has_targets_(!config.target_modules.empty()) {}

  bool has(std::string_view module) const {
    return (!has_targets_ || targets_.match(module)) && !plain_.match(module);
  }

 private:
  ModulePatterns plain_, targets_;
  bool has_targets_ = false;
};

}  // namespace sluice
