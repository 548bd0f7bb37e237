#include "layers/weights/fragments.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "kernels/cpu/gemm/quant_rows.h"
#include "kernels/types/fp4.h"
#include "kernels/types/int8_rows.h"
#include "kernels/types/int_fragments.h"
#include "tensor/copy.h"

namespace sluice {
namespace {

using ops::Format;

constexpr std::int64_t kRows = ops::kFragmentRows, kColumns = ops::kFragmentColumns;

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

enum class Codes { kNibbles, kBytes, kE4m3, kMxE2m1, kNvE2m1 };

Codes codes_of(const QuantMatrix& matrix) {
  if (matrix.values->dtype == DType::kF8E4M3) return Codes::kE4m3;
  if (matrix.values->dtype == DType::kU8)
    return matrix.block_columns == ops::kNvGroup ? Codes::kNvE2m1 : Codes::kMxE2m1;
  return matrix.bits > 4 ? Codes::kBytes : Codes::kNibbles;
}

// Adds what one box needs to the form of the boxes before it.
class FormOfBoxes {
 public:
  explicit FormOfBoxes(const WeightSource& source) : source_(source) {}

  void add(const StoredBox& box) {
    const QuantMatrix& matrix = *box.matrix;
    const Codes codes = codes_of(matrix);
    if (is_first_) codes_ = codes;
    if (codes != codes_) return refuse("parts have different numbers");
    if (codes == Codes::kMxE2m1) return add_e2m1(box, ops::kMxGroup);
    if (codes == Codes::kNvE2m1) return add_e2m1(box, ops::kNvGroup);
    // Scales and zeros of this rank's rows, without columns.
    QuantCodes head;
    source_.read_codes(matrix, {box.index, box.rows.begin, box.rows.count, 0, 0}, head);
    read_scales(box, head);
    const bool is_e4m3 = codes == Codes::kE4m3, is_byte = codes == Codes::kBytes;
    const bool are_integers = is_byte || codes == Codes::kNibbles;
    const bool is_symmetric =
        !are_integers || std::ranges::all_of(head.zeros, [&](std::uint8_t zero) {
          return zero == (is_byte ? 128 : 8);
        });
    if (is_byte && !is_symmetric) return refuse("8 bits have zero points");
    has_zeros_ = has_zeros_ || !is_symmetric;
    const auto groups =
        static_cast<std::int64_t>(head.scales.size()) / std::max<std::int64_t>(box.rows.count, 1);
    rows_are_int8_ = rows_are_int8_ && is_byte && matrix.int8_rows && groups == 1 &&
                     box.columns.count <= ops::kMaxInt8Columns;
    ColumnOrder order;
    if (groups > 1) {
      const std::int64_t width =
          matrix.index == nullptr ? matrix.block_columns : matrix.columns() / groups;
      const std::int64_t group = group_within(width);
      if (group == 0 || (is_e4m3 && group != kColumns))
        return refuse(
            fmt::format("groups have {} columns, not a multiple of {}", width, is_e4m3 ? 128 : 32));
      if (cuts(box, width)) return refuse("ranks share a group of columns");
      form_.group = std::min(form_.group, group);
      if (matrix.index != nullptr && !read_order(box, groups, order)) return;
    }
    if (is_first_)
      form_.order = order;
    else if ((order == nullptr) != (form_.order == nullptr) ||
             (order != nullptr && *order != *form_.order))
      return refuse("parts have different orders of columns");
    is_first_ = false;
  }

  FragmentForm form(Device device) {
    form_.scale = in_f16_ ? DType::kF16 : in_bf16_ ? DType::kBF16 : DType::kF32;
    const bool are_integers = codes_ == Codes::kBytes || codes_ == Codes::kNibbles;
    form_.format = codes_ == Codes::kE4m3     ? Format::kFp8
                   : codes_ == Codes::kMxE2m1 ? Format::kMxFp4
                   : codes_ == Codes::kNvE2m1 ? Format::kNvFp4
                   : codes_ == Codes::kBytes  ? Format::kInt8
                   : has_zeros_               ? Format::kInt4Zero
                                              : Format::kInt4;
    if (form_.format == Format::kMxFp4) form_.group = ops::kMxGroup;
    if (form_.format == Format::kNvFp4) form_.group = ops::kNvGroup;
    if (are_integers && form_.scale == DType::kF32 && device.kind != DeviceKind::kCpu)
      refuse("scales have more than 16 bits");
    if (!are_integers) form_.scale = DType::kF16;  // of integers alone
    form_.int8_rows =
        rows_are_int8_ && form_.format == Format::kInt8 && device.kind == DeviceKind::kCpu;
    return form_;
  }

 private:
  void refuse(std::string reason) {
    if (form_.reason.empty()) form_.reason = std::move(reason);
    is_first_ = false;
  }

  // Whether the box begins or ends within a group.
  static bool cuts(const StoredBox& box, std::int64_t width) {
    const std::int64_t end = box.columns.begin + box.columns.count;
    return box.columns.begin % width != 0 || (end % width != 0 && end != box.matrix->columns());
  }

