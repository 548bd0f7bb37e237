#include "layers/int_weights.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "kernels/cpu/gemm/quant_rows.h"
#include "kernels/types/int_fragments.h"
#include "tensor/copy.h"

namespace sluice {
namespace {

using ops::Format;

constexpr std::int64_t kRows = ops::kFragmentRows, kColumns = ops::kFragmentColumns;
constexpr std::int64_t kMiddleOfByte = 128, kMiddleOfNibble = 8;
// A piece that a thread reads and packs at once.
constexpr std::int64_t kPieceRows = 1024, kPieceElements = 8 << 20;

std::int64_t piece_rows(std::int64_t columns) {
  return std::clamp(kPieceElements / columns / kRows * kRows, kRows, kPieceRows);
}

// The bits of a scale in 16 bits; nothing if it has more.
std::optional<std::uint16_t> scale_bits(float scale, DType type) {
  if (type == DType::kBF16) {
    const BF16 narrow(scale);
    if (static_cast<float>(narrow) != scale) return {};
    return std::bit_cast<std::uint16_t>(narrow);
  }
  const F16 narrow(scale);
  if (static_cast<float>(narrow) != scale) return {};
  return std::bit_cast<std::uint16_t>(narrow);
}

// The largest group of fragments whose columns share what `columns` of them share; 0: none.
std::int64_t group_within(std::int64_t columns) {
  for (const std::int64_t group : {kColumns, std::int64_t{64}, std::int64_t{32}})
    if (columns % group == 0) return group;
  return 0;
}

// Writes rows [first, first + rows of `from`) of w, which begin with a tile. Rows after them up to
// a whole tile become zeros. `order`: see ops::Weight::order; empty: ascending.
void put_rows(const ops::Weight& w, std::int64_t first, const QuantCodes& from,
              std::span<const std::int32_t> order) {
  const ops::FragmentUnit form = fragment_unit(w);
  const std::int64_t units = ops::fragment_units(w.columns), tile_bytes = units * form.bytes();
  const auto rows = static_cast<std::int64_t>(from.codes.size()) / w.columns;
  HostImage image(
      w.data.at(0).slice(0, first / kRows * tile_bytes, ops::fragment_tiles(rows) * tile_bytes));
  auto* to = static_cast<std::uint8_t*>(image.tensor().data);
  const auto column_of = [&](std::int64_t k) {
    return order.empty() ? k : std::int64_t{order[static_cast<std::size_t>(k)]};
  };
  std::array<std::uint8_t, kRows * kColumns> square;
  for (std::int64_t tile = 0; tile < ops::fragment_tiles(rows); ++tile)
    for (std::int64_t u = 0; u < units; ++u, to += form.bytes()) {
      const std::int64_t begin = u * kColumns, count = std::min(kColumns, w.columns - begin);
      square.fill(static_cast<std::uint8_t>(form.middle()));
      for (int r = 0; r < kRows; ++r) {
        const std::int64_t row = tile * kRows + r;
        const std::uint8_t* codes = from.codes.data() + row * w.columns;
        for (int g = 0; g < form.groups; ++g) {
          const std::int64_t column = begin + g * (kColumns / form.groups);
          std::uint16_t scale = 0;
          auto zero = static_cast<std::uint8_t>(form.middle());
          if (row < rows && column < w.columns) {
            const auto at = static_cast<std::size_t>(
                from.groups[static_cast<std::size_t>(column_of(column))] * rows + row);
            const std::optional<std::uint16_t> bits = scale_bits(from.scales[at], w.scale);
            check(bits.has_value(), "a scale of {} has more than 16 bits", from.scales[at]);
            scale = *bits;
            zero = from.zeros[at];
          }
          std::memcpy(to + form.scale_at(g, r), &scale, 2);
          if (form.has_zeros) to[form.zero_at(g, r)] = zero;
          // Columns after the last one are zeros.
          if (form.has_zeros)
            std::fill_n(square.data() + r * kColumns + g * (kColumns / form.groups),
                        kColumns / form.groups, zero);
        }
        for (std::int64_t c = 0; c < count && row < rows; ++c)
          square[static_cast<std::size_t>(r * kColumns + c)] = codes[column_of(begin + c)];
      }
      put_fragment_codes(form, square.data(), kColumns, to);
    }
  image.put();
}

// Codes without values, of groups of w.group columns with zeros in the middle.
QuantCodes codes_for(const ops::Weight& w, std::int64_t rows) {
  QuantCodes codes;
  const std::int64_t groups = (w.columns + w.group - 1) / w.group;
  codes.codes.resize(static_cast<std::size_t>(rows * w.columns));
  codes.zeros.assign(static_cast<std::size_t>(groups * rows),
                     static_cast<std::uint8_t>(ops::fragment_unit(w).middle()));
  codes.scales.resize(static_cast<std::size_t>(groups * rows));
  for (std::int64_t c = 0; c < w.columns; ++c)
    codes.groups.push_back(static_cast<std::int32_t>(c / w.group));
  return codes;
}

// The order in which the columns of a group lie together. Nothing: the groups differ in size.
std::optional<std::vector<std::int32_t>> order_of(const std::vector<std::int32_t>& groups,
                                                  std::int64_t count) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(count));
  for (const std::int32_t group : groups) ++sizes[static_cast<std::size_t>(group)];
  for (const std::int64_t size : sizes)
    if (size != sizes.front()) return {};
  std::vector<std::int32_t> order(groups.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, {}, [&](std::int32_t column) { return groups[static_cast<std::size_t>(column)]; });
  return order;
}

}  // namespace

