#include "runtime/steps/batch_buffers.h"

#include <algorithm>
#include <numeric>
#include <utility>

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

// Whether a sampled row is not the only one of its sequence, which has drafts then.
bool has_neighbour(const Batch& batch, std::size_t row) {
  const auto sequence_of = [&](std::size_t i) {
    return batch.items[static_cast<std::size_t>(batch.logit_rows[i].item)].sequence;
  };
  const auto is_alike = [&](std::size_t i) {
    return i < batch.logit_rows.size() && batch.logit_rows[i].sample &&
           sequence_of(i) == sequence_of(row);
  };
  return (row > 0 && is_alike(row - 1)) || is_alike(row + 1);
}

}  // namespace

BatchBuffers::Layout BatchBuffers::lay_out(const BatchLimits& limits, std::int64_t tokens,
                                           std::int64_t seqs, std::int64_t logit_rows,
                                           std::int64_t moves, const Buffer* buffer) {
  Cursor cursor(buffer);
  Layout step;
  step.number = cursor.take(DType::kI64, {1});
  step.input_ids = cursor.take(DType::kI32, {tokens});
  step.positions = cursor.take(DType::kI32, {tokens});
  step.row_seq = cursor.take(DType::kI32, {tokens});
  step.seq_lens = cursor.take(DType::kI32, {seqs});
  step.prefix_lens = cursor.take(DType::kI32, {seqs});
  step.start_loc = cursor.take(DType::kI32, {seqs + 1});
  step.logit_rows = cursor.take(DType::kI32, {logit_rows});
  step.logit_slots = cursor.take(DType::kI32, {logit_rows});
  step.sample_rows = cursor.take(DType::kU8, {logit_rows, sizeof(ops::SampleRow)});
  step.logit_edits = cursor.take(DType::kU8, {logit_rows, sizeof(ops::LogitEdits)});
  if (limits.has_states) {
    const std::int64_t most = std::max(tokens, seqs);
    step.state_starts = cursor.take(DType::kI32, {most + 1});
    for (Tensor* each : {&step.state_prefixes, &step.state_slots, &step.state_sources})
      *each = cursor.take(DType::kI32, {most});
  }
  if (limits.kept_rows > 0) step.kept_slots = cursor.take(DType::kI64, {tokens});
  if (limits.has_sources) step.sources = cursor.take(DType::kI32, {tokens});
  if (limits.has_rounds) {
    step.round_slots = cursor.take(DType::kI32, {tokens});
    step.moved_slots = cursor.take(DType::kI32, {tokens});
    step.row_keys = cursor.take(DType::kU8, {tokens, sizeof(ops::RowKey)});
  }
  if (limits.draft_rows && limits.run_rows > 0)
    step.run_places = cursor.take(DType::kI32, {tokens});
  for (int g = 0; g < limits.num_groups; ++g)
    step.out_cache_locs.push_back(cursor.take(DType::kI64, {tokens}));
  for (int g = 0; moves > 0 && g < limits.num_groups; ++g)
    for (auto* slots : {&step.branch_from, &step.branch_to})
      slots->push_back(cursor.take(DType::kI64, {moves}));
  step.head_bytes = cursor.used();
  for (int g = 0; g < limits.num_groups; ++g)
    step.page_tables.push_back(cursor.take(DType::kI32, {seqs, limits.max_seq_pages}));
  step.bytes = cursor.used();
  return step;
}

BatchBuffers::BatchBuffers(const BatchLimits& limits, Device device, const Stream* stream)
    : limits_(limits), device_(device), stream_(stream) {
  const bool on_cpu = device.kind == DeviceKind::kCpu;
  const std::int64_t most = limits.max_seqs;
  const std::int64_t recorded_bytes =
      lay_out(limits, most, most, most, max_moves(most), nullptr).bytes;
  for (std::size_t i = 0; i < (on_cpu ? 1 : buffers_.size()); ++i)
    buffers_[i] = Buffer::staging(i < 2 ? bytes(limits) : recorded_bytes, device);
  if (!on_cpu) on_device_ = Buffer(bytes(limits), device);
  view_.groups.resize(static_cast<std::size_t>(limits.num_groups));
}

std::int64_t BatchBuffers::bytes(const BatchLimits& limits) {
  return lay_out(limits, limits.max_tokens, limits.max_seqs,
                 std::max(limits.max_logit_rows, limits.max_seqs),
                 max_branch_moves(limits.max_seqs, limits.tree_rows), nullptr)
      .bytes;
}

