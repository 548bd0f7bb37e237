#include "models/wrapped_names.h"

#include <algorithm>
#include <array>

namespace sluice {
namespace {

// Published files have the first form; transformers 5 writes both forms.
constexpr std::array kForms = {WrappedNames{"language_model.model.", "language_model.lm_head."},
                               WrappedNames{"model.language_model.", "lm_head."},
                               WrappedNames{"model.text_model.", "lm_head."}};

}  // namespace

void WrappedNames::rename(WeightLoader& loader) const {
  loader.rename("model.", std::string(body));
  loader.rename("lm_head.", std::string(head));
}

std::string WrappedNames::plain(std::string_view name) const {
  if (name.starts_with(body)) return "model." + std::string(name.substr(body.size()));
  if (name.starts_with(head)) return "lm_head." + std::string(name.substr(head.size()));
  return {};
}

std::optional<WrappedNames> find_wrapped_names(const std::vector<std::string>& names) {
  for (const WrappedNames& form : kForms)
    if (std::any_of(names.begin(), names.end(),
                    [&](const std::string& name) { return name.starts_with(form.body); }))
      return form;
  return std::nullopt;
}

}  // namespace sluice
