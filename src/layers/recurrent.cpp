#include "layers/recurrent.h"

#include <cmath>

#include "base/error.h"
#include "tensor/copy.h"

namespace sluice {

ShortConvolution ShortConvolution::load(const Weights& weights,
                                        std::initializer_list<WeightPart> parts, std::int64_t taps,
                                        bool bias, bool silu) {
  ShortConvolution conv;
  conv.silu = silu;
  std::int64_t channels = 0;
  for (const WeightPart& part : parts) channels += part.rows;
  conv.weight = weights.take(DType::kF32, {taps, channels});
  std::int64_t first = 0;
  for (const WeightPart& part : parts) {
    weights.read_then(std::string(part.name) + ".weight", DType::kF32, {part.rows, 1, taps}, {},
                      [place = conv.weight.slice(1, first, part.rows)](const Tensor& box) {
                        const std::int64_t rows = box.dim(0), n = box.dim(1);
                        for (std::int64_t j = 0; j < n; ++j) {
                          HostImage image(place.at(j));
                          for (std::int64_t c = 0; c < rows; ++c)
                            image.tensor().ptr<float>()[c] = box.ptr<float>()[c * n + j];
                          image.put();
                        }
                      });
    first += part.rows;
  }
  if (bias) conv.bias = weights.bias(parts, Shard::kReplicated);
  return conv;
}

Tensor load_decay_rates(const Weights& weights, std::int64_t heads, std::int64_t width,
                        std::vector<std::int64_t> shape) {
  const Tensor place = weights.take(DType::kF32, {heads * width});
  weights.read_then("A_log", DType::kF32, std::move(shape), {},
                    [place, heads, width](const Tensor& box) {
                      HostImage image(place);
                      for (std::int64_t h = 0; h < heads; ++h)
                        std::fill_n(image.tensor().ptr<float>() + h * width, width,
                                    -std::exp(box.ptr<float>()[h]));
                      image.put();
                    });
  return place;
}

Tensor uniform_vector(const Weights& weights, std::int64_t n, double value) {
  return weights.constant(
      std::vector<float>(static_cast<std::size_t>(n), static_cast<float>(value)));
}

}  // namespace sluice