std::int64_t BatchBuffers::max_moves(std::int64_t rows) const {
  return max_branch_moves(rows, limits_.tree_rows);
}

Tensor BatchBuffers::twin(const Tensor& host) const {
  if (device_.kind == DeviceKind::kCpu) return host;
  Tensor there = host;
  there.device = device_;
  there.data = static_cast<std::byte*>(on_device_.data()) +
               (static_cast<const std::byte*>(host.data) -
                static_cast<const std::byte*>(buffers_[side_].data()));
  return there;
}

void BatchBuffers::upload(const Tensor& host) const {
  if (device_.kind != DeviceKind::kCpu && host.numel() > 0) copy(*stream_, host, twin(host));
}

void BatchBuffers::upload_all() const {
  upload(buffers_[side_].tensor(DType::kU8, {host_.bytes}));
}

std::size_t BatchBuffers::next_side() {
  if (device_.kind != DeviceKind::kCpu) turn_ = 1 - turn_;
  return turn_;
}

void BatchBuffers::set_views(std::int64_t tokens, std::int64_t seqs, std::int64_t logit_rows,
                             std::int64_t moves, std::size_t side) {
  check(tokens <= limits_.max_tokens && seqs <= limits_.max_seqs,
        "a step of {} tokens and {} sequences; the buffers hold {} and {}", tokens, seqs,
        limits_.max_tokens, limits_.max_seqs);
  check(moves <= max_moves(limits_.max_seqs), "{} moves of branches; the buffers hold {}", moves,
        max_moves(limits_.max_seqs));
  side_ = side;
  host_ = lay_out(limits_, tokens, seqs, logit_rows, moves, &buffers_[side]);
  view_.num_tokens = tokens;
  view_.num_seqs = seqs;
  view_.input_ids = twin(host_.input_ids);
  view_.positions = twin(host_.positions);
  view_.row_seq = twin(host_.row_seq);
  view_.seq_lens = twin(host_.seq_lens);
  view_.extend_prefix_lens = twin(host_.prefix_lens);
  view_.extend_start_loc = twin(host_.start_loc);
  if (limits_.has_states) set_state_views(seqs, false);
  for (std::size_t g = 0; g < view_.groups.size(); ++g) {
    view_.groups[g].host_page_table = host_.page_tables[g];
    view_.groups[g].page_table = twin(host_.page_tables[g]);
    view_.groups[g].out_cache_loc = twin(host_.out_cache_locs[g]);
    view_.groups[g].branch_from = moves > 0 ? twin(host_.branch_from[g]) : Tensor{};
    view_.groups[g].branch_to = moves > 0 ? twin(host_.branch_to[g]) : Tensor{};
  }
  const auto count = static_cast<std::size_t>(seqs);
  view_.host_seq_lens = {host_.seq_lens.ptr<std::int32_t>(), count};
  view_.host_extend_prefix_lens = {host_.prefix_lens.ptr<std::int32_t>(), count};
  view_.host_extend_start_loc = {host_.start_loc.ptr<std::int32_t>(), count + 1};
}

void BatchBuffers::set_state_views(std::int64_t seqs, bool has_drafts) {
  view_.state_rows = {.start_loc = twin(host_.state_starts.rows(0, seqs + 1)),
                      .prefix_lens = twin(host_.state_prefixes.rows(0, seqs)),
                      .state_slots = twin(host_.state_slots.rows(0, seqs))};
  if (has_drafts) view_.state_rows.state_sources = twin(host_.state_sources.rows(0, seqs));
}

