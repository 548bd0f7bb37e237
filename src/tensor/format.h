// Tensors in messages: check(ok, "{} has gaps", x). The text is built only when the check fails.
#pragma once

#include <string_view>

#include <fmt/format.h>

#include "tensor/tensor.h"

template <>
struct fmt::formatter<sluice::Tensor> : fmt::formatter<std::string_view> {
  template <class FormatContext>
  auto format(const sluice::Tensor& tensor, FormatContext& context) const {
    return fmt::formatter<std::string_view>::format(tensor.describe(), context);
  }
};
