#include "runtime/batch_buffers.h"

#include <algorithm>

#include "base/error.h"
#include "tensor/copy.h"

namespace sluice {
namespace {

// Hands out aligned parts of a size or of a buffer.
class Cursor {
 public:
  explicit Cursor(const Buffer* buffer) : buffer_(buffer) {}

  Tensor take(DType dtype, std::initializer_list<std::int64_t> shape) {
    Tensor sized = Tensor::dense(nullptr, dtype, shape);
    const std::int64_t offset = used_;
    used_ += (sized.bytes() + 63) / 64 * 64;
    return buffer_ ? buffer_->tensor(dtype, shape, offset) : sized;
  }
  std::int64_t used() const { return used_; }

 private:
  const Buffer* buffer_;
  std::int64_t used_ = 0;
};

}  // namespace

BatchBuffers::BatchBuffers(const BatchLimits& limits, Device device, const Stream* stream)
    : limits_(limits), device_(device), stream_(stream), buffer_(Buffer::staging(bytes(limits), device)) {
  if (device.kind != DeviceKind::kCpu) on_device_ = Buffer(bytes(limits), device);
  Cursor cursor(&buffer_);
  input_ids_ = cursor.take(DType::kI32, {limits.max_tokens});
  positions_ = cursor.take(DType::kI32, {limits.max_tokens});
  row_seq_ = cursor.take(DType::kI32, {limits.max_tokens});
  seq_lens_ = cursor.take(DType::kI32, {limits.max_seqs});
  prefix_lens_ = cursor.take(DType::kI32, {limits.max_seqs});
  start_loc_ = cursor.take(DType::kI32, {limits.max_seqs + 1});
  logit_rows_ = cursor.take(DType::kI32, {limits.max_logit_rows});
  for (int g = 0; g < limits.num_groups; ++g) {
    page_tables_.push_back(cursor.take(DType::kI32, {limits.max_seqs, limits.max_seq_pages}));
    out_cache_locs_.push_back(cursor.take(DType::kI64, {limits.max_tokens}));
  }
  view_.groups.resize(limits.num_groups);
}

std::int64_t BatchBuffers::bytes(const BatchLimits& limits) {
  Cursor cursor(nullptr);
  for (int i = 0; i < 3; ++i) cursor.take(DType::kI32, {limits.max_tokens});
  for (int i = 0; i < 2; ++i) cursor.take(DType::kI32, {limits.max_seqs});
  cursor.take(DType::kI32, {limits.max_seqs + 1});
  cursor.take(DType::kI32, {limits.max_logit_rows});
  for (int g = 0; g < limits.num_groups; ++g) {
    cursor.take(DType::kI32, {limits.max_seqs, limits.max_seq_pages});
    cursor.take(DType::kI64, {limits.max_tokens});
  }
  return cursor.used();
}

Tensor BatchBuffers::twin(const Tensor& host) const {
  if (device_.kind == DeviceKind::kCpu) return host;
  Tensor there = host;
  there.device = device_;
  there.data = static_cast<std::byte*>(on_device_.data()) +
               (static_cast<const std::byte*>(host.data) - static_cast<const std::byte*>(buffer_.data()));
  return there;
}

void BatchBuffers::upload() const {
  if (device_.kind == DeviceKind::kCpu) return;
  copy(*stream_, buffer_.tensor(DType::kU8, {buffer_.bytes()}), on_device_.tensor(DType::kU8, {on_device_.bytes()}));
}

void BatchBuffers::set_views(std::int64_t tokens, std::int64_t seqs) {
  check(tokens <= limits_.max_tokens && seqs <= limits_.max_seqs,
        "a step of {} tokens and {} sequences; the buffers hold {} and {}", tokens, seqs, limits_.max_tokens,
        limits_.max_seqs);
  view_.num_tokens = tokens;
  view_.num_seqs = seqs;
  view_.input_ids = twin(input_ids_.rows(0, tokens));
  view_.positions = twin(positions_.rows(0, tokens));
  view_.row_seq = twin(row_seq_.rows(0, tokens));
  view_.seq_lens = twin(seq_lens_.rows(0, seqs));
  view_.extend_prefix_lens = twin(prefix_lens_.rows(0, seqs));
  view_.extend_start_loc = twin(start_loc_.rows(0, seqs + 1));
  for (int g = 0; g < limits_.num_groups; ++g) {
    view_.groups[g].host_page_table = page_tables_[g].rows(0, seqs);
    view_.groups[g].page_table = twin(page_tables_[g].rows(0, seqs));
    view_.groups[g].out_cache_loc = twin(out_cache_locs_[g].rows(0, tokens));
  }
  const auto count = static_cast<std::size_t>(seqs);
  view_.host_seq_lens = {seq_lens_.ptr<std::int32_t>(), count};
  view_.host_extend_prefix_lens = {prefix_lens_.ptr<std::int32_t>(), count};
  view_.host_extend_start_loc = {start_loc_.ptr<std::int32_t>(), count + 1};
}

const ForwardBatch& BatchBuffers::fill(const Batch& batch, const Sampler& sampler) {
  const auto seqs = static_cast<std::int64_t>(batch.items.size());
  set_views(batch.num_tokens(), seqs);
  view_.mode = batch.mode;
  view_.num_extend_seqs = std::count_if(batch.items.begin(), batch.items.end(), [](auto& i) { return !i.decode; });
  view_.max_seq_len = view_.max_extend_len = 0;
  check(static_cast<int>(batch.groups.size()) == limits_.num_groups || seqs == 0, "{} page groups in the batch, {} in the pool",
        batch.groups.size(), limits_.num_groups);

  auto* ids = input_ids_.ptr<std::int32_t>();
  auto* positions = positions_.ptr<std::int32_t>();
  auto* row_seq = row_seq_.ptr<std::int32_t>();
  auto* start = start_loc_.ptr<std::int32_t>();
  std::int32_t row = 0;
  start[0] = 0;
  for (std::int32_t s = 0; s < seqs; ++s) {
    const BatchItem& item = batch.items[s];
    check(item.count > 0 && row + item.count <= batch.num_tokens(), "item {} has {} tokens", s, item.count);
    seq_lens_.ptr<std::int32_t>()[s] = item.first + item.count;
    prefix_lens_.ptr<std::int32_t>()[s] = item.first;
    for (std::int32_t i = 0; i < item.count; ++i, ++row) {
      const std::int32_t token = batch.token_ids[row];
      ids[row] = token == kTokenFromSlot ? sampler.last_token(item.slot) : token;
      positions[row] = item.first + i;
      row_seq[row] = s;
    }
    start[s + 1] = row;
    view_.max_seq_len = std::max<std::int64_t>(view_.max_seq_len, item.first + item.count);
    view_.max_extend_len = std::max<std::int64_t>(view_.max_extend_len, item.count);
  }
  check(row == batch.num_tokens(), "{} tokens in the items, {} in the batch", row, batch.num_tokens());

  for (int g = 0; g < limits_.num_groups && seqs > 0; ++g) {
    const PageRows& rows = batch.groups[g];
    auto* slots = out_cache_locs_[g].ptr<std::int64_t>();
    for (std::int32_t s = 0; s < seqs; ++s) {
      auto* table = page_tables_[g].ptr<std::int32_t>() + s * limits_.max_seq_pages;
      const std::int32_t count = rows.offsets[s + 1] - rows.offsets[s];
      check(count <= limits_.max_seq_pages, "a sequence of {} pages; {} at most", count, limits_.max_seq_pages);
      std::copy_n(rows.pages.begin() + rows.offsets[s], count, table);
      std::fill(table + count, table + limits_.max_seq_pages, -1);
      for (std::int32_t r = start[s]; r < start[s + 1]; ++r) {
        const std::int32_t page = table[positions[r] / kPageSize];
        check(page >= 0, "position {} of item {} has no page in group {}", positions[r], s, g);
        slots[r] = std::int64_t{page} * kPageSize + positions[r] % kPageSize;
      }
    }
  }
  return set_logit_rows(batch, 0, std::min<std::int64_t>(batch.logit_rows.size(), limits_.max_logit_rows));
}

const ForwardBatch& BatchBuffers::set_logit_rows(const Batch& batch, std::int64_t first, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) logit_rows_.ptr<std::int32_t>()[i] = batch.logit_rows[first + i].row;
  view_.logit_rows = twin(logit_rows_.rows(0, count));
  upload();
  return view_;
}

