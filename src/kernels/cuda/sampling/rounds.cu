// Rounds of drafts that stay on the device. Rows are few: a thread has one row, or the rows of one
// slot.
#include "base/page_size.h"
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/sampling/rounds.h"
#include "kernels/types/op_params.h"
#include "kernels/types/uniform.h"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 128;

struct PlaceArgs {
  const std::int32_t *slots, *moved, *last_rows;
  std::int64_t rows, num_slots;
  std::int32_t *positions, *seq_lens;
  int groups;
  const std::int32_t* tables[ops::kMaxPlaceGroups];
  std::int64_t table_pages[ops::kMaxPlaceGroups];
  std::int64_t* locs[ops::kMaxPlaceGroups];
  const ops::RowKey* row_keys;
  ops::SampleRow* sample_rows;
  std::int32_t *logit_slots, *sources;
};

__global__ void __launch_bounds__(kThreads) place_kernel(const __grid_constant__ PlaceArgs args) {
  begin_dependent();
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= args.rows) return;
  const std::int32_t slot = args.slots[i];
  if (slot < 0) return;
  expect_below(slot, args.num_slots);
  const std::int32_t back = args.moved[slot], last = args.last_rows[slot];
  const std::int32_t position = args.positions[i] - back;
  args.positions[i] = position;
  args.seq_lens[i] -= back;
  for (int g = 0; g < args.groups; ++g) {
    expect_below(position / kPageSize, args.table_pages[g]);
    const std::int64_t page = args.tables[g][i * args.table_pages[g] + position / kPageSize];
    args.locs[g][i] = page * kPageSize + position % kPageSize;
  }
  if (args.sample_rows != nullptr)
    args.sample_rows[i].uniform =
        draw::uniform_at(args.row_keys[i].seed, args.row_keys[i].position - back);
  if (args.logit_slots != nullptr && last != i) args.logit_slots[i] = -1;
  if (args.sources != nullptr) args.sources[i] = last;
}

struct AcceptArgs {
  const std::int32_t *slots, *moved, *ids;
  std::int64_t rows, num_slots;
  std::int32_t *tokens, *next_tokens, *slot_tokens;
  std::int32_t *wrong, *wrong_first, *wrong_next, *last_rows;
  const double* chances;
  std::int64_t num_chances;
  const ops::RowKey* row_keys;
};

// One thread for the rows of a slot, which the first of them does.
__global__ void __launch_bounds__(kThreads) accept_kernel(const __grid_constant__ AcceptArgs args) {
  begin_dependent();
  const std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (first >= args.rows) return;
  const std::int32_t slot = args.slots[first];
  if (slot < 0 || (first > 0 && args.slots[first - 1] == slot)) return;
  expect_below(slot, args.num_slots);
  std::int64_t end = first + 1;
  while (end < args.rows && args.slots[end] == slot) ++end;
  const std::int32_t before = args.moved[first] < 0 ? 0 : args.wrong[slot];
  std::int64_t last = first;
  for (; last + 1 < end && args.tokens[last + 1] >= 0; ++last) {
    if (args.chances != nullptr) {
      const std::int64_t place = last - first;
      const ops::RowKey& key = args.row_keys[last + 1];
      const bool is_right =
          place < args.num_chances &&
          draw::uniform_at(key.seed, -(key.position - before)) < args.chances[place];
      args.tokens[last] = ops::pretended_token(args.ids, first, end, last + 1, is_right);
    }
    if (args.tokens[last] != args.ids[last + 1]) break;
  }
  for (std::int64_t i = last + 1; i < end; ++i) args.tokens[i] = ops::kBehindWrongDraft;
  for (std::int64_t i = first; i < end; ++i) args.next_tokens[i] = max(args.tokens[i], 0);
  const auto wrong = static_cast<std::int32_t>(end - 1 - last);
  args.wrong[slot] = wrong;
  args.wrong_first[slot] = before;
  args.wrong_next[slot] = before + wrong;
  args.last_rows[slot] = static_cast<std::int32_t>(last);
  args.slot_tokens[slot] = max(args.tokens[last], 0);
}

