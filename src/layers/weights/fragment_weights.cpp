#include "layers/weights/fragment_weights.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/types/int8_rows.h"
#include "kernels/types/int_fragments.h"
#include "layers/weights/block_formats.h"
#include "layers/weights/block_fragments.h"
#include "ops/packing.h"
#include "tensor/copy.h"

namespace sluice {
namespace {

using ops::Format;

constexpr std::int64_t kRows = ops::kFragmentRows;
// A piece that a thread reads and packs at once.
constexpr std::int64_t kPieceRows = 1024, kPieceElements = 8 << 20;

std::int64_t piece_rows(std::int64_t columns) {
  return std::clamp(kPieceElements / columns / kRows * kRows, kRows, kPieceRows);
}

// Writes the rows of `from` to rows [first, ...) of w, which begin a tile.
void put_rows(const ops::Weight& w, std::int64_t first, const QuantCodes& from,
              std::span<const std::int32_t> order) {
  const auto rows = static_cast<std::int64_t>(from.codes.size()) / w.columns;
  put_fragment_rows(
      w, 0, first, rows, [&](std::int64_t i) { return CodeRow{&from, i, rows}; }, order);
}

}  // namespace

FragmentWeights::FragmentWeights(const Weights& weights, const WeightParts& parts,
                                 std::int64_t columns, Shard shard, bool may_round)
    : MatrixParts(
          weights, parts, columns, shard,
          [&numerics = weights.numerics()](const WeightSource& source, std::string_view path) {
            return numerics.int_fragments   ? source.find_integers(path)
                   : numerics.fp8_fragments ? source.find_fp8(path)
                                            : nullptr;
          }),
      may_round_(may_round) {}

std::optional<FragmentForm> FragmentWeights::form() const {
  const Numerics& numerics = weights_.numerics();
  if ((!numerics.int_fragments && !numerics.fp8_fragments) || numerics.gemm() != DType::kBF16 ||
      columns_.count == 0 || rows_ == 0)
    return {};
  const bool rounds = numerics.quantization.has_value();
  if (rounds && !may_round_) return {};
  const auto all = [&](auto&& test) { return std::ranges::all_of(parts_, test); };
  if (rounds && !all([&](const Part& part) { return !weights_.stays_plain(part.name); })) return {};
  // Kernels of many rows of super-blocks are those of Hopper.
  const auto multiplies = [&](BlockType type) {
    return !has_block_units(type) || ops::multiplies_experts_in_fragments(weights_.loader_->ctx_);
  };
  const bool stored = !rounds && may_round_ &&
                      all([](const Part& part) { return part.stored != nullptr; }),
             blocks = !rounds && numerics.int_fragments && numerics.keep_blocks &&
                      all([&](const Part& part) {
                        return part.blocks && part.blocks == parts_.front().blocks &&
                               multiplies(*part.blocks);
                      });
  if (!stored && !blocks && !rounds) return {};
  FragmentForm form;
  if (columns_.count % 8 != 0)
    form.reason = fmt::format("{} columns are no multiple of 8", columns_.count);
  for (const Part& part : parts_) {
    if (part.first % kRows != 0) form.reason = "a part begins within 16 rows";
    if (part.part->transposed) form.reason = "its numbers are transposed";
    // The widened path names a tensor of a wrong shape.
    if (stored && part.stored->info.shape != std::vector{part.part->stored_rows(), all_columns_})
      return {};
  }
  if (!form.reason.empty()) return form;
  if (rounds) {
    form.format = *numerics.quantization;
    form.group = numerics.quantization_group;
    form.int8_rows = numerics.int8_rows && weights_.device().kind == DeviceKind::kCpu &&
                     columns_.count <= ops::kMaxInt8Columns;
  } else if (blocks) {
    form.format = format_of_blocks(*parts_.front().blocks);
    form.group = kBlockValues;
    if (!block_columns(*parts_.front().blocks, columns_))
      form.reason = "ranks share a block of columns";
  } else {
    std::vector<StoredBox> boxes;
    for (const Part& part : parts_) boxes.push_back({part.stored, part.rows, columns_});
    form = common_fragment_form(weights_.loader_->source_, boxes, weights_.device());
  }
  return form;
}

std::optional<ops::Weight> FragmentWeights::load() const {
  const std::optional<FragmentForm> form = this->form();
  if (!form) return {};
  if (!form->reason.empty()) {
    std::vector<std::string> names;
    for (const Part& part : parts_) names.push_back(weights_.path(part.name));
    weights_.loader_->note_widened(std::move(names), form->reason);
    return {};
  }
  ops::Weight w;
  w.format = form->format;
  w.layout = ops::Layout::kFragments;
  w.group = form->group;
  w.scale = form->scale;
  w.int8_rows = form->int8_rows;
  w.input = weights_.numerics().gemm();
  w.rows = rows_;
  w.columns = columns_.count;
  w.data = weights_.take(DType::kU8, {1, fragment_bytes(w)});
  if (form->order != nullptr) {
    w.order = weights_.take(DType::kI32, {w.columns});
    HostImage image(w.order);
    std::ranges::copy(*form->order, image.tensor().ptr<std::int32_t>());
    image.put();
  }
  for (const Part& part : parts_) {
    if (weights_.numerics().quantization) {
      add_numbers(w, part);
      weights_.loader_->note_rounded(weights_.path(part.name));
    } else if (part.stored != nullptr) {
      add_stored(w, part, form->order);
    } else {
      add_blocks(w, part);
    }
  }
  return w;
}

void FragmentWeights::add_stored(const ops::Weight& w, const Part& part,
                                 const ColumnOrder& order) const {
  const WeightSource& source = weights_.loader_->source_;
  const std::int64_t piece = piece_rows(all_columns_);
  for (std::int64_t begin = 0; begin < part.rows.count; begin += piece) {
    const QuantTile tile{.matrix = 0,
                         .row = part.rows.begin + begin,
                         .num_rows = std::min(piece, part.rows.count - begin),
                         .column = columns_.begin,
                         .num_columns = columns_.count};
    WeightTask task;
    task.name = weights_.path(part.name);
    task.int8_rows = w.int8_rows;
    task.read = [&source, w, tile, order, matrix = part.stored, first = part.first + begin] {
      QuantCodes codes;
      source.read_codes(*matrix, tile, codes);
      put_rows(w, first, codes, order == nullptr ? std::span<const std::int32_t>{} : *order);
    };
    weights_.add(std::move(task));
  }
}

void FragmentWeights::add_blocks(const ops::Weight& w, const Part& part) const {
  const BlockColumns columns = block_columns(*part.blocks, columns_).value();
  const std::int64_t piece = piece_rows(all_columns_);
  for (std::int64_t begin = 0; begin < part.rows.count; begin += piece) {
    const std::int64_t count = std::min(piece, part.rows.count - begin);
    weights_.add({.name = weights_.path(part.name),
                  .shape = {part.part->stored_rows(), all_columns_},
                  .ranges = {{part.rows.begin + begin, count}, columns.read},
                  .place = {},
                  .dtype = DType::kU8,
                  .use = [w, first = part.first + begin, skipped = columns.skipped](
                             const Tensor& box,
                             std::int64_t row) { put_block_rows(w, 0, first + row, skipped, box); },
                  .as_blocks = true});
  }
}

void FragmentWeights::add_numbers(const ops::Weight& w, const Part& part) const {
  const std::int64_t piece = piece_rows(all_columns_);
  for (std::int64_t begin = 0; begin < part.rows.count; begin += piece) {
    const std::int64_t count = std::min(piece, part.rows.count - begin);
    weights_.read_then(part.name, DType::kF32, {part.part->stored_rows(), all_columns_},
                       {{part.rows.begin + begin, count}, columns_},
                       [w, first = part.first + begin](const Tensor& box) {
                         put_rows(w, first, rounded_codes(w, box), {});
                       });
  }
}

}  // namespace sluice