  // The form does not depend on the scales.
  void add_e2m1(const StoredBox& box, std::int64_t group) {
    is_first_ = false;
    source_.check_scales(*box.matrix, {box.index, box.rows.begin, box.rows.count, 0, 0});
    if (cuts(box, group)) refuse("ranks share a group of columns");
  }

  void read_scales(const StoredBox& box, const QuantCodes& head) {
    for (std::size_t i = 0; i < head.scales.size(); ++i) {
      const float scale = head.scales[i];
      if (!box.matrix->takes_scale(scale))
        require_scale(*box.matrix, scale,
                      fmt::format("a scale of row {}",
                                  box.rows.begin + static_cast<std::int64_t>(i) % box.rows.count));
      in_f16_ = in_f16_ && scale_bits(scale, DType::kF16).has_value();
      in_bf16_ = in_bf16_ && scale_bits(scale, DType::kBF16).has_value();
    }
  }

  // False: refused.
  bool read_order(const StoredBox& box, std::int64_t groups, ColumnOrder& order) {
    QuantCodes row;
    source_.read_codes(*box.matrix, {0, box.rows.begin, 1, 0, box.matrix->columns()}, row);
    auto sorted = order_of(row.groups, groups);
    if (!sorted) {
      refuse("groups have different numbers of columns");
      return false;
    }
    if (std::ranges::is_sorted(*sorted)) return true;
    if (box.columns.count != box.matrix->columns()) {
      refuse("ranks share columns whose order is that of their groups");
      return false;
    }
    order = std::make_shared<const std::vector<std::int32_t>>(std::move(*sorted));
    return true;
  }

