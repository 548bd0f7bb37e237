// Filling all tensors of a model.
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/tensors/quantized_blocks.h"
#include "layers/weights/shared_experts.h"
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
// Tensors up to this size have memory while forms are planned: layers write tables to them.
constexpr std::int64_t kPlannedBytes = 4 << 20;

// "Q4_K", "AWQ of 4 bits in groups of 128".
std::string describe_form(const WeightSource& source, const TensorInfo& info) {
  if (info.blocks) return std::string(block_type_name(*info.blocks));
  const QuantMatrix* matrix = source.find_fp8(info.name);
  if (matrix == nullptr) matrix = source.find_integers(info.name);
  std::string text(info.stored_as);
  if (matrix == nullptr) return text;
  if (matrix->bits > 0 && matrix->values->dtype != DType::kF8E4M3)
    text += fmt::format(" of {} bits", matrix->bits);
  if (matrix->index != nullptr) {
    const std::int64_t groups = std::max<std::int64_t>(matrix->scale->numel() / matrix->rows(), 1);
    return text + fmt::format(" in groups of {} by an index of columns",
                              (matrix->columns() + groups - 1) / groups);
  }
  if (matrix->block_columns < matrix->columns())
    return text +
           (matrix->block_rows == 1
                ? fmt::format(" in groups of {}", matrix->block_columns)
                : fmt::format(" in blocks of {} x {}", matrix->block_rows, matrix->block_columns));
  return text + (matrix->block_rows == 1 ? " with a scale a row" : " with one scale");
}

std::string list_names(const std::vector<std::string>& names) {
  const std::size_t shown = std::min(names.size(), kMaxNamesInMessage);
  std::string text = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

// "model.layers.*.mlp.gate.weight".
std::string without_numbers(std::string_view name) {
  std::string out;
  for (const char c : name) {
    const bool is_digit = c >= '0' && c <= '9';
    const bool in_number = !out.empty() && out.back() == '*';
    if (is_digit && (in_number || out.ends_with('.')))
      out += in_number ? "" : "*";
    else
      out += c;
  }
  return out;
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
  const std::int64_t bytes = Tensor::dense(nullptr, dtype, shape).bytes();
  if (only_plans_ && bytes > kPlannedBytes) return store_.reserve(dtype, shape);
  if (takes_shared_) {
    Tensor part = Tensor::dense(nullptr, dtype, shape);
    part.data = shared_experts_->take(bytes);
    store_.count(bytes);
    if (ctx_.pool != nullptr) ctx_.pool->placement().place(part.data, bytes, spread);
    return part;
  }
  const bool large = bytes >= HugePageArena::kPageBytes;
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

void WeightLoader::note_widened(std::vector<std::string> names, std::string reason) {
  widened_.emplace_back(std::move(names), std::move(reason));
}

std::vector<MatrixForm> WeightLoader::forms() const {
  // What is true of all matrices without a reason of their own.
  const std::string common =
      numerics_.quantization ? "--quantization rounds it to another form"
      : numerics_.compute != DType::kBF16
          ? fmt::format("the computation is {}", dtype_name(numerics_.compute))
      : !numerics_.keep_blocks && !numerics_.keep_fp8 && !numerics_.int_fragments
          ? "--quantization none computes plain numbers"
          : "its layer computes plain numbers";
  std::vector<MatrixForm> forms;
  std::unordered_map<std::string_view, std::size_t> places;
  for (const WeightTask& task : tasks_) {
    const TensorInfo* info = source_.find(task.name);
    if (info == nullptr || (!info->blocks && info->stored_as.empty())) continue;
    const auto [place, is_new] = places.emplace(task.name, forms.size());
    if (is_new)
      forms.push_back({.name = task.name,
                       .stored = describe_form(source_, *info) +
                                 (task.int8_rows ? " (rows of x in int8)" : "")});
    // Codes are read as they are.
    if (task.as_blocks || task.read || task.dtype == DType::kF8E4M3) continue;
    std::string& because = forms[place->second].widened_because;
    because = common;
    for (const auto& [names, reason] : widened_)
      if (std::ranges::any_of(names, [&](const auto& name) { return task.name.starts_with(name); }))
        because = reason;
  }
  return forms;
}

void WeightLoader::log_rounded() const {
  std::vector<std::string> others;
  std::unordered_set<std::string_view> seen;
  for (const WeightTask& task : tasks_)
    if (task.shape.size() > 1 && !rounded_.contains(task.name) && seen.insert(task.name).second)
      others.push_back(without_numbers(task.name));
  const std::size_t num_others = others.size();
  std::ranges::sort(others);
  others.erase(std::unique(others.begin(), others.end()), others.end());
  std::string text =
      fmt::format("--quantization: {} matrices are rounded when they are read", rounded_.size());
  if (num_others > 0) text += fmt::format("; {} are not: {}", num_others, list_names(others));
  for (const auto& [names, reason] : widened_)
    text += fmt::format("; {}: {}", fmt::join(names, ", "), reason);
  if (widened_.empty())
    log_info("{}", text);
  else
    log_warning("{}", text);
}

void WeightLoader::require_all() const {
  std::vector<std::string> names;  // layers may ask for parts of one tensor
  std::unordered_set<std::string_view> seen;
  for (const std::string& name : missing_)
    if (seen.insert(name).second) names.push_back(name);
  if (names.empty()) return;
  const std::vector<std::string> stored = source_.stored_names();
  const auto packed = std::ranges::count_if(
      stored, [](std::string_view name) { return name.ends_with(".qweight"); });
  fail(ErrorKind::kBadInput, "the checkpoint lacks {} tensor{} that the model needs: {}{}",
       names.size(), names.size() == 1 ? "" : "s", list_names(names),
       packed == 0 ? ""
                   : fmt::format("; it has {} tensors .qweight, and no quantization_config of "
                                 "config.json that says quant_method awq or gptq: copy it there "
                                 "from quantize_config.json or quant_config.json",
                                 packed));
}

std::vector<std::string> WeightLoader::finish(
    const std::function<bool(std::string_view)>& is_known_extra) {
  require_all();
  const std::vector<MatrixForm> forms =
      ranks_.rank == 0 ? this->forms() : std::vector<MatrixForm>{};
  if (const std::string stored = computed_as_stored(forms); !stored.empty())
    log_info("computed as stored: {}", stored);
  if (const std::string widened = widened_when_read(forms); !widened.empty()) {
    const std::string text =
        fmt::format("widened to {} when it is read: {}", dtype_name(numerics_.compute), widened);
    if (widened_.empty())
      log_info("{}", text);
    else
      log_warning("{}", text);
  }

  if (numerics_.quantization && ranks_.rank == 0) log_rounded();

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
