// Reference for tests and `sluice doctor`: quantised weights and their dot products as
// kernels/cpu/gemm/quant_layout.h defines them, in plain integer loops. Shares no code with the
// kernels.
#pragma once

#include <bit>
#include <cmath>
#include <vector>

#include "kernels/types/weight.h"
#include "tensor/tensor.h"

namespace sluice::ops::testing {

// A row of x as signed bytes with one scale per group.
struct ModelRow {
  std::vector<int> q;  // padded with zeros
  std::vector<float> scales;

  ModelRow(const float* x, std::int64_t columns, std::int64_t group) {
    for (std::int64_t begin = 0; begin < columns; begin += group) {
      float largest = 0;
      bool finite = true;
      for (std::int64_t k = begin; k < std::min(columns, begin + group); ++k) {
        finite = finite && std::isfinite(x[k]);
        largest = std::max(largest, std::abs(x[k]));
      }
      const float scale = largest / 127.0f;
      const bool zero = !finite || !std::isnormal(scale);
      scales.push_back(!finite ? NAN : zero ? 0.0f : scale);
      for (std::int64_t k = begin; k < begin + group; ++k)
        q.push_back(zero || k >= columns
                        ? 0
                        : static_cast<int>(std::nearbyintf(x[k] * (127.0f / largest))));
    }
  }
};

struct ModelMatrix {
  Format format;
  std::int64_t rows, columns, group, groups;
  std::vector<int> u;               // [rows, groups * group]
  std::vector<F16> scales, minima;  // [rows, groups]

  ModelMatrix(Format kind, std::int64_t num_rows, std::int64_t num_columns,
              std::int64_t group_columns)
      : format(kind),
        rows(num_rows),
        columns(num_columns),
        group(group_columns),
        groups((num_columns + group_columns - 1) / group_columns),
        u(static_cast<std::size_t>(num_rows * groups * group), 0),
        scales(static_cast<std::size_t>(num_rows * groups)),
        minima(scales.size()) {}

  int offset() const { return format == Format::kInt8 ? 128 : format == Format::kInt4 ? 8 : 0; }

  // plain [rows, columns] f32 or bf16, dense.
  static ModelMatrix quantised(Format kind, const Tensor& plain, std::int64_t group) {
    ModelMatrix model(kind, plain.dim(0), plain.dim(1), group);
    const auto weight = [&](std::int64_t n, std::int64_t k) {
      const std::int64_t i = n * plain.dim(1) + k;
      return plain.dtype == DType::kBF16 ? static_cast<float>(plain.ptr<BF16>()[i])
                                         : plain.ptr<float>()[i];
    };
    for (std::int64_t n = 0; n < model.rows; ++n)
      for (std::int64_t g = 0; g < model.groups; ++g) {
        const std::int64_t begin = g * group, end = std::min(model.columns, begin + group);
        float largest = 0;  // with its sign, the first of its magnitude
        for (std::int64_t k = begin; k < end; ++k)
          if (std::abs(weight(n, k)) > std::abs(largest)) largest = weight(n, k);
        const bool bytes = kind == Format::kInt8;
        const F16 scale(bytes ? std::abs(largest) / 127.0f : largest / -8.0f);
        model.scales[static_cast<std::size_t>(n * model.groups + g)] = scale;
        const auto d = static_cast<float>(scale);
        for (std::int64_t k = begin; k < begin + group; ++k) {
          const float level = d == 0 || k >= end ? 0.0f : std::nearbyintf(weight(n, k) / d);
          const float low = bytes ? -127.0f : -8.0f, high = bytes ? 127.0f : 7.0f;
          model.u[static_cast<std::size_t>((n * model.groups) * group + k)] =
              static_cast<int>(std::min(high, std::max(low, level))) + model.offset();
        }
      }
    return model;
  }

  float value(std::int64_t n, std::int64_t k) const {
    const auto g = static_cast<std::size_t>(n * groups + k / group);
    const float product =
        static_cast<float>(u[static_cast<std::size_t>(n * groups * group + k)] - offset()) *
        static_cast<float>(scales[g]);
    return format == Format::kInt4Min ? product + static_cast<float>(minima[g]) : product;
  }

  // x . w[n], without bias.
  float product(const ModelRow& x, std::int64_t n) const {
    float acc = 0;
    for (std::int64_t g = 0; g < groups; ++g) {
      const auto at = static_cast<std::size_t>(n * groups + g), xg = static_cast<std::size_t>(g);
      long sum = 0, total = 0;
      for (std::int64_t k = g * group; k < (g + 1) * group; ++k) {
        const int q = x.q[static_cast<std::size_t>(k)];
        sum += (u[static_cast<std::size_t>(n * groups * group + k)] - offset()) * q;
        total += q;
      }
      acc = std::fma(static_cast<float>(sum), static_cast<float>(scales[at]) * x.scales[xg], acc);
      if (format == Format::kInt4Min)
        acc =
            std::fma(static_cast<float>(minima[at]), x.scales[xg] * static_cast<float>(total), acc);
    }
    return acc;
  }
  float product(const float* x, std::int64_t n) const {
    return product(ModelRow(x, columns, group), n);
  }
};

}  // namespace sluice::ops::testing
