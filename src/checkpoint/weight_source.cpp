#include "checkpoint/weight_source.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "checkpoint/finite.h"
#include "checkpoint/tensors/convert.h"

namespace sluice {
namespace {

constexpr std::uint64_t kChunkBytes = 4 << 20;  // scratch memory, and the maximum size of one read
constexpr std::uint64_t kMinMappedBytes = 64 << 10;  // smaller boxes are faster to copy than to map
// gaps up to this size between two runs are read, because that is cheaper than a second read
constexpr std::uint64_t kGapBytes = 64 << 10;

// Elements that are contiguous both in the tensor and in the box.
struct Run {
  std::uint64_t begin;  // first element in the tensor
  std::uint64_t count;
};

// Calls body(Run) for the runs of a box in order. `ranges` has an entry for each axis.
template <class Body>
void for_each_run(const std::vector<std::int64_t>& shape, const std::vector<AxisRange>& ranges,
                  Body&& body) {
  std::uint64_t length = 1;
  int axis = static_cast<int>(shape.size()) - 1;  // the outermost axis that a run covers
  for (; axis > 0 && ranges[axis].count == shape[axis]; --axis)
    length *= static_cast<std::uint64_t>(shape[axis]);
  if (axis < 0) return body(Run{0, 1});
  for (const AxisRange& range : ranges)
    if (range.count == 0) return;

  const std::uint64_t stride = length;  // elements from one index of `axis` to the next
  length *= static_cast<std::uint64_t>(ranges[axis].count);
  std::vector<std::int64_t> index(axis, 0);
  while (true) {
    std::uint64_t row = 0;
    for (int i = 0; i < axis; ++i) row = row * shape[i] + ranges[i].begin + index[i];
    body(Run{(row * shape[axis] + ranges[axis].begin) * stride, length});
    int i = axis - 1;
    for (; i >= 0 && ++index[i] == ranges[i].count; --i) index[i] = 0;
    if (i < 0) return;
  }
}

// Reads the runs of one tensor into `out`, several small runs per read.
class RunReader {
 public:
  RunReader(const Checkpoint& checkpoint, const TensorInfo& info, DType dtype, std::byte* out)
      : checkpoint_(checkpoint),
        info_(info),
        dtype_(dtype),
        out_(out),
        size_(dtype_size(info.dtype)) {}

  void add(Run run) {
    // Long runs are cut, so that the scratch memory stays small.
    while (run.count * size_ > kChunkBytes) {
      const std::uint64_t part = kChunkBytes / size_;
      add({run.begin, part});
      run = {run.begin + part, run.count - part};
    }
    const std::uint64_t end = (run.begin + run.count) * size_;
    if (!runs_.empty() && (end - begin_ > kChunkBytes || run.begin * size_ - end_ > kGapBytes))
      flush();
    if (runs_.empty()) begin_ = run.begin * size_;
    end_ = end;
    runs_.push_back(run);
  }

  void flush() {
    if (runs_.empty()) return;
    if (runs_.size() == 1 &&
        info_.dtype == dtype_) {  // no conversion, no gaps: read directly into `out`
      checkpoint_.read(info_, begin_, {out_, end_ - begin_});
      out_ += end_ - begin_;
    } else {
      if (scratch_ == nullptr)
        scratch_ = std::make_unique_for_overwrite<std::byte[]>(std::min(kChunkBytes, info_.bytes));
      checkpoint_.read(info_, begin_, {scratch_.get(), end_ - begin_});
      for (const Run& run : runs_) {
        convert_elements(info_.dtype, scratch_.get() + (run.begin * size_ - begin_), dtype_, out_,
                         static_cast<std::int64_t>(run.count));
        out_ += run.count * dtype_size(dtype_);
      }
    }
    runs_.clear();
  }

 private:
  const Checkpoint& checkpoint_;
  const TensorInfo& info_;
  const DType dtype_;
  std::byte* out_;
  const std::uint64_t size_;  // bytes of a stored element
  std::unique_ptr<std::byte[]> scratch_;
  std::vector<Run> runs_;  // not yet read: bytes [begin_, end_) of the tensor
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
};

// The ranges with every axis present and every count resolved.
std::vector<AxisRange> full_ranges(const WeightRequest& request) {
  check(request.ranges.size() <= request.shape.size(), "{}: {} ranges for {} axes", request.name,
        request.ranges.size(), request.shape.size());
  std::vector<AxisRange> ranges = request.ranges;
  ranges.resize(request.shape.size());
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    AxisRange& range = ranges[i];
    if (range.count < 0) range.count = request.shape[i] - range.begin;
    check(range.begin >= 0 && range.count >= 0 && range.begin <= request.shape[i] - range.count,
          "{}: range [{}, +{}) of axis {}, which has {}", request.name, range.begin, range.count, i,
          request.shape[i]);
  }
  return ranges;
}

}  // namespace

std::int64_t WeightRequest::numel() const {
  CheckedSize total(1);
  for (const AxisRange& range : full_ranges(*this))
    total = total * static_cast<std::uint64_t>(range.count);
  return static_cast<std::int64_t>(total.get());
}

