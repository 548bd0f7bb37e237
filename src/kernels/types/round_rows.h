// Plain structs of rounds: steps with drafts of which only the device knows which were right.
//
// A round may be launched while the round before is under way. Then its rows are laid out as if all
// drafts of that round were right, and the device takes the wrong ones back (ops/tokens.h).
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/types/sample_math.h"
#include "tensor/tensor.h"

namespace sluice::ops {

// What the random number of a sampled row is made of.
struct RowKey {
  std::uint64_t seed = 0;
  std::int32_t position = 0;  // of the token that the row predicts
};
// View of a tensor [rows, sizeof(RowKey)] u8.
inline RowKey* as_row_keys(const Tensor& row_keys) {
  return static_cast<RowKey*>(row_keys.data);
}

// A token of a row behind a draft that was wrong.
inline constexpr std::int32_t kBehindWrongDraft = -2;

// What the row before `row` chose in a measurement, among the rows [first, end) of one slot: the
// draft that `row` holds, or the smallest token that none of them holds.
SLUICE_ON_BOTH inline std::int32_t pretended_token(const std::int32_t* ids, std::int64_t first,
                                                   std::int64_t end, std::int64_t row,
                                                   bool is_right) {
  if (is_right) return ids[row];
  std::int32_t token = 0;
  for (std::int64_t i = first; i < end; ++i)
    if (ids[i] == token) ++token, i = first - 1;
  return token;
}

// What a round leaves of its sequences, by slot. [slots] i32 each.
struct RoundState {
  Tensor wrong;        // drafts of the last round that were wrong: the next rows count them
  Tensor wrong_first;  // what the rows of the last round counted too much themselves
  Tensor wrong_next;   // both: what the runs behind the draft's first one count
  Tensor last_rows;    // the last right row of the last round's step
};

// Rows of one token each, which are moved back: row i by moved[slots[i]] tokens. Rows of slot -1
// stay. All tensors are changed in place but slots, page tables and row keys.
struct RowPlaces {
  Tensor slots;                        // [rows] i32
  Tensor positions, seq_lens;          // [rows] i32
  std::vector<Tensor> page_tables;     // by group: [rows, pages] i32
  std::vector<Tensor> out_cache_locs;  // by group: [rows] i64, the slot of a row's position
  // Of rows that are sampled; else undefined. SampleRow::uniform is that of the new position.
  Tensor row_keys = {};     // [rows, sizeof(RowKey)] u8
  Tensor sample_rows = {};  // [rows, sizeof(SampleRow)] u8
  // Of the draft's first run; else undefined. Becomes -1 but in the last right row of each slot.
  Tensor logit_slots = {};  // [rows] i32
  // Of the draft's second run; else undefined. Becomes the last right row of the slot.
  Tensor sources = {};  // [rows] i32
};
inline constexpr std::size_t kMaxPlaceGroups = 8;

// Drafts of a step that the device finds right or wrong. Rows of one slot follow each other: the
// known token's, then those of its drafts.
struct RoundRows {
  Tensor slots;   // [rows] i32; -1: the host finds out
  Tensor moved;   // [rows] i32: slots of rows that RowPlaces moved, and -1
  Tensor ids;     // [rows] i32: the tokens that the rows hold
  Tensor tokens;  // [rows] i32: what each row chose; becomes kBehindWrongDraft behind a wrong draft
  Tensor next_tokens;  // [rows] i32, written: the same, and 0 where that is no token
  Tensor slot_tokens;  // [slots] i32: the last token of each slot is put there
  // Of measurements; else undefined: the draft at place i is right with this chance, and others are
  // wrong.
  Tensor chances = {};   // [places] f64
  Tensor row_keys = {};  // [rows, sizeof(RowKey)] u8
};

}  // namespace sluice::ops
