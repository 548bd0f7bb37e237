// Rounds of drafts that stay on the device.
#include "kernels/cpu/sampling/rounds.h"

#include <algorithm>

#include "base/error.h"
#include "base/page_size.h"
#include "kernels/types/op_params.h"
#include "kernels/types/uniform.h"

namespace sluice::cpu {

void place_rows(Context&, const ops::RowPlaces& rows, const Tensor& moved,
                const Tensor& last_rows) {
  const auto* slots = rows.slots.ptr<std::int32_t>();
  for (std::int64_t i = 0; i < rows.slots.dim(0); ++i) {
    const std::int32_t slot = slots[i];
    if (slot < 0) continue;
    check(slot < moved.dim(0), "place_rows: slot {} of {}", slot, moved.dim(0));
    const std::int32_t back = moved.ptr<std::int32_t>()[slot],
                       last = last_rows.ptr<std::int32_t>()[slot];
    const std::int32_t position = rows.positions.ptr<std::int32_t>()[i] -= back;
    rows.seq_lens.ptr<std::int32_t>()[i] -= back;
    check(position >= 0, "place_rows: row {} goes {} back, to {}", i, back, position);
    for (std::size_t g = 0; g < rows.page_tables.size(); ++g) {
      const std::int64_t page =
          rows.page_tables[g].rows(i, 1).ptr<std::int32_t>()[position / kPageSize];
      rows.out_cache_locs[g].ptr<std::int64_t>()[i] = page * kPageSize + position % kPageSize;
    }
    if (rows.sample_rows.defined()) {
      const ops::RowKey& key = ops::as_row_keys(rows.row_keys)[i];
      ops::as_sample_rows(rows.sample_rows)[i].uniform =
          draw::uniform_at(key.seed, key.position - back);
    }
    if (rows.logit_slots.defined() && last != i) rows.logit_slots.ptr<std::int32_t>()[i] = -1;
    if (rows.sources.defined()) rows.sources.ptr<std::int32_t>()[i] = last;
  }
}

namespace {

// The rows [first, end) of one slot.
void accept_run(const ops::RoundRows& rows, const ops::RoundState& state, std::int64_t first,
                std::int64_t end) {
  const auto* ids = rows.ids.ptr<std::int32_t>();
  auto *tokens = rows.tokens.ptr<std::int32_t>(), *next = rows.next_tokens.ptr<std::int32_t>();
  const std::int32_t slot = rows.slots.ptr<std::int32_t>()[first];
  check(slot < state.wrong.dim(0), "accept_drafts: slot {} of {}", slot, state.wrong.dim(0));
  const std::int32_t before =
      rows.moved.ptr<std::int32_t>()[first] < 0 ? 0 : state.wrong.ptr<std::int32_t>()[slot];
  std::int64_t last = first;
  for (; last + 1 < end && tokens[last + 1] >= 0; ++last) {
    if (rows.chances.defined()) {
      const std::int64_t place = last - first;
      const ops::RowKey& key = ops::as_row_keys(rows.row_keys)[last + 1];
      const bool is_right =
          place < rows.chances.dim(0) &&
          draw::uniform_at(key.seed, -(key.position - before)) < rows.chances.ptr<double>()[place];
      tokens[last] = ops::pretended_token(ids, first, end, last + 1, is_right);
    }
    if (tokens[last] != ids[last + 1]) break;
  }
  for (std::int64_t i = last + 1; i < end; ++i) tokens[i] = ops::kBehindWrongDraft;
  for (std::int64_t i = first; i < end; ++i) next[i] = tokens[i] < 0 ? 0 : tokens[i];
  const auto wrong = static_cast<std::int32_t>(end - 1 - last);
  state.wrong.ptr<std::int32_t>()[slot] = wrong;
  state.wrong_first.ptr<std::int32_t>()[slot] = before;
  state.wrong_next.ptr<std::int32_t>()[slot] = before + wrong;
  state.last_rows.ptr<std::int32_t>()[slot] = static_cast<std::int32_t>(last);
  rows.slot_tokens.ptr<std::int32_t>()[slot] = next[last];
}

}  // namespace

void accept_drafts(Context&, const ops::RoundRows& rows, const ops::RoundState& state) {
  const auto* slots = rows.slots.ptr<std::int32_t>();
  for (std::int64_t first = 0, end = 0; first < rows.slots.dim(0); first = end) {
    end = first + 1;
    if (slots[first] < 0) continue;
    while (end < rows.slots.dim(0) && slots[end] == slots[first]) ++end;
    accept_run(rows, state, first, end);
  }
}

void put_draft_tokens(Context&, const Tensor& tokens, const Tensor& slots, const Tensor& places,
                      const Tensor& map, const Tensor& slot_tokens) {
  for (std::int64_t i = 0; i < tokens.dim(0); ++i) {
    const std::int32_t slot = slots.ptr<std::int32_t>()[i];
    if (slot < 0 || places.ptr<std::int32_t>()[i] < 0) continue;
    const std::int32_t token = std::max(tokens.ptr<std::int32_t>()[i], 0);
    check(slot < slot_tokens.dim(0) && (!map.defined() || token < map.dim(0)),
          "put_draft_tokens: token {}, slot {} of {}", token, slot, slot_tokens.dim(0));
    slot_tokens.ptr<std::int32_t>()[slot] = map.defined() ? map.ptr<std::int32_t>()[token] : token;
  }
}

}  // namespace sluice::cpu
