// Where a multimodal checkpoint keeps the tensors of its language model.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layers/weights.h"

namespace sluice {

// A form of names: `body` stands for "model." and `head` for "lm_head." of a text model's own
// checkpoint.
struct WrappedNames {
  std::string_view body;
  std::string_view head;

  void rename(WeightLoader& loader) const;
  // The name that a text model's checkpoint has for `name`; empty: it belongs to another part.
  std::string plain(std::string_view name) const;
};

// The form that these tensors have; nothing when they have the names of a text model.
std::optional<WrappedNames> find_wrapped_names(const std::vector<std::string>& names);

}  // namespace sluice