  const WeightSource& source_;
  FragmentForm form_;
  Codes codes_ = Codes::kNibbles;
  bool is_first_ = true, has_zeros_ = false, rows_are_int8_ = true;
  bool in_f16_ = true, in_bf16_ = true;
};

}  // namespace

FragmentForm common_fragment_form(const WeightSource& source, std::span<const StoredBox> boxes,
                                  Device device) {
  FormOfBoxes common(source);
  for (const StoredBox& box : boxes) common.add(box);
  return common.form(device);
}

QuantCodes empty_codes(const ops::Weight& w, std::int64_t rows) {
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

namespace {

constexpr float kMaxE2M1 = 6;

float e4m3_value(std::uint8_t code) {
  static const std::array<float, 256> all = ops::e4m3_values();
  return all[code];
}

float largest_of(std::span<const float> numbers) {
  float largest = 0;
  for (const float number : numbers) largest = std::max(largest, std::abs(number));
  return largest;
}

// Of the rows of a tile, in one of its units.
void put_factors(const ops::FragmentUnit& form, std::span<const CodeRow> rows, std::uint8_t* unit) {
  for (int first = 0; first < kRows; first += ops::kFactorRows) {
    const QuantCodes* codes = nullptr;
    for (int r = first; r < first + ops::kFactorRows; ++r) {
      const QuantCodes* const own = rows[static_cast<std::size_t>(r)].codes;
      check(codes == nullptr || own == nullptr || own->factor == codes->factor,
            "rows {} to {} of a tile have several factors", first, r);
      if (own != nullptr) codes = own;
    }
    const float factor = codes == nullptr ? 0 : codes->factor;
    std::memcpy(unit + form.factor_at(first), &factor, sizeof factor);
  }
}

}  // namespace

QuantCodes rounded_codes(const ops::Weight& w, const Tensor& numbers) {
  const std::int64_t rows = numbers.dim(0);
  QuantCodes codes = empty_codes(w, rows);
  // The largest scale is 448, as ModelOpt has it.
  if (w.format == Format::kNvFp4)
    if (const float largest =
            largest_of({numbers.ptr<float>(), codes.codes.size()}) / (kMaxE2M1 * ops::kMaxE4M3);
        largest >= std::numeric_limits<float>::min())
      codes.factor = largest;
  const cpu::QuantKind kind =
      w.format == Format::kInt8 ? cpu::QuantKind::kInt8 : cpu::QuantKind::kInt4;
  // All groups of a row have its scale.
  if (w.int8_rows)
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto scale =
          static_cast<float>(cpu::quantize_group(kind, numbers.ptr<float>() + r * w.columns,
                                                 w.columns, codes.codes.data() + r * w.columns));
      for (std::size_t at = static_cast<std::size_t>(r); at < codes.scales.size();
           at += static_cast<std::size_t>(rows))
        codes.scales[at] = scale;
    }
  for (std::int64_t r = 0; r < rows && !w.int8_rows; ++r)
    for (std::int64_t c = 0; c < w.columns; c += w.group) {
      const float* from = numbers.ptr<float>() + r * w.columns + c;
      std::uint8_t* to = codes.codes.data() + r * w.columns + c;
      const std::int64_t count = std::min(w.group, w.columns - c);
      float& scale = codes.scales[static_cast<std::size_t>(c / w.group * rows + r)];
      if (w.format == Format::kInt8 || w.format == Format::kInt4 || w.format == Format::kInt4Zero) {
        scale = static_cast<float>(cpu::quantize_group(kind, from, count, to));
        continue;
      }
      const float largest = largest_of({from, static_cast<std::size_t>(count)});
      if (w.format == Format::kMxFp4) {
        scale = ops::mx_scale_for(largest);
        for (std::int64_t i = 0; i < count; ++i) to[i] = ops::to_e2m1(from[i] / scale);
        continue;
      }
      if (w.format == Format::kNvFp4) {
        scale = e4m3_value(ops::to_e4m3(largest / (kMaxE2M1 * codes.factor)));
        for (std::int64_t i = 0; i < count && scale > 0; ++i)
          to[i] = ops::to_e2m1(from[i] / (scale * codes.factor));
        continue;
      }
      const auto [own, factor] = ops::fp8_scale(largest);
      scale = own;
      for (std::int64_t i = 0; i < count; ++i) to[i] = ops::to_e4m3(from[i] * factor);
    }
  return codes;
}

void put_fragment_rows(const ops::Weight& w, std::int64_t index, std::int64_t first,
                       std::int64_t rows, const std::function<CodeRow(std::int64_t)>& row_of,
                       std::span<const std::int32_t> order) {
  const ops::FragmentUnit form = fragment_unit(w);
  const bool are_numbers =
      w.format == Format::kFp8 || w.format == Format::kMxFp4 || w.format == Format::kNvFp4;
  const auto nothing = static_cast<std::uint8_t>(are_numbers ? 0 : form.middle());
  const std::int64_t units = ops::fragment_units(w.columns), tile_bytes = units * form.bytes(),
                     width = kColumns / form.groups;
  HostImage image(w.data.at(index).slice(0, first / kRows * tile_bytes,
                                         ops::fragment_tiles(rows) * tile_bytes));
  auto* to = static_cast<std::uint8_t*>(image.tensor().data);
  const auto column_of = [&](std::int64_t k) {
    return order.empty() ? k : std::int64_t{order[static_cast<std::size_t>(k)]};
  };
  std::array<std::uint8_t, kRows * kColumns> square;
  std::array<CodeRow, kRows> of_tile;
  for (std::int64_t tile = 0; tile < ops::fragment_tiles(rows); ++tile) {
    for (std::int64_t r = 0; r < kRows; ++r)
      of_tile[static_cast<std::size_t>(r)] =
          tile * kRows + r < rows ? row_of(tile * kRows + r) : CodeRow{};
    for (std::int64_t u = 0; u < units; ++u, to += form.bytes()) {
      const std::int64_t begin = u * kColumns, count = std::min(kColumns, w.columns - begin);
      square.fill(nothing);
      for (int r = 0; r < kRows; ++r) {
        const CodeRow& from = of_tile[static_cast<std::size_t>(r)];
        std::uint8_t* const line = square.data() + r * kColumns;
        for (int g = 0; g < form.groups; ++g) {
          float scale = 0;
          auto zero = static_cast<std::uint8_t>(form.middle());
          if (from.codes != nullptr && begin + g * width < w.columns) {
            const std::int32_t group =
                from.codes->groups[static_cast<std::size_t>(column_of(begin + g * width))];
            const auto at = static_cast<std::size_t>(group * from.rows + from.row);
            scale = from.codes->scales[at];
            zero = from.codes->zeros[at];
          }
          if (w.format == Format::kFp8 || form.scale_bytes == 4) {
            std::memcpy(to + form.scale_at(g, r), &scale, 4);
          } else if (w.format == Format::kNvFp4) {
            const std::uint8_t code = ops::to_e4m3(scale);
            check(e4m3_value(code) == scale, "a scale of {} is no number of e4m3", scale);
            to[form.scale_at(g, r)] = code;
          } else if (w.format == Format::kMxFp4) {
            const int code = scale == 0 ? 0 : ops::mx_scale_code(scale);
            check(code >= 0, "a scale of {} is no power of two", scale);
            to[form.scale_at(g, r)] = static_cast<std::uint8_t>(code);
          } else {
            const std::optional<std::uint16_t> bits = scale_bits(scale, w.scale);
            check(bits.has_value(), "a scale of {} has more than 16 bits", scale);
            std::memcpy(to + form.scale_at(g, r), &*bits, 2);
          }
          if (!form.has_zeros) continue;
          to[form.zero_at(g, r)] = zero;
          std::fill_n(line + g * width, width, zero);  // columns after the last one are zeros
        }
        if (from.codes == nullptr) continue;
        const std::uint8_t* codes = from.codes->codes.data() + from.row * w.columns;
        for (std::int64_t c = 0; c < count; ++c) line[c] = codes[column_of(begin + c)];
      }
      if (form.has_factors) put_factors(form, of_tile, to);
      put_fragment_codes(form, square.data(), kColumns, to);
    }
  }
  image.put();
}

}  // namespace sluice