WeightSource WeightSource::checkpoint(const std::string& path, const SourceOptions& options) {
  WeightSource source;
  if (is_gguf_path(path)) {
    source.gguf_ = std::make_unique<GgufCheckpoint>(path);
    return source;
  }
  source.checkpoint_ = std::make_unique<Checkpoint>(path, options.format);
  if (options.quantization)
    source.quantized_ =
        std::make_unique<QuantizedCheckpoint>(*source.checkpoint_, *options.quantization);
  return source;
}

WeightSource WeightSource::dummy(std::uint64_t seed, double sigma,
                                 const std::optional<QuantizationConfig>& quantization) {
  WeightSource source;
  source.dummy_ = std::make_unique<DummyWeights>(seed, sigma);
  if (quantization) source.modules_ = std::make_unique<QuantizedModules>(*quantization);
  return source;
}

bool WeightSource::leaves_plain(std::string_view name) const {
  if (quantized_) return quantized_->find(name) == nullptr && find(name) != nullptr;
  constexpr std::string_view kEnding = ".weight";
  if (name.ends_with(kEnding)) name.remove_suffix(kEnding.size());
  return modules_ && !modules_->has(name);
}

bool WeightSource::has(std::string_view name, bool by_config) const {
  return is_dummy() ? by_config : find(name) != nullptr;
}

const TensorInfo* WeightSource::find(std::string_view name) const {
  if (is_dummy()) return nullptr;
  if (gguf_) return gguf_->find(name);
  if (!quantized_) return checkpoint_->find(name);
  if (const QuantMatrix* matrix = quantized_->find(name)) return &matrix->info;
  return quantized_->consumed(name) ? nullptr : checkpoint_->find(name);
}

std::vector<std::string> WeightSource::names() const {
  if (is_dummy()) return {};
  return gguf_ ? gguf_->names() : quantized_ ? quantized_->names() : checkpoint_->names();
}

std::vector<std::string> WeightSource::stored_names() const {
  return checkpoint_ ? checkpoint_->names() : std::vector<std::string>{};
}

std::vector<float> WeightSource::small_tensor(std::string_view name) const {
  constexpr std::int64_t kMaxElements = 4096;
  const TensorInfo* info = checkpoint_ ? checkpoint_->find(name) : nullptr;
  if (info == nullptr) return {};
  const bool are_numbers = info->dtype == DType::kF32 || has_conversion(info->dtype, DType::kF32);
  require(info->numel() <= kMaxElements && are_numbers,
          "the tensor {} is {}; at most {} numbers were expected", name, info->describe(),
          kMaxElements);
  std::vector<float> numbers(static_cast<std::size_t>(info->numel()));
  RunReader reader(*checkpoint_, *info, DType::kF32, reinterpret_cast<std::byte*>(numbers.data()));
  if (!numbers.empty()) reader.add({0, numbers.size()});
  reader.flush();
  return numbers;
}

std::uint64_t WeightSource::total_bytes() const {
  return is_dummy() ? 0 : gguf_ ? gguf_->total_bytes() : checkpoint_->total_bytes();
}

const TensorInfo& WeightSource::stored(const WeightRequest& request) const {
  const TensorInfo* info = find(request.name);
  require(info != nullptr, "the checkpoint has no tensor {}, which the model needs ([{}])",
          request.name, fmt::join(request.shape, ", "));
  if (info->shape != request.shape)
    fail(ErrorKind::kBadInput, "the tensor {} is {}; the model needs [{}]", request.name,
         info->describe(), fmt::join(request.shape, ", "));
  return *info;
}

const QuantMatrix* WeightSource::find_fp8(std::string_view name) const {
  const QuantMatrix* matrix = quantized_ ? quantized_->find(name) : nullptr;
  return matrix != nullptr && matrix->values->dtype == DType::kF8E4M3 ? matrix : nullptr;
}

std::vector<float> WeightSource::fp8_scales(const QuantMatrix& matrix) const {
  return quantized_->scales(matrix);
}

const QuantMatrix* WeightSource::find_integers(std::string_view name) const {
  const QuantMatrix* matrix = quantized_ ? quantized_->find(name) : nullptr;
  const bool are_integers = matrix != nullptr && (matrix->values->dtype == DType::kI8 ||
                                                  matrix->values->dtype == DType::kI32 ||
                                                  matrix->values->dtype == DType::kU8);
  return are_integers ? matrix : nullptr;
}

void WeightSource::read_codes(const QuantMatrix& matrix, const QuantTile& tile,
                              QuantCodes& out) const {
  matrix.format->codes(*checkpoint_, matrix, tile, out);
}

void WeightSource::check_scales(const QuantMatrix& matrix, const QuantTile& tile) const {
  matrix.format->check_scales(*checkpoint_, matrix, tile);
}

