#include "layers/weights/int8_weights.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>

#include "base/error.h"
#include "kernels/types/int8_rows.h"
#include "ops/packing.h"
#include "tensor/copy.h"

namespace sluice {
namespace {

constexpr std::uint8_t kMiddle = 128;      // the code of 0
constexpr std::int64_t kPieceRows = 1024;  // that a thread reads at once

}  // namespace

Int8Weights::Int8Weights(const Weights& weights, const WeightParts& parts, std::int64_t columns,
                         Shard shard)
    : MatrixParts(weights, parts, columns, shard,
                  [](const WeightSource& source, std::string_view path) {
                    return source.find_integers(path);
                  }) {}

bool Int8Weights::rounds() const {
  const Numerics& numerics = weights_.numerics();
  return numerics.quantization == ops::Format::kInt8 && numerics.int8_rows;
}

bool Int8Weights::has_form() const {
  const Numerics& numerics = weights_.numerics();
  if (weights_.device().kind == DeviceKind::kCpu || !numerics.int_fragments ||
      (numerics.quantization && !rounds()) || numerics.gemm() != DType::kBF16 || rows_ == 0 ||
      columns_.count == 0 || columns_.count % 16 != 0 || columns_.count > ops::kMaxInt8Columns)
    return false;
  return std::ranges::all_of(parts_,
                             [&](const Part& part) {
                               if (rounds())
                                 return !part.part->transposed && !weights_.stays_plain(part.name);
                               return part.stored != nullptr && part.stored->int8_rows &&
                                      part.stored->bits == 8 && part.stored->index == nullptr &&
                                      part.stored->block_columns >= part.stored->columns() &&
                                      !part.part->transposed &&
                                      part.stored->info.shape ==
                                          std::vector{part.part->stored_rows(), all_columns_};
                             }) &&
         ops::multiplies_experts_in_fragments(weights_.loader_->ctx_);
}

// False: codes have zero points.
bool Int8Weights::read_scales(const Part& part, std::vector<float>& scales) const {
  QuantCodes head;
  weights_.loader_->source_.read_codes(*part.stored, {0, part.rows.begin, part.rows.count, 0, 0},
                                       head);
  if (head.scales.size() != static_cast<std::size_t>(part.rows.count) ||
      std::ranges::any_of(head.zeros, [](std::uint8_t zero) { return zero != kMiddle; }))
    return false;
  for (std::size_t i = 0; i < head.scales.size(); ++i)
    if (!part.stored->takes_scale(head.scales[i]))
      require_scale(
          *part.stored, head.scales[i],
          fmt::format("a scale of row {}", part.rows.begin + static_cast<std::int64_t>(i)));
  scales.insert(scales.end(), head.scales.begin(), head.scales.end());
  return true;
}

std::optional<ops::Weight> Int8Weights::load() const {
  if (!has_form()) return {};
  const auto scales = std::make_shared<std::vector<float>>();
  if (rounds())
    scales->resize(static_cast<std::size_t>(rows_));
  else
    for (const Part& part : parts_)
      if (!read_scales(part, *scales)) return {};
  ops::Weight w;
  w.format = ops::Format::kInt8;
  w.layout = ops::Layout::kRows;
  w.input = weights_.numerics().gemm();
  w.int8_rows = true;
  w.rows = rows_;
  w.columns = columns_.count;
  w.data = weights_.take(DType::kI8, {w.rows, w.columns});
  w.scales = weights_.take(DType::kF32, {w.rows});
  weights_.loader_->images_.emplace_back(w.scales, scales);
  for (const Part& part : parts_) rounds() ? add_numbers(w, part, scales) : add_stored(w, part);
  return w;
}

void Int8Weights::add_stored(const ops::Weight& w, const Part& part) const {
  const WeightSource& source = weights_.loader_->source_;
  for (std::int64_t begin = 0; begin < part.rows.count; begin += kPieceRows) {
    const QuantTile tile{.matrix = 0,
                         .row = part.rows.begin + begin,
                         .num_rows = std::min(kPieceRows, part.rows.count - begin),
                         .column = columns_.begin,
                         .num_columns = columns_.count};
    WeightTask task;
    task.name = weights_.path(part.name);
    task.int8_rows = true;
    task.read = [&source, tile, matrix = part.stored,
                 place = w.data.rows(part.first + begin, tile.num_rows)] {
      QuantCodes codes;
      source.read_codes(*matrix, tile, codes);
      HostImage image(place);
      std::ranges::transform(codes.codes, image.tensor().ptr<std::int8_t>(), [](std::uint8_t code) {
        return static_cast<std::int8_t>(code - kMiddle);
      });
      image.put();
    };
    weights_.add(std::move(task));
  }
}

// Random numbers are finite.
void Int8Weights::add_numbers(const ops::Weight& w, const Part& part,
                              const std::shared_ptr<std::vector<float>>& scales) const {
  weights_.loader_->note_rounded(weights_.path(part.name));
  for (std::int64_t begin = 0; begin < part.rows.count; begin += kPieceRows) {
    const std::int64_t count = std::min(kPieceRows, part.rows.count - begin);
    weights_.read_then(
        part.name, DType::kF32, {part.part->stored_rows(), all_columns_},
        {{part.rows.begin + begin, count}, columns_},
        [w, scales, first = part.first + begin](const Tensor& box) {
          HostImage image(w.data.rows(first, box.dim(0)));
          for (std::int64_t r = 0; r < box.dim(0); ++r) {
            const std::span<const float> row(box.ptr<float>() + r * w.columns,
                                             static_cast<std::size_t>(w.columns));
            float largest = ops::kSmallestInt8Row;
            for (const float x : row) largest = std::max(largest, std::abs(x));
            (*scales)[static_cast<std::size_t>(first + r)] = largest / ops::kMaxInt8Row;
            std::ranges::transform(
                row, image.tensor().ptr<std::int8_t>() + r * w.columns, [&](float x) {
                  return static_cast<std::int8_t>(std::lrint(x * (ops::kMaxInt8Row / largest)));
                });
          }
          image.put();
        });
  }
}

}  // namespace sluice
