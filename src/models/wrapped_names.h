// The tensor names of the language model inside a multimodal checkpoint.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layers/weights/weights.h"

namespace sluice {

// A form of names: `body` replaces "model." and `head` replaces "lm_head." of a text model's own
// checkpoint.
struct WrappedNames {
  std::string_view body;
  std::string_view head;

  void rename(WeightLoader& loader) const;
  // The name of the tensor in a text model's checkpoint; empty: `name` belongs to another part.
  std::string plain(std::string_view name) const;
};

// The form of these tensor names; nothing if they are those of a text model.
std::optional<WrappedNames> find_wrapped_names(const std::vector<std::string>& names);

}  // namespace sluice
