#include "layers/weights/weights.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/error.h"
#include "checkpoint/tensors/quantized_blocks.h"
#include "layers/weights/block_formats.h"
#include "layers/weights/fp8_weights.h"
#include "layers/weights/fragment_weights.h"
#include "layers/weights/int8_weights.h"
#include "ops/packing.h"
#include "tensor/copy.h"

namespace sluice {
namespace {

// The blocks in which the file stores a tensor; none for plain values, or if there is no such
// tensor.
std::optional<BlockType> stored_blocks(const Weights& weights, const WeightSource& source,
                                       std::string_view name) {
  const TensorInfo* info = source.find(weights.path(name));
  return info == nullptr ? std::nullopt : info->blocks;
}

template <class T>
void transpose_elements(const Tensor& from, const Tensor& to) {
  const std::int64_t rows = to.dim(0), columns = to.dim(1);
  for (std::int64_t column = 0; column < columns; ++column)
    for (std::int64_t row = 0; row < rows; ++row)
      to.ptr<T>()[row * columns + column] = from.ptr<T>()[column * rows + row];
}

// Both dense and of one type: from [columns, rows], to [rows, columns].
void transpose(const Tensor& from, const Tensor& to) {
  switch (from.dtype) {
    case DType::kBF16:
      return transpose_elements<BF16>(from, to);
    case DType::kF16:
      return transpose_elements<F16>(from, to);
    default:
      return transpose_elements<float>(from, to);
  }
}

}  // namespace

Tensor WeightStore::take(DType dtype, std::initializer_list<std::int64_t> shape) {
  std::int64_t bytes = dtype_size(dtype);
  for (const std::int64_t extent : shape) bytes *= extent;
  buffers_.emplace_back(bytes, device_);
  bytes_ += bytes;
  return buffers_.back().tensor(dtype, shape);
}

Tensor WeightStore::take(const std::shared_ptr<HugePageArena>& memory, DType dtype,
                         std::initializer_list<std::int64_t> shape) {
  Tensor place = Tensor::dense(nullptr, dtype, shape);
  place.data = memory->take(place.bytes());
  bytes_ += place.bytes();
  huge_pages_ = memory;
  return place;
}

Tensor WeightStore::reserve(DType dtype, std::initializer_list<std::int64_t> shape) {
  Tensor place = Tensor::dense(nullptr, dtype, shape, device_);
  if (place.bytes() > reserved_bytes_) {
    const auto bytes = static_cast<std::size_t>(place.bytes());
    void* at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
      fail(ErrorKind::kNoResources, "the system refused {} addresses", place.bytes());
    reserved_.emplace_back(at, [bytes](void* begin) { munmap(begin, bytes); });
    reserved_bytes_ = place.bytes();
  }
  place.data = reserved_.back().get();
  return place;
}

Weights Weights::sub(std::string_view name) const {
  if (name.empty()) return *this;
  return Weights(loader_, prefix_ + std::string(name) + '.', sharers_);
}

Weights Weights::sub(std::string_view name, int index) const {
  return Weights(loader_, fmt::format("{}{}.{}.", prefix_, name, index), sharers_);
}

bool Weights::has(std::string_view name, bool by_config) const {
  return loader_->source_.has(path(name), by_config);
}
bool Weights::stays_plain(std::string_view name) const {
  return loader_->source_.is_dummy() && loader_->source_.leaves_plain(path(name));
}
std::string Weights::path(std::string_view name) const {
  std::string full = prefix_ + std::string(name);
  for (const auto& [from, to] : loader_->renames_)
    if (full.starts_with(from)) return to + full.substr(from.size());
  return full;
}
const Numerics& Weights::numerics() const {
  return loader_->numerics_;
}
Weights Weights::of(Sharers sharers) const {
  return sharers_ == Sharers::kWithinGroup ? *this : Weights(loader_, prefix_, sharers);
}
Weights Weights::shared_by_all_ranks() const {
  return of(Sharers::kAll);
}
Weights Weights::shared_by_group() const {
  return of(Sharers::kGroup);
}
Weights Weights::within_group() const {
  return of(Sharers::kWithinGroup);
}
SharedExperts* Weights::shared_experts() const {
  return sharers_ == Sharers::kWithinGroup ? nullptr : loader_->shared_experts_;
}
void Weights::take_shared(bool is_on) const {
  loader_->takes_shared_ = is_on && shared_experts() != nullptr;
}
const RankShare& Weights::ranks() const {
  return sharers_ == Sharers::kAll ? loader_->all_ranks_ : loader_->ranks_;
}
Device Weights::device() const {
  return loader_->device();
}
void Weights::leave_out() const {
  loader_->left_out_.push_back(path(""));
}

AxisRange Weights::share(std::int64_t extent, std::string_view what) const {
  const auto [rank, size] = ranks();
  require(extent % size == 0, "{}: {} rows or columns cannot be shared equally by {} ranks",
          path(what), extent, size);
  return {extent / size * rank, extent / size};
}

void Weights::leave(std::string_view name) const {
  loader_->used_.insert(path(name));
}

DType Weights::matrix_dtype(std::initializer_list<std::string_view> full_names) const {
  if (loader_->numerics_.compute != DType::kF32) return loader_->numerics_.compute;
  // Fused parts of different types become float32, which holds them all.
  DType dtype = loader_->stored_dtype_;
  bool first = true;
  for (const std::string_view name : full_names) {
    const TensorInfo* info = loader_->source_.find(path(name));
    if (info == nullptr) continue;
    dtype = first || dtype == info->dtype ? info->dtype : DType::kF32;
    first = false;
  }
  return dtype == DType::kBF16 || dtype == DType::kF16 ? dtype : DType::kF32;
}

Tensor Weights::constant(const std::vector<float>& values) const {
  const Tensor place = take(DType::kF32, {static_cast<std::int64_t>(values.size())});
  HostImage image(place);
  std::copy(values.begin(), values.end(), image.tensor().ptr<float>());
  image.put();
  return place;
}

std::vector<float> Weights::small_tensor(std::string_view name) const {
  const std::string full = path(name);
  std::vector<float> numbers = loader_->source_.small_tensor(full);
  if (!numbers.empty()) loader_->used_.insert(full);
  return numbers;
}

Tensor Weights::take(DType dtype, std::initializer_list<std::int64_t> shape) const {
  return loader_->take(dtype, shape, shape.size() > 2 ? Spread::kInterleaved : Spread::kByShare);
}

void Weights::fill(const Tensor& place, std::string_view name, std::vector<std::int64_t> shape,
                   std::vector<AxisRange> ranges, WeightInit init) const {
  check(place.dense(), "{} would be read into {}, which has gaps", path(name), place.describe());
  add({.name = path(name),
       .shape = std::move(shape),
       .ranges = std::move(ranges),
       .init = init,
       .place = place,
       .dtype = place.dtype,
       .use = nullptr,
       .fills = place});
}

void Weights::read_then(std::string_view name, DType dtype, std::vector<std::int64_t> shape,
                        std::vector<AxisRange> ranges,
                        std::function<void(const Tensor&)> use) const {
  add({path(name),
       std::move(shape),
       std::move(ranges),
       WeightInit::kNormal,
       {},
       dtype,
       [use = std::move(use)](const Tensor& box, std::int64_t) { use(box); }});
}

void Weights::add(WeightTask task) const {
  if (!loader_->source_.has(task.name, true)) {
    loader_->missing_.push_back(task.name);
    return;
  }
  loader_->used_.insert(task.name);
  loader_->tasks_.push_back(std::move(task));
}

ops::Weight Weights::form(const std::vector<std::string>& full_names, DType dtype) const {
  const Context& ctx = loader_->ctx_;
  // The linear layers' own forms come before this one.
  if (numerics().quantization && numerics().quantization != ops::Format::kFp8 &&
      !numerics().int_fragments)
    return ops::weight_form(ctx, *numerics().quantization, numerics().gemm(),
                            numerics().quantization_group);
  if (numerics().keep_blocks && !numerics().int_fragments && !full_names.empty()) {
    const std::optional<BlockType> first =
        stored_blocks(*this, loader_->source_, full_names.front());
    const bool alike =
        std::all_of(full_names.begin(), full_names.end(), [&](const std::string& name) {
          return stored_blocks(*this, loader_->source_, name) == first;
        });
    if (first && alike)
      return ops::weight_form(ctx, format_of_blocks(*first), numerics().gemm(), kBlockValues);
    if (!alike) {
      std::vector<std::string> paths;
      for (const std::string& name : full_names) {
        // Experts lie in one stack.
        constexpr std::string_view kExperts = "experts.";
        const std::string full = path(name);
        const std::size_t at = full.find(kExperts);
        paths.push_back(full.substr(0, at == full.npos ? at : at + kExperts.size()));
      }
      loader_->note_widened(std::move(paths), "parts that lie together differ in type");
    }
  }
  return ops::weight_form(ctx, ops::format_of(dtype), numerics().gemm(), 0);
}

void Weights::take(ops::Weight& w, std::int64_t count) const {
  check(!w.is_row_major(), "a weight in rows states its type");
  w.count = count;
  w.data = loader_->take(DType::kU8, {count, ops::packed_bytes(loader_->ctx_, w)},
                         count > 1 ? Spread::kInterleaved : Spread::kByShare);
}

void Weights::note_rounded(const ops::Weight& w, std::string_view name) const {
  if (numerics().quantization == w.format) loader_->note_rounded(path(name));
}

void Weights::fill_transposed(const ops::Weight& w, std::int64_t index, std::int64_t first,
                              std::string_view name, std::vector<std::int64_t> shape,
                              std::vector<AxisRange> ranges) const {
  note_rounded(w, name);
  const std::size_t row_axis = shape.size() - 1;
  ranges.resize(shape.size());
  AxisRange rows = ranges[row_axis];
  if (rows.count < 0) rows.count = shape[row_axis] - rows.begin;
  constexpr std::int64_t kPieceRows = 1024;  // pieces end where a tile does, as in fill()
  const TensorInfo* stored = loader_->source_.find(path(name));
  const bool narrow = w.format == ops::Format::kBf16 ||
                      (stored == nullptr ? loader_->stored_dtype_ : stored->dtype) == DType::kBF16;
  const DType dtype = w.is_row_major() ? w.data.dtype : narrow ? DType::kBF16 : DType::kF32;
  Context& ctx = loader_->ctx_;
  for (std::int64_t begin = 0; begin < rows.count;) {
    const std::int64_t end =
        std::min(rows.count, (first + begin + kPieceRows) / kPieceRows * kPieceRows - first);
    ranges[row_axis] = {rows.begin + begin, end - begin};
    read_then(name, dtype, shape, ranges, [&ctx, w, index, to = first + begin](const Tensor& box) {
      const std::int64_t count = box.dim(1);
      if (!w.is_row_major()) {
        Buffer turned(box.bytes());
        const Tensor image = turned.tensor(box.dtype, {count, box.dim(0)});
        transpose(box, image);
        return ops::pack_rows(ctx, image, w, index, to);
      }
      HostImage image(w.at(index).data.rows(to, count));
      transpose(box, image.tensor());
      image.put();
    });
    begin = end;
  }
}

void Weights::require_whole_blocks(const ops::Weight& w, std::string_view name,
                                   AxisRange columns) const {
  const std::optional<BlockType> blocks = stored_blocks(*this, loader_->source_, name);
  if (!blocks || w.layout != ops::Layout::kTiles || w.format != format_of_blocks(*blocks) ||
      w.group != kBlockValues || columns.count < 0)
    return;
  const std::int64_t values = block_values(*blocks);
  require(columns.begin % values == 0 && columns.count % values == 0,
          "{}: ranks of {} columns would share its blocks of {}; fewer ranks have whole blocks, "
          "and --dtype float32 needs none",
          path(name), columns.count, values);
}

void Weights::fill(const ops::Weight& w, std::int64_t index, std::int64_t first,
                   std::string_view name, std::vector<std::int64_t> shape,
                   std::vector<AxisRange> ranges) const {
  const std::size_t row_axis = shape.size() - 2;
  ranges.resize(shape.size());
  AxisRange rows = ranges[row_axis];
  if (rows.count < 0) rows.count = shape[row_axis] - rows.begin;
  note_rounded(w, name);
  if (w.is_row_major())
    return fill(w.at(index).data.rows(first, rows.count), name, std::move(shape),
                std::move(ranges));
  // A piece consists of whole panels of four tiles, which are written in memory order, or of whole
  // tiles. So a piece is repacked line by line. A thread takes 4 MiB: smaller pieces would make two
  // threads fault the same huge page of w, which the kernel would then clear twice. A thread reads
  // and repacks about 256 KiB at once, which fits its core's own cache. It takes more if it would
  // otherwise read the file more than once.
  constexpr std::int64_t kPieceBytes = 4 << 20, kBytesAtOnce = 256 << 10;
  const TensorInfo* stored = loader_->source_.find(path(name));
  const auto rows_in = [&](std::int64_t bytes, std::int64_t unit) {
    return std::max(unit, bytes / (w.columns * 2) / unit * unit);
  };
  const ops::WeightOps& row = ops::weight_ops(loader_->ctx_, w);
  const std::int64_t unit =
      kPieceBytes / (w.columns * 2) >= row.panel_rows ? row.panel_rows : row.tile_rows;
  const std::int64_t piece = rows_in(kPieceBytes, unit);
  const std::int64_t at_once =
      loader_->source_.rows_are_contiguous(path(name)) ? rows_in(kBytesAtOnce, unit) : 0;
  Context& ctx = loader_->ctx_;
  const std::optional<BlockType> blocks = stored_blocks(*this, loader_->source_, name);
  // Blocks that are wanted as they are keep their values; other weights are quantised from all of
  // their bits.
  const bool as_blocks = blocks && w.format == format_of_blocks(*blocks) && w.group == kBlockValues;
  require_whole_blocks(w, name, ranges.back());
  const bool narrow = w.format == ops::Format::kBf16 ||
                      (stored == nullptr ? loader_->stored_dtype_ : stored->dtype) == DType::kBF16;
  for (std::int64_t begin = 0; begin < rows.count;) {
    // Rows before the next panel or tile boundary are a piece of their own.
    const std::int64_t at = first + begin,
                       end =
                           std::min(rows.count,
                                    (at % unit != 0 ? (at / unit + 1) * unit : at + piece) - first);
    ranges[row_axis] = {rows.begin + begin, end - begin};
    add({.name = path(name),
         .shape = shape,
         .ranges = ranges,
         .place = {},
         .dtype = narrow ? DType::kBF16 : DType::kF32,
         .use = [&ctx, w, index, at](
                    const Tensor& box,
                    std::int64_t row) { ops::pack_rows(ctx, box, w, index, at + row); },
         .as_blocks = as_blocks,
         .rows_at_once = at_once,
         .fills = ops::packed_panels(ctx, w, index, at, end - begin)});
    begin = end;
  }
}

// This rank's rows of the part's tensor.
AxisRange Weights::rows_of(const WeightPart& part, Shard shard) const {
  AxisRange range = shard == Shard::kColumn ? share(part.rows, part.name) : AxisRange{0, part.rows};
  range.begin += part.first_row;
  return range;
}

void Weights::fill_part(const ops::Weight& w, std::int64_t first, const WeightPart& part,
                        std::int64_t columns, AxisRange rows, AxisRange column_range) const {
  const std::string name = std::string(part.name) + ".weight";
  if (part.transposed)
    fill_transposed(w, 0, first, name, {columns, part.stored_rows()}, {column_range, rows});
  else
    fill(w, 0, first, name, {part.stored_rows(), columns}, {rows, column_range});
}

namespace {

// The type of a matrix of all these tensors: float32 where they differ.
DType fused_dtype(const Weights& weights, const std::vector<std::string>& names) {
  const DType first = weights.matrix_dtype({names.front()});
  const bool alike = std::ranges::all_of(
      names, [&](const std::string& name) { return weights.matrix_dtype({name}) == first; });
  return alike ? first : DType::kF32;
}

}  // namespace

ops::Weight Weights::packed(const WeightParts& parts, std::int64_t columns, Shard shard,
                            bool may_round) const {
  if (may_round) {
    if (const std::optional<ops::Weight> fp8 = Fp8Weights(*this, parts, columns, shard).load())
      return *fp8;
    if (const std::optional<ops::Weight> int8 = Int8Weights(*this, parts, columns, shard).load())
      return *int8;
  }
  if (const std::optional<ops::Weight> ints =
          FragmentWeights(*this, parts, columns, shard, may_round).load())
    return *ints;
  std::vector<std::string> names;
  for (const WeightPart& part : parts) names.push_back(std::string(part.name) + ".weight");
  // A file's bfloat16 or float16 stays so in memory, in rows, also where float32 is computed.
  const DType compute = numerics().compute;
  ops::Weight w = form(names, compute == DType::kF32 ? fused_dtype(*this, names) : compute);
  if (w.is_row_major()) {
    ops::Weight rows = matrix(parts, columns, shard);
    rows.input = w.input;
    return rows;
  }
  const std::string first_name = std::string(parts.begin()->name) + ".weight";
  const AxisRange column_range =
      shard == Shard::kRow ? share(columns, first_name) : AxisRange{0, columns};
  require_whole_blocks(w, first_name, column_range);
  w.columns = column_range.count;
  for (const WeightPart& part : parts)
    w.rows += shard == Shard::kColumn ? share(part.rows, part.name).count : part.rows;
  take(w, 1);
  std::int64_t row = 0;
  for (const WeightPart& part : parts) {
    const AxisRange range = rows_of(part, shard);
    fill_part(w, row, part, columns, range, column_range);
    row += range.count;
  }
  return w;
}

Tensor Weights::matrix(const WeightParts& parts, std::int64_t columns, Shard shard) const {
  std::vector<std::string> names;
  std::int64_t num_rows = 0;
  for (const WeightPart& part : parts) {
    names.push_back(std::string(part.name) + ".weight");
    num_rows += shard == Shard::kColumn ? share(part.rows, names.back()).count : part.rows;
  }
  const DType dtype = fused_dtype(*this, names);
  const AxisRange all_columns;
  const AxisRange column_range = shard == Shard::kRow ? share(columns, names.front()) : all_columns;
  const Tensor fused = take(dtype, {num_rows, shard == Shard::kRow ? column_range.count : columns});
  std::int64_t row = 0;
  for (const WeightPart& part : parts) {
    const AxisRange range = rows_of(part, shard);
    fill_part(fused, row, part, columns, range, column_range);
    row += range.count;
  }
  return fused;
}

Tensor Weights::shifted_vector(std::string_view name, std::int64_t n, float offset) const {
  const Tensor place = take(DType::kF32, {n});
  read_then(name, DType::kF32, {n}, {}, [place, n, offset](const Tensor& box) {
    HostImage image(place);
    for (std::int64_t i = 0; i < n; ++i)
      image.tensor().ptr<float>()[i] = offset + box.ptr<float>()[i];
    image.put();
  });
  return place;
}

Tensor Weights::matrix_f32(WeightPart part, std::int64_t columns) const {
  const Tensor place = take(DType::kF32, {part.rows, columns});
  fill(place, std::string(part.name) + ".weight", {part.rows, columns});
  return place;
}

Tensor Weights::bias(const WeightParts& parts, Shard shard) const {
  std::int64_t num_rows = 0;
  for (const WeightPart& part : parts)
    num_rows += shard == Shard::kColumn ? share(part.rows, part.name).count : part.rows;
  const Tensor fused = take(DType::kF32, {num_rows});
  std::int64_t row = 0;
  for (const WeightPart& part : parts) {
    const std::string name = std::string(part.name) + ".bias";
    const AxisRange range = rows_of(part, shard);
    if (shard == Shard::kRow && ranks().rank != 0)
      loader_->used_.insert(path(name));
    else
      fill(fused.rows(row, range.count), name, {part.stored_rows()}, {range}, WeightInit::kZeros);
    row += range.count;
  }
  return fused;
}

Tensor Weights::vector(std::string_view name, std::int64_t n, WeightInit init) const {
  const Tensor place = take(DType::kF32, {n});
  fill(place, name, {n}, {}, init);
  return place;
}

}  // namespace sluice