// An item is a sequence, but behind each draft lies another state: that of the draft.
void BatchBuffers::put_states(const Batch& batch) {
  auto* starts = host_.state_starts.ptr<std::int32_t>();
  auto* prefixes = host_.state_prefixes.ptr<std::int32_t>();
  auto* slots = host_.state_slots.ptr<std::int32_t>();
  auto* sources = host_.state_sources.ptr<std::int32_t>();
  const std::size_t num_items = batch.items.size();
  check(batch.state_slots.size() >= num_items, "{} states for {} sequences",
        batch.state_slots.size(), num_items);
  std::size_t next_draft = num_items;
  std::int32_t row = 0, seqs = 0;
  for (std::size_t i = 0; i < num_items; ++i) {
    const BatchItem& item = batch.items[i];
    // Items of draft rows (runtime/steps/row_batch.h) continue the item before.
    const bool continues = has_draft_rows(batch) && i > 0 && item.slot == batch.items[i - 1].slot;
    const std::int32_t drafts = item.decode ? item.count - 1 : 0;
    for (std::int32_t k = 0; k <= drafts; ++k, ++seqs) {
      starts[seqs] = row;
      prefixes[seqs] = item.first + k;
      const std::size_t place = k > 0 ? next_draft++ : i;
      check(place < batch.state_slots.size(), "{} states for {} sequences and their drafts",
            batch.state_slots.size(), num_items);
      slots[seqs] = batch.state_slots[place];
      sources[seqs] = slots[k > 0 || continues ? seqs - 1 : seqs];
      row += item.decode ? 1 : item.count;
    }
  }
  starts[seqs] = row;
  check(next_draft == batch.state_slots.size(), "{} states for {} sequences and drafts",
        batch.state_slots.size(), next_draft);
  set_state_views(seqs, seqs > std::ssize(batch.items) || has_draft_rows(batch));
}

// The rows of the batch into the tensors of the current side.
void BatchBuffers::fill_rows(const Batch& batch, const RowInfo& info) {
  const auto seqs = static_cast<std::int64_t>(batch.items.size());
  check(batch.groups.size() == view_.groups.size() || seqs == 0,
        "{} page groups in the batch, {} in the pool", batch.groups.size(), view_.groups.size());
  auto* ids = host_.input_ids.ptr<std::int32_t>();
  auto* positions = host_.positions.ptr<std::int32_t>();
  auto* row_seq = host_.row_seq.ptr<std::int32_t>();
  auto* start = host_.start_loc.ptr<std::int32_t>();
  std::int32_t row = 0;
  start[0] = 0;
  for (std::int32_t s = 0; s < seqs; ++s) {
    const BatchItem& item = batch.items[static_cast<std::size_t>(s)];
    check(item.count > 0 && row + item.count <= batch.num_tokens(), "item {} has {} tokens", s,
          item.count);
    host_.seq_lens.ptr<std::int32_t>()[s] = item.first + item.count;
    host_.prefix_lens.ptr<std::int32_t>()[s] = item.first;
    for (std::int32_t i = 0; i < item.count; ++i, ++row) {
      const std::int32_t token = batch.token_ids[static_cast<std::size_t>(row)];
      ids[row] = token == kTokenFromSlot  ? info.token_of_slot(item.slot)
                 : token < kTokenFromSlot ? info.draft_of_slot(item.slot, kDraftFromSlot - token)
                                          : token;
      positions[row] = item.first + i;
      row_seq[row] = s;
    }
    start[s + 1] = row;
    view_.max_seq_len = std::max<std::int64_t>(view_.max_seq_len, item.first + item.count);
    view_.max_extend_len = std::max<std::int64_t>(view_.max_extend_len, item.count);
  }
  check(row == batch.num_tokens(), "{} tokens in the items, {} in the batch", row,
        batch.num_tokens());

  if (limits_.has_states) put_states(batch);
  for (std::size_t g = 0; g < view_.groups.size() && seqs > 0; ++g) {
    const PageRows& rows = batch.groups[g];
    auto* slots = host_.out_cache_locs[g].ptr<std::int64_t>();
    for (std::int32_t s = 0; s < seqs; ++s) {
      auto* table = host_.page_tables[g].ptr<std::int32_t>() + s * limits_.max_seq_pages;
      const std::int32_t count = rows.offsets[s + 1] - rows.offsets[s];
      check(count <= limits_.max_seq_pages, "a sequence of {} pages; {} at most", count,
            limits_.max_seq_pages);
      std::copy_n(rows.pages.begin() + rows.offsets[s], count, table);
      std::fill(table + count, table + limits_.max_seq_pages, -1);
      for (std::int32_t r = start[s]; r < start[s + 1]; ++r) {
        const std::int32_t page = table[positions[r] / kPageSize];
        check(page >= 0, "position {} of item {} has no page in group {}", positions[r], s, g);
        slots[r] = std::int64_t{page} * kPageSize + positions[r] % kPageSize;
      }
    }
  }
}

