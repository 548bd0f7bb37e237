#include "layers/weights/fp8_weights.h"

#include <algorithm>

#include "ops/packing.h"
#include "tensor/copy.h"

namespace sluice {
namespace {

constexpr std::int64_t kPieceRows = 1024;  // rows that are rounded at once: whole blocks

// Where the scale of a row and a group is (kernels/types/fp8.h).
std::size_t scale_at(const ops::Weight& w, std::int64_t row, std::int64_t group) {
  return static_cast<std::size_t>(
      w.group == 0 ? row : group * ops::fp8_scale_stride(w.rows) + row / ops::kFp8ScaleRows);
}

float number_at(const Tensor& x, std::int64_t row, std::int64_t column) {
  const std::int64_t i = row * x.dim(1) + column;
  return x.dtype == DType::kBF16 ? static_cast<float>(x.ptr<BF16>()[i]) : x.ptr<float>()[i];
}

}  // namespace

Fp8Weights::Fp8Weights(const Weights& weights, const WeightParts& parts, std::int64_t columns,
                       Shard shard)
    : MatrixParts(
          weights, parts, columns, shard,
          [](const WeightSource& source, std::string_view path) { return source.find_fp8(path); }) {
}

std::optional<std::int64_t> Fp8Weights::group() const {
  const Numerics& numerics = weights_.numerics();
  if (columns_.count % 16 != 0 || columns_.count == 0 || numerics.gemm() != DType::kBF16 ||
      numerics.fp8_fragments)
    return {};
  const bool stored = parts_.front().stored != nullptr;
  std::optional<std::int64_t> common;
  for (const Part& part : parts_) {
    if (part.part->transposed || (part.stored != nullptr) != stored ||
        weights_.stays_plain(part.name))
      return {};
    std::int64_t group = numerics.quantization_group;
    if (stored) {
      const QuantMatrix& matrix = *part.stored;
      if (matrix.info.shape.size() != 2) return {};
      if (matrix.block_columns >= matrix.columns())
        group = 0;
      else if (matrix.block_columns == ops::kFp8Group && matrix.block_rows % 16 == 0)
        group = ops::kFp8Group;
      else
        return {};
    }
    if (group != 0 &&
        (part.first % ops::kFp8ScaleRows != 0 || part.rows.begin % ops::kFp8ScaleRows != 0 ||
         columns_.begin % ops::kFp8Group != 0))
      return {};
    if (common && *common != group) return {};
    common = group;
  }
  const bool wanted = stored ? numerics.keep_fp8 : numerics.quantization == ops::Format::kFp8;
  return wanted ? common : std::nullopt;
}

std::optional<ops::Weight> Fp8Weights::load() const {
  const std::optional<std::int64_t> group = this->group();
  if (!group) return {};
  ops::Weight w = ops::weight_form(weights_.loader_->ctx_, ops::Format::kFp8,
                                   weights_.numerics().gemm(), *group);
  w.rows = rows_;
  w.columns = columns_.count;
  const std::int64_t groups = ops::fp8_groups(w.columns, *group);
  const auto scales = std::make_shared<std::vector<float>>(
      static_cast<std::size_t>(*group == 0 ? w.rows : groups * ops::fp8_scale_stride(w.rows)));
  if (parts_.front().stored != nullptr)  // before memory is taken: a scale may be refused
    for (const Part& part : parts_) {
      w.data = {};
      read_stored(w, part, *scales);
    }
  w.data = weights_.take(DType::kF8E4M3, {w.rows, w.columns});
  w.scales = *group == 0 ? weights_.take(DType::kF32, {w.rows})
                         : weights_.take(DType::kF32, {groups, ops::fp8_scale_stride(w.rows)});
  weights_.loader_->images_.emplace_back(w.scales, scales);
  for (const Part& part : parts_)
    if (part.stored != nullptr)
      weights_.fill(w.data.rows(part.first, part.rows.count), part.name,
                    {part.part->stored_rows(), all_columns_}, {part.rows, columns_});
    else
      round(w, part, scales);
  for (const Part& part : parts_)
    if (part.stored == nullptr) weights_.loader_->note_rounded(weights_.path(part.name));
  return w;
}

void Fp8Weights::read_stored(const ops::Weight& w, const Part& part,
                             std::vector<float>& scales) const {
  const QuantMatrix& matrix = *part.stored;
  const std::vector<float> stored = weights_.loader_->source_.fp8_scales(matrix);
  const std::int64_t blocks = (matrix.columns() + matrix.block_columns - 1) / matrix.block_columns;
  const std::int64_t step = w.group == 0 ? 1 : ops::kFp8ScaleRows;
  for (std::int64_t row = 0; row < part.rows.count; row += step)
    for (std::int64_t g = 0; g < ops::fp8_groups(w.columns, w.group); ++g) {
      const std::int64_t block =
          w.group == 0 ? 0 : (columns_.begin + g * w.group) / matrix.block_columns;
      scales[scale_at(w, part.first + row, g)] = stored[static_cast<std::size_t>(
          (part.rows.begin + row) / matrix.block_rows * blocks + block)];
    }
}

// A part's blocks begin at its first row.
void Fp8Weights::round(const ops::Weight& w, const Part& part,
                       const std::shared_ptr<std::vector<float>>& scales) const {
  const std::int64_t block_rows = w.group == 0 ? 1 : 128,
                     width = w.group == 0 ? w.columns : w.group;
  for (std::int64_t begin = 0; begin < part.rows.count; begin += kPieceRows) {
    const std::int64_t count = std::min(kPieceRows, part.rows.count - begin);
    const auto round_piece = [w, scales, block_rows, width,
                              first = part.first + begin](const Tensor& box) {
      HostImage codes(w.data.rows(first, box.dim(0)));
      auto* to = static_cast<std::uint8_t*>(codes.tensor().data);
      for (std::int64_t row = 0; row < box.dim(0); row += block_rows)
        for (std::int64_t column = 0; column < w.columns; column += width) {
          const std::int64_t last_row = std::min(box.dim(0), row + block_rows),
                             last = std::min(w.columns, column + width);
          float largest = 0;
          for (std::int64_t r = row; r < last_row; ++r)
            for (std::int64_t c = column; c < last; ++c)
              largest = std::max(largest, std::abs(number_at(box, r, c)));
          const auto [scale, factor] = ops::fp8_scale(largest);
          for (std::int64_t r = row; r < last_row; ++r)
            for (std::int64_t c = column; c < last; ++c)
              to[r * w.columns + c] = ops::to_e4m3(number_at(box, r, c) * factor);
          for (std::int64_t r = row; r < last_row; r += w.group == 0 ? 1 : ops::kFp8ScaleRows)
            (*scales)[scale_at(w, first + r, column / width)] = scale;
        }
      codes.put();
    };
    weights_.read_then(part.name, weights_.matrix_dtype({part.name}),
                       {part.part->stored_rows(), all_columns_},
                       {{part.rows.begin + begin, count}, columns_}, round_piece);
  }
}

}  // namespace sluice