IntWeights::IntWeights(const Weights& weights, const WeightParts& parts, std::int64_t columns,
                       Shard shard)
    : weights_(weights),
      all_columns_(columns),
      columns_(shard == Shard::kRow ? weights.share(columns, parts.begin()->name)
                                    : AxisRange{0, columns}) {
  const WeightSource& source = weights.loader_->source_;
  for (const WeightPart& part : parts) {
    Part own{.part = &part,
             .name = std::string(part.name) + ".weight",
             .rows = weights.rows_of(part, shard),
             .first = rows_};
    own.stored = source.find_integers(weights.path(own.name));
    if (const TensorInfo* info = source.find(weights.path(own.name))) own.blocks = info->blocks;
    rows_ += own.rows.count;
    parts_.push_back(std::move(own));
  }
}

// What stored integers of the parts have in common.
IntWeights::Form IntWeights::stored_form() const {
  const WeightSource& source = weights_.loader_->source_;
  Form common;
  bool has_zeros = false, in_f16 = true, in_bf16 = true, eight_bits = false;
  for (const Part& part : parts_) {
    const QuantMatrix& matrix = *part.stored;
    // Scales and zeros of this rank's rows, without columns.
    QuantCodes head;
    source.read_codes(matrix, {0, part.rows.begin, part.rows.count, 0, 0}, head);
    for (std::size_t i = 0; i < head.scales.size(); ++i) {
      const float scale = head.scales[i];
      require(std::isfinite(scale) && scale >= 0,
              "the matrix {} ({}): a scale of row {} is {}; a positive number was expected, the "
              "checkpoint is damaged",
              matrix.info.name, matrix.format->name,
              part.rows.begin + static_cast<std::int64_t>(i) % part.rows.count, scale);
      in_f16 = in_f16 && scale_bits(scale, DType::kF16).has_value();
      in_bf16 = in_bf16 && scale_bits(scale, DType::kBF16).has_value();
    }
    const bool is_byte = matrix.bits > 4;
    if (&part == &parts_.front()) eight_bits = is_byte;
    if (is_byte != eight_bits) return {.reason = "its parts have different numbers of bits"};
    const auto middle = static_cast<std::uint8_t>(is_byte ? kMiddleOfByte : kMiddleOfNibble);
    const bool is_symmetric =
        std::ranges::all_of(head.zeros, [&](std::uint8_t zero) { return zero == middle; });
    if (is_byte && !is_symmetric) return {.reason = "8 bits have zero points"};
    has_zeros = has_zeros || !is_symmetric;

    const auto groups =
        static_cast<std::int64_t>(head.scales.size()) / std::max<std::int64_t>(part.rows.count, 1);
    if (groups > 1) {
      const std::int64_t width =
          matrix.index == nullptr ? matrix.block_columns : matrix.columns() / groups;
      const std::int64_t group = group_within(width);
      if (group == 0)
        return {.reason = fmt::format("groups have {} columns, not a multiple of 32", width)};
      if (columns_.begin % width != 0) return {.reason = "ranks share a group of columns"};
      common.group = std::min(common.group, group);
    }
    Order order;
    if (matrix.index != nullptr && groups > 1) {
      QuantCodes row;
      source.read_codes(matrix, {0, part.rows.begin, 1, 0, matrix.columns()}, row);
      const auto sorted = order_of(row.groups, groups);
      if (!sorted) return {.reason = "groups have different numbers of columns"};
      if (!std::ranges::is_sorted(*sorted)) {
        if (columns_.count != all_columns_)
          return {.reason = "ranks share columns whose order is that of their groups"};
        order = std::make_shared<const std::vector<std::int32_t>>(*sorted);
      }
    }
    if (&part == &parts_.front())
      common.order = order;
    else if ((order == nullptr) != (common.order == nullptr) ||
             (order != nullptr && *order != *common.order))
      return {.reason = "its parts have different orders of columns"};
  }
  if (!in_f16 && !in_bf16) return {.reason = "scales have more than 16 bits"};
  common.scale = in_f16 ? DType::kF16 : DType::kBF16;
  common.format = eight_bits ? Format::kInt8 : has_zeros ? Format::kInt4Zero : Format::kInt4;
  return common;
}

