#include "sampling/device_masks.h"

#include <algorithm>

#include "base/error.h"
#include "ops/logit_edits.h"
#include "tensor/copy.h"

namespace sluice {
namespace {

std::int64_t align(std::int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}
std::int64_t words_of(std::int64_t vocab_size) {
  return (vocab_size + 31) / 32;
}

constexpr auto kRowBytes = static_cast<std::int64_t>(sizeof(ops::SampleRow));
// Where the bits begin.
std::int64_t bits_at(std::int64_t max_rows) {
  return align(4 * max_rows) + align(kRowBytes * max_rows);
}

}  // namespace

DeviceMasks::DeviceMasks(std::int64_t max_rows, std::int64_t vocab_size, Device device,
                         const Stream& stream)
    : stream_(stream),
      max_rows_(max_rows),
      words_(words_of(vocab_size)),
      memory_(bytes(max_rows, vocab_size), device),
      staging_(Buffer::staging(bytes(max_rows, vocab_size), device)),
      copies_(device),
      copied_(device),
      read_(device) {}

std::int64_t DeviceMasks::bytes(std::int64_t max_rows, std::int64_t vocab_size) {
  return bits_at(max_rows) + 4 * max_rows * words_of(vocab_size);
}

Tensor DeviceMasks::indices(const Buffer& memory, std::int64_t rows) const {
  return memory.tensor(DType::kI32, {rows});
}

Tensor DeviceMasks::sample_rows(const Buffer& memory, std::int64_t rows) const {
  return memory.tensor(DType::kU8, {rows, kRowBytes}, align(4 * max_rows_));
}

Tensor DeviceMasks::bits(const Buffer& memory, std::int64_t masks) const {
  return memory.tensor(DType::kI32, {masks, words_}, bits_at(max_rows_));
}

void DeviceMasks::put(const SampleInputs& inputs, std::span<const ops::SampleRow> rows,
                      std::int64_t num_rows) {
  num_masks_ = static_cast<std::int64_t>(inputs.masks.size());
  num_rows_ = num_rows;
  check(num_rows <= max_rows_ && num_masks_ > 0 && num_masks_ <= num_rows &&
            static_cast<std::int64_t>(rows.size()) <= num_rows,
        "{} masks and {} rows for {} rows of at most {}", num_masks_, rows.size(), num_rows,
        max_rows_);
  if (is_copying_) copied_.wait();
  const Tensor index = indices(staging_, num_rows), mask_bits = bits(staging_, num_masks_);
  std::fill_n(index.ptr<std::int32_t>(), num_rows, -1);
  for (std::int64_t i = 0; i < num_masks_; ++i) {
    const TokenMask& mask = inputs.masks[static_cast<std::size_t>(i)];
    check(mask.logit_row >= 0 && mask.logit_row < num_rows, "a mask for logit row {} of {}",
          mask.logit_row, num_rows);
    index.ptr<std::int32_t>()[mask.logit_row] = static_cast<std::int32_t>(i);
    auto* const words = static_cast<std::uint32_t*>(mask_bits.at(i).data);
    const std::size_t count = std::min(mask.bits.size(), static_cast<std::size_t>(words_));
    std::copy_n(mask.bits.begin(), count, words);
    std::fill(words + count, words + words_, 0u);
  }
  ops::SampleRow* const how = ops::as_sample_rows(sample_rows(staging_, num_rows));
  std::fill(std::ranges::copy(rows, how).out, how + num_rows, ops::SampleRow{});
  // Hazard: the stream may not have read those of the step before yet.
  if (is_read_) read_.hold(copies_);
  const auto used = [&](const Buffer& memory) {
    return memory.tensor(DType::kU8, {bits_at(max_rows_) + 4 * num_masks_ * words_});
  };
  copy(copies_, used(staging_), used(memory_));
  copied_.record(copies_);
  is_copying_ = true;
}

void DeviceMasks::apply(Context& ctx, const Tensor& logits) {
  copied_.hold(stream_);
  ops::mask_logits(ctx, indices(memory_, logits.dim(0)), bits(memory_, num_masks_), logits);
}

void DeviceMasks::release() {
  read_.record(stream_);
  is_read_ = true;
}

}  // namespace sluice
