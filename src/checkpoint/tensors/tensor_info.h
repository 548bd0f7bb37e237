// One tensor of a checkpoint, for all file formats.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/tensors/quantized_blocks.h"
#include "tensor/dtype.h"

namespace sluice {

// The location of a tensor's bytes: dense, row-major, little-endian.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;  // [] is one element
  int file = 0;                     // index among a checkpoint's files
  std::uint64_t offset = 0;         // from the start of the file
  std::uint64_t bytes = 0;          // as stored
  // stored quantised: the blocks widen to `dtype` (GGUF only)
  std::optional<BlockType> blocks = {};
  // name of the quantised format that is widened to `dtype` (quant_formats.h); empty: none
  std::string_view stored_as = {};

  std::int64_t numel() const;
  std::string describe() const;  // "bfloat16 [64, 320]", "Q8_0 [64, 320]"
  void check_range(std::uint64_t begin,
                   std::uint64_t count) const;  // `count` bytes from `begin` on lie in the tensor
};

// Entries [begin, begin + count) of one axis; count -1: up to the end.
struct AxisRange {
  std::int64_t begin = 0;
  std::int64_t count = -1;
};

}  // namespace sluice