void BatchBuffers::put_logit_rows(const Batch& batch, std::int64_t first, std::int64_t count,
                                  const RowInfo& info) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::size_t>(first + i);
    const LogitRow& row = batch.logit_rows[index];
    const std::int32_t slot = batch.items[static_cast<std::size_t>(row.item)].slot;
    host_.logit_rows.ptr<std::int32_t>()[i] = row.row;
    // In a round of the draft the device leaves one row of a sequence its slot.
    const bool has_slot = (limits_.has_sources && batch.is_round) || !has_neighbour(batch, index);
    host_.logit_slots.ptr<std::int32_t>()[i] = row.sample && has_slot ? slot : -1;
    ops::as_sample_rows(host_.sample_rows)[i] =
        info.sample_row_of ? info.sample_row_of(row, slot) : ops::SampleRow{};
    ops::as_logit_edits(host_.logit_edits)[i] =
        info.logit_edits_of ? info.logit_edits_of(row, slot) : ops::LogitEdits{};
  }
}

void BatchBuffers::set_logit_views(std::int64_t count) {
  view_.logit_rows = twin(host_.logit_rows.rows(0, count));
  sampling_.logit_slots = twin(host_.logit_slots.rows(0, count));
  sampling_.sample_rows = twin(host_.sample_rows.rows(0, count));
  sampling_.logit_edits = twin(host_.logit_edits.rows(0, count));
}

void BatchBuffers::put_kept_slots(const RowInfo& info, std::int64_t num_rows) {
  if (limits_.kept_rows == 0) return;
  auto* const slots = host_.kept_slots.ptr<std::int64_t>();
  std::fill_n(slots, host_.kept_slots.dim(0), limits_.kept_rows);
  if (info.first_kept) std::iota(slots, slots + num_rows, *info.first_kept);
  kept_slots_ = twin(host_.kept_slots);
}

void BatchBuffers::put_sources(const RowInfo& info) {
  if (!limits_.has_sources) return;
  auto* const rows = host_.sources.ptr<std::int32_t>();
  check(std::cmp_less_equal(info.sources.size(), host_.sources.dim(0)), "{} sources of {} rows",
        info.sources.size(), host_.sources.dim(0));
  std::fill(std::ranges::copy(info.sources, rows).out, rows + host_.sources.dim(0), 0);
  sources_ = twin(host_.sources);
}

// Rows of drafts. A row is an item, and has a row of logits.
void BatchBuffers::put_rounds(const Batch& batch, const RowInfo& info, std::int64_t num_rows) {
  if (!limits_.has_rounds) return;
  for (const Tensor* slots : {&host_.round_slots, &host_.moved_slots})
    std::fill_n(slots->ptr<std::int32_t>(), slots->dim(0), -1);
  round_slots_ = twin(host_.round_slots);
  if (!batch.is_round) return;
  auto* const round = host_.round_slots.ptr<std::int32_t>();
  auto* const moved = host_.moved_slots.ptr<std::int32_t>();
  for (std::int64_t i = 0; i < num_rows; ++i) {
    const BatchItem& item = batch.items[static_cast<std::size_t>(i)];
    round[i] = item.slot;
    if (item.is_ahead) moved[i] = item.slot;
    if (info.row_key_of)
      ops::as_row_keys(host_.row_keys)[i] =
          info.row_key_of(batch.logit_rows[static_cast<std::size_t>(i)], item.slot);
  }
  if (!info.moved_slots.empty()) std::ranges::copy(info.moved_slots, moved);
}

ops::RowPlaces BatchBuffers::places() const {
  ops::RowPlaces out{.slots = twin(host_.moved_slots),
                     .positions = view_.positions,
                     .seq_lens = view_.seq_lens,
                     .page_tables = {},
                     .out_cache_locs = {}};
  for (const GroupView& group : view_.groups) {
    out.page_tables.push_back(group.page_table);
    out.out_cache_locs.push_back(group.out_cache_loc);
  }
  if (!limits_.has_sources) {
    out.row_keys = twin(host_.row_keys);
    out.sample_rows = sampling_.sample_rows;
  }
  return out;
}

// Of a chain's rows, which are items that continue the item before. Padding is alone.
void BatchBuffers::put_run_places(const Batch& batch, const BranchMoves* moves) {
  view_.row_runs = {};
  if (limits_.run_rows == 0 || !has_draft_rows(batch) || moves != nullptr) return;
  check(batch.num_tokens() == std::ssize(batch.items), "{} rows of drafts in {} items",
        batch.num_tokens(), batch.items.size());
  auto* const places = host_.run_places.ptr<std::int32_t>();
  std::fill_n(places, host_.run_places.dim(0), 0);
  for (std::size_t i = 1; i < batch.items.size(); ++i) {
    const BatchItem &item = batch.items[i], &before = batch.items[i - 1];
    if (item.sequence != before.sequence) continue;
    check(item.first == before.first + 1, "a draft at {} behind a row at {}", item.first,
          before.first);
    places[i] = places[i - 1] + 1;
    check(places[i] < limits_.run_rows, "a sequence of more than {} rows", limits_.run_rows);
  }
  view_.row_runs = {.places = twin(host_.run_places), .longest = limits_.run_rows};
}

