// Filling all tensors of a model.
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/tensors/quantized_blocks.h"
#include "layers/weights/weight_staging.h"
#include "layers/weights/weights.h"
#include "tensor/copy.h"

namespace sluice {
namespace {

std::int64_t bytes_of_blocks(BlockType type, std::int64_t columns) {
  return columns / block_values(type) * block_bytes(type);
}

constexpr std::size_t kMaxNamesInMessage = 20;
constexpr int kMaxPrefaultThreads = 2;  // threads

std::string list_names(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(names.size(), kMaxNamesInMessage);
  std::string text = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

}  // namespace

WeightLoader::WeightLoader(const WeightSource& source, Numerics numerics, DType stored_dtype,
                           Context& ctx)
    : source_(source),
      numerics_(numerics),
      stored_dtype_(stored_dtype),
      ctx_(ctx),
      store_(ctx.device) {
  const bool on_cpu = ctx.device.kind == DeviceKind::kCpu;
  reads_mapped(on_cpu && __builtin_cpu_is("intel"));
  prefault(on_cpu && HugePageArena::is_worthwhile() &&
           (ctx.pool == nullptr || ctx.pool->size() <= kMaxPrefaultThreads));
  if (ctx.communicator != nullptr)
    ranks_ = all_ranks_ = {ctx.communicator->rank(), ctx.communicator->size()};
}

Tensor WeightLoader::take(DType dtype, std::initializer_list<std::int64_t> shape, Spread spread) {
  const bool large = Tensor::dense(nullptr, dtype, shape).bytes() >= HugePageArena::kPageBytes;
  if (prefaults_ && large && !huge_pages_) {
    huge_pages_ = HugePageArena::open(ctx_.pool != nullptr ? ctx_.pool->size() : 1,
                                      static_cast<std::int64_t>(source_.total_bytes()));
    prefaults_ = huge_pages_ != nullptr;
  }
  const Tensor place =
      prefaults_ && large ? store_.take(huge_pages_, dtype, shape) : store_.take(dtype, shape);
  if (ctx_.pool != nullptr && ctx_.device.kind == DeviceKind::kCpu)
    ctx_.pool->placement().place(place.data, place.bytes(), spread);
  return place;
}

void WeightLoader::run(const WeightTask& task, Buffer& passing, WeightStaging& staging) const {
  const WeightRequest request{
      .name = task.name, .shape = task.shape, .ranges = task.ranges, .init = task.init};
  if (huge_pages_ && task.fills.bytes() > 0 && huge_pages_->holds(task.fills.data))
    huge_pages_->prefault(static_cast<std::byte*>(task.fills.data), task.fills.bytes());
  if (task.read) return task.read();
  if (!task.use) {
    staging.read(source_, request, task.place);
    return;
  }
  const bool cut = task.ranges.size() == task.shape.size() && task.ranges.back().count >= 0;
  const std::int64_t columns = cut ? task.ranges.back().count : task.shape.back();
  const std::int64_t num_rows = request.numel() / columns;
  const auto use_mapped = [&](std::span<const std::byte> box) {
    // `Tensor` cannot express read-only memory; `use` only reads it.
    task.use(Tensor::dense(const_cast<std::byte*>(box.data()), task.dtype, {num_rows, columns}), 0);
  };
  if (reads_mapped_ && !task.as_blocks && source_.with_mapping(request, task.dtype, use_mapped))
    return;
  const DType dtype = task.as_blocks ? DType::kU8 : task.dtype;
  const std::int64_t width =
      task.as_blocks ? bytes_of_blocks(*source_.find(task.name)->blocks, columns) : columns;
  const std::int64_t at_once =
      task.rows_at_once > 0 ? std::min(task.rows_at_once, num_rows) : num_rows;
  if (passing.bytes() < at_once * width * dtype_size(dtype))
    passing = Buffer(at_once * width * dtype_size(dtype));
  for (std::int64_t row = 0; row < num_rows; row += at_once) {
    const std::int64_t count = std::min(at_once, num_rows - row);
    WeightRequest part = request;
    if (count < num_rows)
      part.ranges[part.shape.size() - 2] = {part.ranges[part.shape.size() - 2].begin + row, count};
    const Tensor box = passing.tensor(dtype, {count, width});
    if (task.as_blocks)
      source_.load_blocks(
          part, {static_cast<std::byte*>(box.data), static_cast<std::size_t>(box.bytes())});
    else
      staging.read(source_, part, box);
    task.use(box, row);
  }
}

void WeightLoader::note_widened(std::string name, std::string reason) {
  if (num_widened_++ == 0) widened_ = std::move(name), widened_reason_ = std::move(reason);
}

std::vector<std::string> WeightLoader::finish(
    const std::function<bool(std::string_view)>& is_known_extra) {
  require(missing_.empty(), "the checkpoint lacks {} tensor{} that the model needs: {}",
          missing_.size(), missing_.size() == 1 ? "" : "s", list_names(missing_));
  if (num_widened_ > 0)
    log_warning("{} quantised matri{} widened to {}, among them {}: {}", num_widened_,
                num_widened_ == 1 ? "x is" : "ces are", dtype_name(numerics_.compute), widened_,
                widened_reason_);

  // Tensors differ in size by orders of magnitude, so workers take them one by one instead of in
  // equal ranges.
  std::atomic<std::size_t> next = 0;
  const auto work = [&](int) {
    Buffer passing;  // grows to the largest piece of this worker
    WeightStaging staging(ctx_.device);
    for (std::size_t i = next++; i < tasks_.size(); i = next++) run(tasks_[i], passing, staging);
    staging.finish();
  };
  if (ctx_.pool != nullptr)
    ctx_.pool->run(ctx_.pool->size(), work);
  else
    work(0);
  tasks_.clear();
  for (const auto& [place, values] : images_) {
    HostImage image(place);
    std::copy(values->begin(), values->end(), image.tensor().ptr<float>());
    image.put();
  }
  images_.clear();
  if (huge_pages_) huge_pages_->close();

  std::vector<std::string> unused;
  const auto is_left_out = [&](const std::string& name) {
    return std::ranges::any_of(left_out_,
                               [&](const auto& begin) { return name.starts_with(begin); });
  };
  for (std::string& name : source_.names())
    if (!used_.contains(name) && !is_left_out(name) && !is_known_extra(name))
      unused.push_back(std::move(name));
  return unused;
}

}  // namespace sluice