const ForwardBatch& BatchBuffers::fill_largest(bool decode, std::int64_t context_length) {
  const std::int64_t seqs = limits_.max_seqs;
  const std::int64_t tokens = decode ? seqs : limits_.max_tokens;
  set_views(tokens, seqs);
  view_.mode = decode ? ForwardMode::kDecode : ForwardMode::kMixed;
  view_.num_extend_seqs = decode ? 0 : 1;
  const auto length = static_cast<std::int32_t>(context_length);
  for (std::int64_t s = 0; s < seqs; ++s) {
    // The first sequence takes what the others, with a row each, leave of the tokens.
    const std::int64_t rows = decode || s > 0 ? 1 : tokens - (seqs - 1);
    seq_lens_.ptr<std::int32_t>()[s] = length;
    prefix_lens_.ptr<std::int32_t>()[s] = static_cast<std::int32_t>(std::max<std::int64_t>(0, length - rows));
    start_loc_.ptr<std::int32_t>()[s] = static_cast<std::int32_t>(s == 0 ? 0 : tokens - seqs + s);
  }
  start_loc_.ptr<std::int32_t>()[seqs] = static_cast<std::int32_t>(tokens);
  view_.max_seq_len = context_length;
  view_.max_extend_len = decode ? 1 : tokens - (seqs - 1);
  view_.logit_rows = twin(logit_rows_.rows(0, std::min(limits_.max_logit_rows, tokens)));
  return view_;
}

}  // namespace sluice