// Behind the moves, null for none, spare slots move to themselves.
void BatchBuffers::set_moves(const BranchMoves* moves, std::span<const std::int32_t> spare_pages) {
  for (std::size_t g = 0; g < host_.branch_from.size(); ++g) {
    const auto put = [&](const std::vector<std::int64_t>* slots, const Tensor& place) {
      const auto count = static_cast<std::size_t>(place.dim(0));
      const std::size_t given = slots ? slots->size() : 0;
      check(given <= count && (given == count || g < spare_pages.size()),
            "{} moves of branches; the step holds {}", given, count);
      auto* const out = place.ptr<std::int64_t>();
      if (given > 0) std::ranges::copy(*slots, out);
      if (given < count)
        std::fill(out + given, out + count, std::int64_t{spare_pages[g]} * kPageSize);
    };
    put(moves ? &moves->from[g] : nullptr, host_.branch_from[g]);
    put(moves ? &moves->to[g] : nullptr, host_.branch_to[g]);
  }
}

const ForwardBatch& BatchBuffers::fill(const Batch& batch, const RowInfo& info,
                                       const BranchMoves* moves) {
  set_views(batch.num_tokens(), static_cast<std::int64_t>(batch.items.size()),
            limits_.max_logit_rows, moves ? std::ssize(moves->from.front()) : 0, next_side());
  view_.mode = batch.mode;
  view_.has_draft_rows = has_draft_rows(batch) || moves != nullptr;
  set_moves(moves, {});
  put_run_places(batch, moves);
  view_.num_extend_seqs =
      std::count_if(batch.items.begin(), batch.items.end(), [](auto& i) { return !i.decode; });
  view_.max_seq_len = view_.max_extend_len = 0;
  fill_rows(batch, info);
  const std::int64_t count = std::min<std::int64_t>(
      static_cast<std::int64_t>(batch.logit_rows.size()), limits_.max_logit_rows);
  put_logit_rows(batch, 0, count, info);
  put_rounds({}, {}, 0);
  set_logit_views(count);
  upload_all();
  return view_;
}

const ForwardBatch& BatchBuffers::fill_padded(const Batch& batch, const RowInfo& info,
                                              std::int64_t num_seqs,
                                              std::span<const std::int32_t> spare_pages,
                                              std::int64_t context_length, bool recorded,
                                              const BranchMoves* moves) {
  const auto real = static_cast<std::int64_t>(batch.items.size());
  check(real == batch.num_tokens() && real == static_cast<std::int64_t>(batch.logit_rows.size()) &&
            real <= num_seqs && num_seqs <= limits_.max_logit_rows &&
            spare_pages.size() == view_.groups.size() + limits_.has_states,
        "a batch of {} items, {} tokens and {} logit rows is not a decode batch of at most {}",
        real, batch.num_tokens(), batch.logit_rows.size(), num_seqs);
  check(moves == nullptr || has_draft_rows(batch), "moves of branches in a step without drafts");
  set_views(num_seqs, num_seqs, num_seqs, has_draft_rows(batch) ? max_moves(num_seqs) : 0,
            recorded ? 2 + static_cast<std::size_t>(num_replayed_ % 2) : next_side());
  *host_.number.ptr<std::int64_t>() = num_replayed_;
  view_.mode = batch.mode;
  view_.has_draft_rows = has_draft_rows(batch);
  set_moves(moves, spare_pages);
  put_run_places(batch, moves);
  view_.num_extend_seqs = 0;
  fill_rows(batch, info);
  put_logit_rows(batch, 0, real, info);
  put_kept_slots(info, real);
  put_sources(info);
  put_rounds(batch, info, real);
  host_.start_loc.ptr<std::int32_t>()[0] = 0;
  for (std::int64_t s = real; s < num_seqs; ++s) {
    for (const Tensor* zero : {&host_.input_ids, &host_.positions, &host_.prefix_lens})
      zero->ptr<std::int32_t>()[s] = 0;
    host_.row_seq.ptr<std::int32_t>()[s] = host_.logit_rows.ptr<std::int32_t>()[s] =
        static_cast<std::int32_t>(s);
    host_.seq_lens.ptr<std::int32_t>()[s] = 1;
    host_.start_loc.ptr<std::int32_t>()[s + 1] = static_cast<std::int32_t>(s + 1);
    host_.logit_slots.ptr<std::int32_t>()[s] = -1;
    ops::as_sample_rows(host_.sample_rows)[s] = {};
    ops::as_logit_edits(host_.logit_edits)[s] = {};
    if (limits_.has_states) {
      host_.state_starts.ptr<std::int32_t>()[s + 1] = static_cast<std::int32_t>(s + 1);
      host_.state_prefixes.ptr<std::int32_t>()[s] = 0;
      for (const Tensor* states : {&host_.state_slots, &host_.state_sources})
        states->ptr<std::int32_t>()[s] = spare_pages.back();
    }
    for (std::size_t g = 0; g < view_.groups.size(); ++g) {
      auto* table = host_.page_tables[g].ptr<std::int32_t>() + s * limits_.max_seq_pages;
      std::fill_n(table, limits_.max_seq_pages, -1);
      table[0] = spare_pages[g];
      host_.out_cache_locs[g].ptr<std::int64_t>()[s] = std::int64_t{spare_pages[g]} * kPageSize;
    }
  }
  if (limits_.has_states) set_state_views(num_seqs, view_.has_draft_rows);
  view_.max_seq_len = context_length;
  view_.max_extend_len = 1;
  set_logit_views(num_seqs);
  if (!recorded) upload_all();
  return view_;
}