__global__ void __launch_bounds__(kThreads)
    put_kernel(const std::int32_t* tokens, const std::int32_t* slots, const std::int32_t* places,
               std::int64_t rows, const std::int32_t* map, std::int64_t num_mapped,
               std::int32_t* slot_tokens, std::int64_t num_slots) {
  begin_dependent();
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= rows || slots[i] < 0 || places[i] < 0) return;
  expect_below(slots[i], num_slots);
  const std::int32_t token = max(tokens[i], 0);
  if (map != nullptr) expect_below(token, num_mapped);
  slot_tokens[slots[i]] = map != nullptr ? map[token] : token;
}

template <class T>
T* data_of(const Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.data) : nullptr;
}

}  // namespace

void place_rows(Context& ctx, const ops::RowPlaces& rows, const Tensor& moved,
                const Tensor& last_rows) {
  if (rows.slots.dim(0) == 0) return;
  PlaceArgs args{};
  args.slots = rows.slots.ptr<std::int32_t>();
  args.moved = moved.ptr<std::int32_t>();
  args.last_rows = last_rows.ptr<std::int32_t>();
  args.rows = rows.slots.dim(0);
  args.num_slots = moved.dim(0);
  args.positions = rows.positions.ptr<std::int32_t>();
  args.seq_lens = rows.seq_lens.ptr<std::int32_t>();
  for (std::size_t g = 0; g < rows.page_tables.size(); ++g) {
    args.tables[g] = rows.page_tables[g].ptr<std::int32_t>();
    args.table_pages[g] = rows.page_tables[g].dim(1);
    args.locs[g] = rows.out_cache_locs[g].ptr<std::int64_t>();
    ++args.groups;
  }
  args.row_keys = data_of<ops::RowKey>(rows.row_keys);
  args.sample_rows = data_of<ops::SampleRow>(rows.sample_rows);
  args.logit_slots = data_of<std::int32_t>(rows.logit_slots);
  args.sources = data_of<std::int32_t>(rows.sources);
  launch_dependent(ctx, "place_rows", place_kernel, blocks_for(args.rows, kThreads), kThreads, 0,
                   args);
}

void accept_drafts(Context& ctx, const ops::RoundRows& rows, const ops::RoundState& state) {
  if (rows.slots.dim(0) == 0) return;
  AcceptArgs args{};
  args.slots = rows.slots.ptr<std::int32_t>();
  args.moved = rows.moved.ptr<std::int32_t>();
  args.ids = rows.ids.ptr<std::int32_t>();
  args.rows = rows.slots.dim(0);
  args.num_slots = state.wrong.dim(0);
  args.tokens = rows.tokens.ptr<std::int32_t>();
  args.next_tokens = rows.next_tokens.ptr<std::int32_t>();
  args.slot_tokens = rows.slot_tokens.ptr<std::int32_t>();
  args.wrong = state.wrong.ptr<std::int32_t>();
  args.wrong_first = state.wrong_first.ptr<std::int32_t>();
  args.wrong_next = state.wrong_next.ptr<std::int32_t>();
  args.last_rows = state.last_rows.ptr<std::int32_t>();
  args.chances = data_of<const double>(rows.chances);
  args.num_chances = rows.chances.defined() ? rows.chances.dim(0) : 0;
  args.row_keys = data_of<ops::RowKey>(rows.row_keys);
  launch_dependent(ctx, "accept_drafts", accept_kernel, blocks_for(args.rows, kThreads), kThreads,
                   0, args);
}

void put_draft_tokens(Context& ctx, const Tensor& tokens, const Tensor& slots, const Tensor& places,
                      const Tensor& map, const Tensor& slot_tokens) {
  if (tokens.dim(0) == 0) return;
  launch_dependent(ctx, "put_draft_tokens", put_kernel, blocks_for(tokens.dim(0), kThreads),
                   kThreads, 0, tokens.ptr<std::int32_t>(), slots.ptr<std::int32_t>(),
                   places.ptr<std::int32_t>(), tokens.dim(0), data_of<const std::int32_t>(map),
                   map.defined() ? map.dim(0) : 0, slot_tokens.ptr<std::int32_t>(),
                   slot_tokens.dim(0));
}

}  // namespace sluice::cuda
