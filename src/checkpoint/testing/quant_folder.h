// A folder with a quantised checkpoint, for tests.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/testing/safetensors_writer.h"
#include "checkpoint/weight_source.h"

namespace sluice {

class QuantFolder {
 public:
  SafetensorsWriter writer;
  WeightSource open(QuantizationConfig config) {
    writer.write_to(folder_, "model.safetensors");
    return WeightSource::checkpoint(folder_.path(), {.quantization = std::move(config)});
  }

 private:
  TestFolder folder_;
};

// The values of a tensor or of a box in it, in float32.
inline std::vector<float> load_values(const WeightSource& source, std::string_view name,
                                      std::vector<std::int64_t> shape,
                                      std::vector<AxisRange> ranges = {}) {
  const WeightRequest request{.name = name, .shape = std::move(shape), .ranges = std::move(ranges)};
  std::vector<float> out(static_cast<std::size_t>(request.numel()), -1.0f);
  source.load(request, DType::kF32, std::as_writable_bytes(std::span(out)));
  return out;
}

}  // namespace sluice
