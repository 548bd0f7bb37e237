#include "layers/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>

#include "base/error.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxNamesInMessage = 20;

std::string list_names(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(names.size(), kMaxNamesInMessage);
  std::string text =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

}  // namespace

Tensor WeightStore::take(DType dtype, std::initializer_list<std::int64_t> shape) {
  std::int64_t bytes = dtype_size(dtype);
  for (const std::int64_t extent : shape) bytes *= extent;
  buffers_.emplace_back(bytes);
  bytes_ += bytes;
  return buffers_.back().tensor(dtype, shape);
}

Weights Weights::sub(std::string_view name) const {
  return Weights(loader_, prefix_ + std::string(name) + '.');
}

Weights Weights::sub(std::string_view name, int index) const {
  return Weights(loader_, fmt::format("{}{}.{}.", prefix_, name, index));
}

bool Weights::has(std::string_view name, bool by_config) const {
  return loader_->source_.has(path(name), by_config);
}
std::string Weights::path(std::string_view name) const {
  return prefix_ + std::string(name);
}
const Numerics& Weights::numerics() const {
  return loader_->numerics_;
}
int Weights::tp_size() const {
  return loader_->tp_size_;
}

AxisRange Weights::share(std::int64_t extent, std::string_view what) const {
  const int size = loader_->tp_size_;
  require(extent % size == 0, "{}: {} rows or columns cannot be shared equally by {} ranks", path(what),
          extent, size);
  return {extent / size * loader_->tp_rank_, extent / size};
}

DType Weights::matrix_dtype(std::initializer_list<std::string_view> full_names) const {
  if (loader_->numerics_.compute != DType::kF32) return loader_->numerics_.compute;
  // Fused parts of different types meet in float32, which holds them all.
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

Tensor Weights::take(DType dtype, std::initializer_list<std::int64_t> shape) const {
  return loader_->store_.take(dtype, shape);
}

void Weights::fill(const Tensor& place, std::string_view name, std::vector<std::int64_t> shape,
                   std::vector<AxisRange> ranges, WeightInit init) const {
  check(place.dense(), "{} would be read into {}, which has gaps", path(name), place.describe());
  add({path(name), std::move(shape), std::move(ranges), init, place, place.dtype, nullptr});
}

void Weights::read_then(std::string_view name, DType dtype, std::vector<std::int64_t> shape,
                        std::vector<AxisRange> ranges, std::function<void(const Tensor&)> use) const {
  add({path(name), std::move(shape), std::move(ranges), WeightInit::kNormal, {}, dtype, std::move(use)});
}

void Weights::add(WeightTask task) const {
  if (!loader_->source_.has(task.name, true)) {
    loader_->missing_.push_back(task.name);
    return;
  }
  loader_->used_.insert(task.name);
  loader_->tasks_.push_back(std::move(task));
}

Tensor Weights::matrix(std::initializer_list<WeightPart> parts, std::int64_t columns, Shard shard) const {
  std::vector<std::string> names;
  std::int64_t num_rows = 0;
  DType dtype{};
  for (const WeightPart& part : parts) {
    names.push_back(std::string(part.name) + ".weight");
    num_rows += shard == Shard::kColumn ? share(part.rows, names.back()).count : part.rows;
    const DType own = matrix_dtype({names.back()});
    dtype = names.size() == 1 || dtype == own ? own : DType::kF32;
  }
  const AxisRange all_columns;
  const AxisRange column_range = shard == Shard::kRow ? share(columns, names.front()) : all_columns;
  const Tensor fused = take(dtype, {num_rows, shard == Shard::kRow ? column_range.count : columns});
  std::int64_t row = 0;
  std::size_t i = 0;
  for (const WeightPart& part : parts) {
    const AxisRange row_range =
        shard == Shard::kColumn ? share(part.rows, names[i]) : AxisRange{0, part.rows};
    fill(fused.rows(row, row_range.count), names[i], {part.rows, columns}, {row_range, column_range});
    row += row_range.count;
    ++i;
  }
  return fused;
}

Tensor Weights::matrix_f32(WeightPart part, std::int64_t columns) const {
  const Tensor place = take(DType::kF32, {part.rows, columns});
  fill(place, std::string(part.name) + ".weight", {part.rows, columns});
  return place;
}

Tensor Weights::bias(std::initializer_list<WeightPart> parts, Shard shard) const {
  std::int64_t num_rows = 0;
  for (const WeightPart& part : parts)
    num_rows += shard == Shard::kColumn ? share(part.rows, part.name).count : part.rows;
  const Tensor fused = take(DType::kF32, {num_rows});
  std::int64_t row = 0;
  for (const WeightPart& part : parts) {
    const std::string name = std::string(part.name) + ".bias";
    const AxisRange range = shard == Shard::kColumn ? share(part.rows, part.name) : AxisRange{0, part.rows};
    if (shard == Shard::kRow && loader_->tp_rank_ != 0)
      loader_->used_.insert(path(name));
    else
      fill(fused.rows(row, range.count), name, {part.rows}, {range}, WeightInit::kZeros);
    row += range.count;
  }
  return fused;
}

Tensor Weights::vector(std::string_view name, std::int64_t n, WeightInit init) const {
  const Tensor place = take(DType::kF32, {n});
  fill(place, name, {n}, {}, init);
  return place;
}

WeightLoader::WeightLoader(const WeightSource& source, Numerics numerics, DType stored_dtype, Context& ctx)
    : source_(source), numerics_(numerics), stored_dtype_(stored_dtype), ctx_(ctx) {
  if (ctx.communicator != nullptr) {
    tp_rank_ = ctx.communicator->rank();
    tp_size_ = ctx.communicator->size();
  }
}

void WeightLoader::run(const WeightTask& task) const {
  const WeightRequest request{
      .name = task.name, .shape = task.shape, .ranges = task.ranges, .init = task.init};
  const auto read = [&](const Tensor& place) {
    source_.load(request, place.dtype,
                 {static_cast<std::byte*>(place.data), static_cast<std::size_t>(place.bytes())});
  };
  if (!task.use) {
    read(task.place);
    return;
  }
  const std::int64_t columns = task.shape.back();
  const std::int64_t num_rows = request.numel() / columns;
  const Buffer passing(num_rows * columns * dtype_size(task.dtype));
  const Tensor box = passing.tensor(task.dtype, {num_rows, columns});
  read(box);
  task.use(box);
}

std::vector<std::string> WeightLoader::finish(const std::function<bool(std::string_view)>& is_known_extra) {
  require(missing_.empty(), "the checkpoint lacks {} tensor{} that the model needs: {}", missing_.size(),
          missing_.size() == 1 ? "" : "s", list_names(missing_));

  // Tensors differ in size by orders of magnitude, so workers take them one by one rather than in equal
  // ranges.
  std::atomic<std::size_t> next = 0;
  const auto work = [&](int) {
    for (std::size_t i = next++; i < tasks_.size(); i = next++) {
      run(tasks_[i]);
    }
  };
  if (ctx_.pool != nullptr)
    ctx_.pool->run(ctx_.pool->size(), work);
  else
    work(0);
  tasks_.clear();

  std::vector<std::string> unused;
  for (std::string& name : source_.names())
    if (!used_.contains(name) && !is_known_extra(name)) unused.push_back(std::move(name));
  return unused;
}

}  // namespace sluice
