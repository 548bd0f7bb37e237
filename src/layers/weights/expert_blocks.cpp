#include "layers/weights/expert_blocks.h"

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "layers/weights/block_formats.h"
#include "layers/weights/block_fragments.h"
#include "ops/packing.h"

namespace sluice {
namespace {

FragmentForm form_of(BlockType blocks) {
  return {.format = format_of_blocks(blocks), .group = kBlockValues};
}

// This rank's part of a matrix, as the file stores it.
struct BlockBox {
  std::string name;
  std::int64_t rows, columns;  // of the tensor
  AxisRange row_range;
  BlockColumns column_range;
  std::int64_t row_bytes;  // of the columns that are read

  std::vector<std::uint8_t> read(const WeightSource& source) const {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(row_range.count * row_bytes));
    source.load_blocks(
        {.name = name, .shape = {rows, columns}, .ranges = {row_range, column_range.read}},
        std::as_writable_bytes(std::span(bytes)));
    return bytes;
  }
};

BlockBox box_of(std::string name, BlockType blocks, std::int64_t rows, std::int64_t columns,
                AxisRange row_range, AxisRange own_columns) {
  const BlockColumns range = block_columns(blocks, own_columns).value();
  return {std::move(name), rows,  columns,
          row_range,       range, range.read.count / block_values(blocks) * block_bytes(blocks)};
}

}  // namespace

std::optional<ExpertBlocks::Types> ExpertBlocks::types(std::string& reason) const {
  const WeightSource& source = block_.loader_->source_;
  std::optional<BlockType> up, down;
  for (const std::int64_t e : shape_.alike(block_)) {
    const Weights expert = block_.sub("experts", static_cast<int>(e));
    for (const std::string* name : {&names_.gate, &names_.up, &names_.down}) {
      const bool is_down = name == &names_.down;
      const TensorInfo* info = source.find(expert.path(*name));
      const std::vector<std::int64_t> shape{is_down ? shape_.hidden : shape_.width,
                                            is_down ? shape_.width : shape_.hidden};
      if (info == nullptr || !info->blocks || info->shape != shape) return {};
      std::optional<BlockType>& common = is_down ? down : up;
      if (common && *common != *info->blocks)
        reason = fmt::format("experts lie together in {} and {}", block_type_name(*common),
                             block_type_name(*info->blocks));
      common = *info->blocks;
    }
  }
  if (!up || !down) return {};
  return Types{*up, *down};
}

std::string ExpertBlocks::why_not(const Types& types) const {
  if (!ops::multiplies_experts_in_fragments(block_.loader_->ctx_))
    return "this GPU has no kernels for such experts";
  const AxisRange own = shape_.own.columns;
  if (own.count % 8 != 0 || shape_.hidden % 8 != 0)
    return "the width of an expert is no multiple of 8";
  if (!block_columns(types.down, own)) return "ranks share a block of columns";
  return {};
}

void ExpertBlocks::add(const std::string& name, std::function<void()> work) const {
  WeightTask task;
  task.name = name;
  task.read = std::move(work);
  block_.add(std::move(task));
}

bool ExpertBlocks::load(ops::Weight& w13, ops::Weight& w2) const {
  const Numerics& numerics = block_.numerics();
  if (!numerics.keep_blocks || !numerics.int_fragments || numerics.quantization ||
      numerics.experts_rounded_to || numerics.gemm() != DType::kBF16 || shape_.num_own() == 0)
    return false;
  std::string reason;
  const std::optional<Types> types = this->types(reason);
  if (!types) return false;
  if (reason.empty()) reason = why_not(*types);
  if (!reason.empty()) {
    block_.loader_->note_widened({block_.path("experts.")}, std::move(reason));
    return false;
  }
  const AxisRange own = shape_.own.columns, hidden{0, shape_.hidden};
  w13 = take_experts(block_, form_of(types->up), shape_.num_own(), 2 * own.count, shape_.hidden);
  w2 = take_experts(block_, form_of(types->down), shape_.num_own(), shape_.hidden, own.count);
  const WeightSource& source = block_.loader_->source_;
  for (std::int64_t i = 0; i < shape_.num_own(); ++i) {
    const Weights expert =
        block_.sub("experts", static_cast<int>(shape_.own.experts[static_cast<std::size_t>(i)]));
    const auto half = [&](const std::string& name) {
      return box_of(expert.path(name), types->up, shape_.width, shape_.hidden, own, hidden);
    };
    add(expert.path(names_.gate), [&source, w13, i, gate_box = half(names_.gate),
                                   up_box = half(names_.up)] {
      const std::vector<std::uint8_t> gate = gate_box.read(source), up = up_box.read(source);
      // Eight gate rows, then the eight up rows of the same columns.
      put_block_rows(w13, i, 0, w13.rows, 0, [&](std::int64_t row) {
        return (row % 16 < 8 ? gate : up).data() + (row / 16 * 8 + row % 8) * gate_box.row_bytes;
      });
    });
    add(expert.path(names_.up), [] {});  // with its gate
    add(expert.path(names_.down), [&source, w2, i,
                                   box = box_of(expert.path(names_.down), types->down,
                                                shape_.hidden, shape_.width, hidden, own)] {
      const std::vector<std::uint8_t> down = box.read(source);
      put_block_rows(w2, i, 0, w2.rows, box.column_range.skipped,
                     [&](std::int64_t row) { return down.data() + row * box.row_bytes; });
    });
  }
  return true;
}

}  // namespace sluice