void WeightSource::load_e4m3(const WeightRequest& request, const TensorInfo& values,
                             const std::vector<AxisRange>& ranges, std::span<std::byte> out) const {
  stored(request);
  RunReader reader(*checkpoint_, values, DType::kF8E4M3, out.data());
  for_each_run(request.shape, ranges, [&](Run run) { reader.add(run); });
  reader.flush();
  const auto nan = std::find_if(out.begin(), out.end(), [](std::byte code) {
    return (code & std::byte{0x7F}) == std::byte{0x7F};
  });
  require(nan == out.end(),
          "the tensor {} has NaN at element {} of the {} that were read; the checkpoint is damaged",
          request.name, nan - out.begin(), out.size());
}

void WeightSource::load_blocks(const WeightRequest& request, std::span<std::byte> out) const {
  const TensorInfo& info = stored(request);
  check(gguf_ != nullptr && info.blocks.has_value(), "the tensor {} is {}, which has no blocks",
        request.name, info.describe());
  check(out.size() == static_cast<std::size_t>(request.numel() / block_values(*info.blocks) *
                                               block_bytes(*info.blocks)),
        "{}: {} bytes for {} values of {}", request.name, out.size(), request.numel(),
        info.describe());
  gguf_->load_blocks(info, full_ranges(request), out);
}

void WeightSource::load(const WeightRequest& request, DType dtype, std::span<std::byte> out) const {
  const std::int64_t numel = request.numel();
  check(out.size() == static_cast<std::size_t>(numel * dtype_size(dtype)),
        "{}: {} bytes for {} elements of {}", request.name, out.size(), numel, dtype_name(dtype));
  const std::vector<AxisRange> ranges = full_ranges(request);
  if (is_dummy()) {
    require(dtype == DType::kF32 || has_conversion(DType::kF32, dtype),
            "the tensor {}: dummy weights cannot be {}", request.name, dtype_name(dtype));
    float values[4096];
    for_each_run(request.shape, ranges, [&](Run run) {
      for (std::uint64_t done = 0; done < run.count; done += std::size(values)) {
        const std::span<float> part(values,
                                    std::min<std::uint64_t>(std::size(values), run.count - done));
        dummy_->fill(request.name, request.init, run.begin + done, part);
        convert_elements(DType::kF32, std::as_bytes(part).data(), dtype, out.data(),
                         static_cast<std::int64_t>(part.size()));
        out = out.subspan(part.size() * dtype_size(dtype));
      }
    });
    return;
  }

  if (const QuantMatrix* fp8 = dtype == DType::kF8E4M3 ? find_fp8(request.name) : nullptr)
    return load_e4m3(request, *fp8->values, ranges, out);
  const TensorInfo& info = stored(request);
  if (info.dtype != dtype && !has_conversion(info.dtype, dtype))
    fail(ErrorKind::kBadInput, "the tensor {} is {}; it cannot become {}", request.name,
         info.describe(), dtype_name(dtype));
  const QuantMatrix* matrix = quantized_ ? quantized_->find(request.name) : nullptr;
  if (gguf_) {
    gguf_->load(info, ranges, dtype, out);
  } else if (matrix != nullptr) {
    quantized_->load(*matrix, ranges, dtype, out);
  } else {
    RunReader reader(*checkpoint_, info, dtype, out.data());
    for_each_run(request.shape, ranges, [&](Run run) { reader.add(run); });
    reader.flush();
  }
  refuse_not_finite(request, dtype, out.data());
}

bool WeightSource::rows_are_contiguous(std::string_view name) const {
  return checkpoint_ && !(quantized_ && quantized_->find(name) != nullptr);
}

bool WeightSource::with_mapping(const WeightRequest& request, DType dtype,
                                const std::function<void(std::span<const std::byte>)>& use) const {
  if (!rows_are_contiguous(request.name)) return false;
  const TensorInfo& info = stored(request);
  const auto size = static_cast<std::uint64_t>(dtype_size(dtype));
  if (info.dtype != dtype || info.offset % size != 0) return false;
  Run box{0, 0};
  int runs = 0;
  for_each_run(request.shape, full_ranges(request), [&](Run run) {
    box = run;
    ++runs;
  });
  if (runs != 1 || box.count * size < kMinMappedBytes) return false;
  const std::optional<MappedBytes> mapped =
      checkpoint_->map(info, box.begin * size, box.count * size);
  if (!mapped) return false;
  refuse_not_finite(request, dtype, mapped->bytes().data());
  use(mapped->bytes());
  require(mapped->whole(),
          "the tensor {} could not be read to its end: its file became shorter meanwhile, or its "
          "disk fails",
          request.name);
  return true;
}

void WeightSource::refuse_not_finite(const WeightRequest& request, DType dtype,
                                     const std::byte* values) const {
  if (!check_finite_) return;
  const std::int64_t numel = request.numel();
  const auto bad = first_not_finite(dtype, values, numel);
  require(!bad,
          "the tensor {} has NaN or infinity at element {} of the {} that were read as {}; the "
          "checkpoint is "
          "damaged, or its values do not fit that type",
          request.name, bad.value_or(0), numel, dtype_name(dtype));
}

}  // namespace sluice