ops::StepInputs BatchBuffers::step_inputs(const Tensor& counter, const Tensor& slot_tokens) const {
  ops::StepInputs out;
  for (std::size_t i = 0; i < 2; ++i)
    out.sides[i] = buffers_[2 + i].tensor(DType::kU8, {host_.bytes});
  out.counter = counter;
  out.inputs = on_device_.tensor(DType::kU8, {host_.head_bytes});
  out.ids = view_.input_ids;
  out.seq_lens = view_.seq_lens;
  for (const Tensor& table : host_.page_tables) out.page_tables.push_back(twin(table));
  out.slot_tokens = slot_tokens;
  return out;
}

const ForwardBatch& BatchBuffers::set_logit_rows(const Batch& batch, std::int64_t first,
                                                 std::int64_t count) {
  put_logit_rows(batch, first, count, {});
  set_logit_views(count);
  // The token ids stay as the forward left them.
  for (const Tensor* changed :
       {&host_.logit_rows, &host_.logit_slots, &host_.sample_rows, &host_.logit_edits})
    upload(*changed);
  return view_;
}

const ForwardBatch& BatchBuffers::fill_largest(bool decode, std::int64_t context_length) {
  const std::int64_t seqs = limits_.max_seqs;
  const std::int64_t tokens = decode ? seqs : limits_.max_tokens;
  set_views(tokens, seqs, limits_.max_logit_rows, 0, next_side());
  view_.mode = decode ? ForwardMode::kDecode : ForwardMode::kMixed;
  view_.row_runs = {};
  view_.num_extend_seqs = decode ? 0 : 1;
  const auto length = static_cast<std::int32_t>(context_length);
  for (std::int64_t s = 0; s < seqs; ++s) {
    // The first sequence takes what the others, with a row each, leave of the tokens.
    const std::int64_t rows = decode || s > 0 ? 1 : tokens - (seqs - 1);
    host_.seq_lens.ptr<std::int32_t>()[s] = length;
    host_.prefix_lens.ptr<std::int32_t>()[s] =
        static_cast<std::int32_t>(std::max<std::int64_t>(0, length - rows));
    host_.start_loc.ptr<std::int32_t>()[s] =
        static_cast<std::int32_t>(s == 0 ? 0 : tokens - seqs + s);
  }
  host_.start_loc.ptr<std::int32_t>()[seqs] = static_cast<std::int32_t>(tokens);
  view_.max_seq_len = context_length;
  view_.max_extend_len = decode ? 1 : tokens - (seqs - 1);
  view_.logit_rows = twin(host_.logit_rows.rows(0, std::min(limits_.max_logit_rows, tokens)));
  return view_;
}

}  // namespace sluice
