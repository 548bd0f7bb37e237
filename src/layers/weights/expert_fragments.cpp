#include "layers/weights/expert_fragments.h"

#include <atomic>
#include <memory>
#include <numeric>

#include "kernels/types/fp4.h"
#include "kernels/types/int_fragments.h"
#include "ops/packing.h"

namespace sluice {
namespace {

// Eight gate rows, then the eight up rows of the same columns.
void put_gate_and_up(const ops::Weight& w13, std::int64_t expert, const QuantCodes& gate,
                     const QuantCodes& up) {
  const std::int64_t width = w13.rows / 2;
  put_fragment_rows(w13, expert, 0, w13.rows,
                    [&](std::int64_t row) {
                      return CodeRow{row % 16 < 8 ? &gate : &up, row / 16 * 8 + row % 8, width};
                    },
                    {});
}
void put_down(const ops::Weight& w2, std::int64_t expert, const QuantCodes& down) {
  put_fragment_rows(w2, expert, 0, w2.rows,
                    [&](std::int64_t row) { return CodeRow{&down, row, w2.rows}; }, {});
}

}  // namespace

ops::Weight take_experts(const Weights& block, const FragmentForm& form, std::int64_t experts,
                         std::int64_t rows, std::int64_t columns) {
  ops::Weight w;
  w.format = form.format;
  w.layout = ops::Layout::kFragments;
  w.group = form.group;
  w.scale = form.scale;
  w.int8_rows = form.int8_rows;
  w.input = block.numerics().gemm();
  w.count = experts;
  w.rows = rows;
  w.columns = columns;
  w.data = block.take(DType::kU8, {w.count, fragment_bytes(w)});
  return w;
}

FragmentForm rounded_form(const Numerics& numerics) {
  const ops::Format format = *numerics.experts_rounded_to;
  return {.format = format,
          .group = format == ops::Format::kFp8     ? ops::kFragmentColumns
                   : format == ops::Format::kMxFp4 ? ops::kMxGroup
                   : format == ops::Format::kNvFp4 ? ops::kNvGroup
                                                   : numerics.quantization_group};
}

std::vector<std::int64_t> ExpertShape::alike(const Weights& block) const {
  if (!own.moves && block.shared_experts() == nullptr) return own.experts;
  std::vector<std::int64_t> all(static_cast<std::size_t>(experts));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// The stored matrices of experts; nothing if one has another form than codes.
std::optional<std::vector<ExpertFragments::Boxes>> ExpertFragments::find(
    std::span<const std::int64_t> experts) const {
  const Numerics& numerics = block_.numerics();
  const WeightSource& source = block_.loader_->source_;
  if (numerics.gemm() != DType::kBF16 || numerics.quantization) return {};
  std::vector<Boxes> boxes;
  for (const std::int64_t e : experts) {
    const Weights expert = block_.sub("experts", static_cast<int>(e));
    const auto find = [&](const std::string& name) -> const QuantMatrix* {
      const std::string path = expert.path(name);
      if (numerics.keep_fp8)
        if (const QuantMatrix* matrix = source.find_fp8(path)) return matrix;
      return numerics.int_fragments ? source.find_integers(path) : nullptr;
    };
    const AxisRange hidden{0, shape_.hidden};
    const Boxes own{.gate = {find(names_.gate), shape_.own.columns, hidden},
                    .up = {find(names_.up), shape_.own.columns, hidden},
                    .down = {find(names_.down), hidden, shape_.own.columns}};
    if (own.gate.matrix == nullptr || own.up.matrix == nullptr || own.down.matrix == nullptr)
      return {};
    boxes.push_back(own);
  }
  return boxes;
}

std::array<std::function<void(const Tensor&)>, 2> round_gate_and_up(const ops::Weight& w13,
                                                                    std::int64_t expert) {
  struct Pair {
    QuantCodes half[2];
    std::atomic<int> arrived = 0;
  };
  const auto pair = std::make_shared<Pair>();
  const auto of_half = [&](int half) {
    return [pair, half, w13, expert](const Tensor& numbers) {
      pair->half[half] = rounded_codes(w13, numbers);
      if (pair->arrived.fetch_add(1) == 1)
        put_gate_and_up(w13, expert, pair->half[0], pair->half[1]);
    };
  };
  return {of_half(0), of_half(1)};
}

// Reads numbers and rounds them.
void ExpertFragments::add_numbers(std::size_t expert, const ops::Weight& w13,
                                  const ops::Weight& w2) const {
  const Weights own = block_.sub("experts", static_cast<int>(shape_.own.experts[expert]));
  const auto at = static_cast<std::int64_t>(expert);
  const auto halves = round_gate_and_up(w13, at);
  for (const std::size_t half : {0u, 1u})
    own.read_then(half == 0 ? names_.gate : names_.up, DType::kF32, {shape_.width, shape_.hidden},
                  {shape_.own.columns}, halves[half]);
  for (const std::string& name : {names_.gate, names_.up, names_.down})
    block_.loader_->note_rounded(own.path(name));
  own.read_then(names_.down, DType::kF32, {shape_.hidden, shape_.width}, {{}, shape_.own.columns},
                [w2, at](const Tensor& box) {
                  const QuantCodes codes = rounded_codes(w2, box);
                  put_down(w2, at, codes);
                });
}

bool ExpertFragments::load(ops::Weight& w13, ops::Weight& w2) const {
  const Numerics& numerics = block_.numerics();
  // The experts of a layer have one form.
  const bool rounds =
      numerics.experts_rounded_to && !block_.sub("experts", 0).stays_plain(names_.gate);
  const std::optional<std::vector<Boxes>> boxes =
      rounds ? std::nullopt : find(shape_.alike(block_));
  if (!rounds && (!boxes || boxes->empty())) return false;
  const auto refuse = [&](std::string reason) {
    block_.loader_->note_widened({block_.path("experts.")}, std::move(reason));
    return false;
  };
  const std::int64_t width = shape_.own.columns.count, num_own = shape_.num_own();
  if (!ops::multiplies_experts_in_fragments(block_.loader_->ctx_))
    return refuse("this GPU has no kernels for such experts");
  if (width % 8 != 0 || shape_.hidden % 8 != 0)
    return refuse("the width of an expert is no multiple of 8");
  if (rounds) {
    const FragmentForm form = rounded_form(numerics);
    w13 = take_experts(block_, form, num_own, 2 * width, shape_.hidden);
    w2 = take_experts(block_, form, num_own, shape_.hidden, width);
    for (std::size_t e = 0; e < shape_.own.experts.size(); ++e) add_numbers(e, w13, w2);
    return true;
  }
  for (const Boxes& own : *boxes)
    for (const StoredBox* box : {&own.gate, &own.up, &own.down}) {
      const bool is_down = box == &own.down;
      const std::vector<std::int64_t> shape{is_down ? shape_.hidden : shape_.width,
                                            is_down ? shape_.width : shape_.hidden};
      if (box->matrix->info.shape != shape) return false;  // the widened path names the tensor
    }
  std::vector<StoredBox> all;
  for (const Boxes& own : *boxes) all.insert(all.end(), {own.gate, own.up, own.down});
  const FragmentForm form = common_fragment_form(block_.loader_->source_, all, block_.device());
  if (!form.reason.empty()) return refuse(form.reason);
  if (form.order != nullptr) return refuse("columns of experts have an order of their own");
  w13 = take_experts(block_, form, num_own, 2 * width, shape_.hidden);
  w2 = take_experts(block_, form, num_own, shape_.hidden, width);

  const WeightSource& source = block_.loader_->source_;
  const std::optional<std::vector<Boxes>> own_boxes = find(shape_.own.experts);
  for (std::int64_t e = 0; e < num_own; ++e) {
    const auto i = static_cast<std::size_t>(e);
    const Boxes& own = (*own_boxes)[i];
    const Weights expert = block_.sub("experts", static_cast<int>(shape_.own.experts[i]));
    const auto read = [&source](const StoredBox& box) {
      QuantCodes codes;
      source.read_codes(*box.matrix,
                        {0, box.rows.begin, box.rows.count, box.columns.begin, box.columns.count},
                        codes);
      return codes;
    };
    const auto add = [&](const std::string& name, std::function<void()> work) {
      WeightTask task;
      task.name = expert.path(name);
      task.int8_rows = form.int8_rows;
      task.read = std::move(work);
      block_.add(std::move(task));
    };
    add(names_.gate,
        [read, w13, own, e] { put_gate_and_up(w13, e, read(own.gate), read(own.up)); });
    add(names_.up, [] {});  // with its gate
    add(names_.down, [read, w2, own, e] { put_down(w2, e, read(own.down)); });
  }
  return true;
}

}  // namespace sluice