std::optional<IntWeights::Form> IntWeights::form() const {
  const Numerics& numerics = weights_.numerics();
  if (!numerics.int_fragments || numerics.gemm() != DType::kBF16 || columns_.count == 0 ||
      rows_ == 0)
    return {};
  const bool rounds = numerics.quantization == Format::kInt8 ||
                      numerics.quantization == Format::kInt4 ||
                      numerics.quantization == Format::kInt4Zero;
  const auto all = [&](auto&& test) { return std::ranges::all_of(parts_, test); };
  const bool stored = !rounds && all([](const Part& part) { return part.stored != nullptr; }),
             blocks = !rounds && numerics.keep_blocks && all([&](const Part& part) {
               return part.blocks && part.blocks == parts_.front().blocks &&
                      (part.blocks == BlockType::kQ8_0 || part.blocks == BlockType::kQ4_0);
             });
  if (!stored && !blocks && !rounds) return {};
  Form form;
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
  } else if (blocks) {
    form.format = parts_.front().blocks == BlockType::kQ8_0 ? Format::kInt8 : Format::kInt4;
    form.group = kBlockValues;
    if (columns_.begin % kBlockValues != 0 || columns_.count % kBlockValues != 0)
      form.reason = "ranks share a block of columns";
  } else {
    form = stored_form();
  }
  return form;
}

std::optional<ops::Weight> IntWeights::load() const {
  const std::optional<Form> form = this->form();
  if (!form) return {};
  if (!form->reason.empty()) {
    weights_.loader_->note_widened(weights_.path(parts_.front().name), form->reason);
    return {};
  }
  ops::Weight w;
  w.format = form->format;
  w.layout = ops::Layout::kFragments;
  w.group = form->group;
  w.scale = form->scale;
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
    if (weights_.numerics().quantization)
      add_numbers(w, part);
    else if (part.stored != nullptr)
      add_stored(w, part, form->order);
    else
      add_blocks(w, part);
  }
  return w;
}

void IntWeights::add_stored(const ops::Weight& w, const Part& part, const Order& order) const {
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
    task.read = [&source, w, tile, order, matrix = part.stored, first = part.first + begin] {
      QuantCodes codes;
      source.read_codes(*matrix, tile, codes);
      put_rows(w, first, codes, order == nullptr ? std::span<const std::int32_t>{} : *order);
    };
    weights_.add(std::move(task));
  }
}

void IntWeights::add_blocks(const ops::Weight& w, const Part& part) const {
  const std::int64_t piece = piece_rows(all_columns_);
  for (std::int64_t begin = 0; begin < part.rows.count; begin += piece) {
    const std::int64_t count = std::min(piece, part.rows.count - begin);
    weights_.add({.name = weights_.path(part.name),
                  .shape = {part.part->stored_rows(), all_columns_},
                  .ranges = {{part.rows.begin + begin, count}, columns_},
                  .place = {},
                  .dtype = DType::kU8,
                  .use =
                      [w, first = part.first + begin](const Tensor& box, std::int64_t row) {
                        QuantCodes codes = codes_for(w, box.dim(0));
                        const auto* block = static_cast<const std::byte*>(box.data);
                        for (std::int64_t r = 0; r < box.dim(0); ++r)
                          for (std::int64_t g = 0; g < w.columns / kBlockValues; ++g) {
                            std::uint8_t* to =
                                codes.codes.data() + r * w.columns + g * kBlockValues;
                            F16 scale;
                            if (w.format == Format::kInt8) {
                              BlockQ8_0 stored;
                              std::memcpy(&stored, block, sizeof stored);
                              for (int i = 0; i < 32; ++i)
                                to[i] = static_cast<std::uint8_t>(stored.q[i] + kMiddleOfByte);
                              scale = stored.d;
                              block += sizeof stored;
                            } else {
                              BlockQ4_0 stored;
                              std::memcpy(&stored, block, sizeof stored);
                              for (int i = 0; i < 16; ++i)
                                to[i] = stored.q[i] & 15, to[i + 16] = stored.q[i] >> 4;
                              scale = stored.d;
                              block += sizeof stored;
                            }
                            codes.scales[static_cast<std::size_t>(g * box.dim(0) + r)] =
                                static_cast<float>(scale);
                          }
                        put_rows(w, first + row, codes, {});
                      },
                  .as_blocks = true});
  }
}

void IntWeights::add_numbers(const ops::Weight& w, const Part& part) const {
  const std::int64_t piece = piece_rows(all_columns_);
  for (std::int64_t begin = 0; begin < part.rows.count; begin += piece) {
    const std::int64_t count = std::min(piece, part.rows.count - begin);
    weights_.read_then(
        part.name, DType::kF32, {part.part->stored_rows(), all_columns_},
        {{part.rows.begin + begin, count}, columns_},
        [w, first = part.first + begin](const Tensor& box) {
          QuantCodes codes = codes_for(w, box.dim(0));
          const cpu::QuantKind kind =
              w.format == Format::kInt8 ? cpu::QuantKind::kInt8 : cpu::QuantKind::kInt4;
          for (std::int64_t r = 0; r < box.dim(0); ++r)
            for (std::int64_t c = 0; c < w.columns; c += w.group)
              codes.scales[static_cast<std::size_t>(c / w.group * box.dim(0) + r)] =
                  static_cast<float>(cpu::quantize_group(kind, box.ptr<float>() + r * w.columns + c,
                                                         std::min(w.group, w.columns - c),
                                                         codes.codes.data() + r * w.columns + c));
          put_rows(w, first, codes, {});
        });
  }
}

}  // namespace sluice
