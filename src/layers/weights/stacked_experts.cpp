#include "layers/weights/stacked_experts.h"

#include "ops/packing.h"
#include "tensor/buffer.h"

namespace sluice {
namespace {

// `both`: gate and up rows of an expert, as the file orders them.
void put_gate_and_up(const ops::Weight& w13, std::int64_t expert, const QuantCodes& both,
                     bool interleaved) {
  const std::int64_t width = w13.rows / 2;
  put_fragment_rows(w13, expert, 0, w13.rows,
                    [&](std::int64_t row) {
                      const std::int64_t n = row / 16 * 8 + row % 8, is_up = row % 16 / 8;
                      return CodeRow{&both, interleaved ? 2 * n + is_up : is_up * width + n,
                                     w13.rows};
                    },
                    {});
}
void put_down(const ops::Weight& w2, std::int64_t expert, const QuantCodes& down) {
  put_fragment_rows(w2, expert, 0, w2.rows,
                    [&](std::int64_t row) { return CodeRow{&down, row, w2.rows}; }, {});
}

// Two ranges of rows, one after the other.
QuantCodes joined(const QuantCodes& first, const QuantCodes& second, std::int64_t rows) {
  QuantCodes all = first;
  all.codes.insert(all.codes.end(), second.codes.begin(), second.codes.end());
  const std::size_t groups = first.scales.size() / static_cast<std::size_t>(rows);
  all.scales.clear();
  all.zeros.clear();
  for (std::size_t g = 0; g < groups; ++g)
    for (const QuantCodes* half : {&first, &second}) {
      const auto begin = static_cast<std::ptrdiff_t>(g * static_cast<std::size_t>(rows));
      all.scales.insert(all.scales.end(), half->scales.begin() + begin,
                        half->scales.begin() + begin + rows);
      all.zeros.insert(all.zeros.end(), half->zeros.begin() + begin,
                       half->zeros.begin() + begin + rows);
    }
  return all;
}

}  // namespace

std::vector<AxisRange> StackedExperts::gate_up_rows() const {
  const AxisRange own = shape_.own.columns;
  if (names_.interleaved) return {{2 * own.begin, 2 * own.count}};
  return {own, {shape_.width + own.begin, own.count}};
}

std::string StackedExperts::why_not() const {
  if (!ops::multiplies_experts_in_fragments(block_.loader_->ctx_))
    return "this GPU has no kernels for such experts";
  if (shape_.own.columns.count % 8 != 0 || shape_.hidden % 8 != 0)
    return "the width of an expert is no multiple of 8";
  return {};
}

void StackedExperts::take(const FragmentForm& form, ops::Weight& w13, ops::Weight& w2) const {
  const std::int64_t width = shape_.own.columns.count;
  w13 = take_experts(block_, form, shape_.num_own(), 2 * width, shape_.hidden);
  w2 = take_experts(block_, form, shape_.num_own(), shape_.hidden, width);
}

bool StackedExperts::load(ops::Weight& w13, ops::Weight& w2) const {
  const Numerics& numerics = block_.numerics();
  if (numerics.experts_rounded_to && !block_.stays_plain(names_.gate_up)) return round(w13, w2);
  if (numerics.gemm() != DType::kBF16 || numerics.quantization || !numerics.int_fragments)
    return false;
  const WeightSource& source = block_.loader_->source_;
  const QuantMatrix *up = source.find_integers(block_.path(names_.gate_up)),
                    *down = source.find_integers(block_.path(names_.down));
  // The widened path names a tensor of a wrong shape.
  if (up == nullptr || down == nullptr ||
      up->info.shape != std::vector{shape_.experts, 2 * shape_.width, shape_.hidden} ||
      down->info.shape != std::vector{shape_.experts, shape_.hidden, shape_.width})
    return false;
  const auto refuse = [&](std::string reason) {
    block_.loader_->note_widened({block_.path(names_.gate_up), block_.path(names_.down)},
                                 std::move(reason));
    return false;
  };
  if (std::string reason = why_not(); !reason.empty()) return refuse(std::move(reason));
  std::vector<StoredBox> boxes;
  for (const std::int64_t e : shape_.alike(block_)) {
    for (const AxisRange& rows : gate_up_rows()) boxes.push_back({up, rows, {0, shape_.hidden}, e});
    boxes.push_back({down, {0, shape_.hidden}, shape_.own.columns, e});
  }
  const FragmentForm form = common_fragment_form(source, boxes, block_.device());
  if (!form.reason.empty()) return refuse(form.reason);
  if (form.order != nullptr) return refuse("columns of experts have an order of their own");
  take(form, w13, w2);

  const auto read = [&source](const StoredBox& box) {
    QuantCodes codes;
    source.read_codes(
        *box.matrix,
        {box.index, box.rows.begin, box.rows.count, box.columns.begin, box.columns.count}, codes);
    return codes;
  };
  for (std::int64_t i = 0; i < shape_.num_own(); ++i) {
    const std::int64_t e = shape_.own.experts[static_cast<std::size_t>(i)];
    const auto add = [&](const std::string& name, std::function<void()> work) {
      WeightTask task;
      task.name = block_.path(name);
      task.int8_rows = w13.int8_rows;
      task.read = std::move(work);
      block_.add(std::move(task));
    };
    add(names_.gate_up,
        [=, rows = gate_up_rows(), hidden = shape_.hidden, interleaved = names_.interleaved] {
          QuantCodes both = read({up, rows.front(), {0, hidden}, e});
          if (rows.size() > 1)
            both = joined(both, read({up, rows.back(), {0, hidden}, e}), rows.front().count);
          put_gate_and_up(w13, i, both, interleaved);
        });
    add(names_.down, [=, hidden = shape_.hidden, columns = shape_.own.columns] {
      put_down(w2, i, read({down, {0, hidden}, columns, e}));
    });
  }
  return true;
}

// Reads numbers and rounds them.
bool StackedExperts::round(ops::Weight& w13, ops::Weight& w2) const {
  if (std::string reason = why_not(); !reason.empty()) {
    block_.loader_->note_widened({block_.path(names_.gate_up), block_.path(names_.down)},
                                 std::move(reason));
    return false;
  }
  take(rounded_form(block_.numerics()), w13, w2);
  for (const std::string& name : {names_.gate_up, names_.down})
    block_.loader_->note_rounded(block_.path(name));
  const auto add = [&](const std::string& name, std::int64_t e, std::int64_t rows,
                       std::int64_t columns, AxisRange own_rows, AxisRange own_columns,
                       std::function<void(const Tensor&)> use) {
    if (!names_.transposed)
      return block_.read_then(name, DType::kF32, {shape_.experts, rows, columns},
                              {{e, 1}, own_rows, own_columns}, std::move(use));
    block_.read_then(name, DType::kF32, {shape_.experts, columns, rows},
                     {{e, 1}, own_columns, own_rows}, [use = std::move(use)](const Tensor& box) {
                       // [columns, rows] to [rows, columns]
                       Buffer turned(box.bytes());
                       const Tensor image = turned.tensor(box.dtype, {box.dim(1), box.dim(0)});
                       for (std::int64_t c = 0; c < box.dim(0); ++c)
                         for (std::int64_t r = 0; r < box.dim(1); ++r)
                           image.ptr<float>()[r * box.dim(0) + c] =
                               box.ptr<float>()[c * box.dim(1) + r];
                       use(image);
                     });
  };
  for (std::int64_t i = 0; i < shape_.num_own(); ++i) {
    const std::int64_t e = shape_.own.experts[static_cast<std::size_t>(i)];
    if (names_.interleaved) {
      add(names_.gate_up, e, 2 * shape_.width, shape_.hidden, gate_up_rows().front(), {},
          [w13, i](const Tensor& box) { put_gate_and_up(w13, i, rounded_codes(w13, box), true); });
    } else {
      const auto halves = round_gate_and_up(w13, i);
      for (const std::size_t half : {0u, 1u})
        add(names_.gate_up, e, 2 * shape_.width, shape_.hidden, gate_up_rows()[half], {},
            halves[half]);
    }
    add(names_.down, e, shape_.hidden, shape_.width, {0, shape_.hidden}, shape_.own.columns,
        [w2, i](const Tensor& box) { put_down(w2, i, rounded_codes(w2, box)); });
  }
  return true;
}

}  // namespace sluice
