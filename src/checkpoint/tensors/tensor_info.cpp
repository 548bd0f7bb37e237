#include "checkpoint/tensors/tensor_info.h"

#include "base/checked.h"
#include "base/error.h"

namespace sluice {

std::int64_t TensorInfo::numel() const {
  if (blocks)
    return static_cast<std::int64_t>(bytes) / block_bytes(*blocks) * block_values(*blocks);
  return static_cast<std::int64_t>(bytes / dtype_size(dtype));
}

std::string TensorInfo::describe() const {
  const std::string_view type = blocks               ? block_type_name(*blocks)
                                : !stored_as.empty() ? stored_as
                                                     : dtype_name(dtype);
  return fmt::format("{} [{}]", type, fmt::join(shape, ", "));
}

void TensorInfo::check_range(std::uint64_t begin, std::uint64_t count) const {
  check(begin <= bytes && count <= bytes - begin, "{} bytes at {} of {}, which has {}", count,
        begin, name, bytes);
}

}  // namespace sluice
