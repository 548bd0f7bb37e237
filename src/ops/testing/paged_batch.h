// Test batches for attention: sequences in shuffled pages, and rows over them.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/types/op_params.h"
#include "ops/kv.h"
#include "ops/testing/support.h"

namespace sluice::ops {

// Sequences of a batch, with their pages shuffled over a pool.
struct Case {
  Case(std::vector<std::int64_t> lengths, unsigned seed) : lens(std::move(lengths)) {
    std::int64_t most = 1, total = 1;
    for (std::int64_t n : lens) {
      most = std::max(most, (n + 63) / 64);
      total += (n + 63) / 64;
    }
    pages.resize(static_cast<std::size_t>(total));
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), std::mt19937(seed));
    table = std::make_unique<Owned>(DType::kI32,
                                    std::initializer_list<std::int64_t>{std::ssize(lens), most});
    std::int64_t next = 0;
    for (std::int64_t s = 0; s < std::ssize(lens); ++s)
      for (std::int64_t p = 0; p < (lens[s] + 63) / 64; ++p) put(*table, {s, p}, pages[next++]);
  }
  std::int64_t num_slots() const { return std::ssize(pages) * 64; }
  std::int64_t slot(std::int64_t seq, std::int64_t position) const {
    return static_cast<std::int64_t>(get(*table, {seq, position / 64})) * 64 + position % 64;
  }
  // Writes keys for every position. Slots that no token owns stay NaN.
  void write(const KvPlane& plane, unsigned seed) const {
    Machine machine(CpuIsa::kAvx2);
    for (std::int64_t s = 0; s < std::ssize(lens); ++s) {
      Owned rows(DType::kF32, {lens[s], plane.data.dim(1)}), slots(DType::kI64, {lens[s]});
      fill(rows, seed + static_cast<unsigned>(s));
      for (std::int64_t i = 0; i < lens[s]; ++i) put(slots, {i}, static_cast<double>(slot(s, i)));
      kv_write(machine.ctx, rows, slots, plane);
    }
  }

  std::vector<std::int64_t> lens;
  std::vector<std::int64_t> pages;
  std::unique_ptr<Owned> table;
};

struct Rows {
  Rows(const Case& batch, const std::vector<std::pair<int, int>>& seq_and_position)
      : seq(DType::kI32, {std::ssize(seq_and_position)}),
        position(DType::kI32, {std::ssize(seq_and_position)}) {
    for (std::int64_t t = 0; t < std::ssize(seq_and_position); ++t) {
      put(seq, {t}, seq_and_position[t].first);
      put(position, {t}, seq_and_position[t].second);
    }
    rows = {*batch.table, seq, position};
  }
  PagedRows one(std::int64_t t) const {
    return {rows.page_table, seq->rows(t, 1), position->rows(t, 1)};
  }
  std::int64_t count() const { return seq->dim(0); }

  Owned seq, position;
  PagedRows rows;
};

// A prefill chunk with a prefix, a whole prefill, decode rows, and two rows at one position
// (branches of a tree).
inline std::vector<std::pair<int, int>> mixed_rows(const Case& batch) {
  std::vector<std::pair<int, int>> rows;
  for (int p = static_cast<int>(batch.lens[0]) - 37; p < batch.lens[0]; ++p)
    rows.emplace_back(0, p);
  for (int p = 0; p < batch.lens[1]; ++p) rows.emplace_back(1, p);
  for (int s = 2; s < std::ssize(batch.lens); ++s) rows.emplace_back(s, batch.lens[s] - 1);
  rows.emplace_back(2, batch.lens[2] - 1);
  rows.emplace_back(2, batch.lens[2] - 2);
  return rows;
}

}  // namespace sluice::ops
