// Sequences of a batch in shuffled pages, and their rows.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/types/op_params.h"
#include "oracle.h"

namespace sluice::oracle {

// Rows at positions [first, end) of a sequence.
struct RowRun {
  std::int64_t seq, first, end;
};

class Batch {
 public:
  // Rows of one sequence are one run. Long runs of many heads do not fit in the memory of a prefill
  // at once.
  Batch(Bench& bench, std::vector<std::int64_t> lengths, const std::vector<RowRun>& runs)
      : lengths_(std::move(lengths)), memory_(std::make_unique<WorkMemory>(bench, kPrefillBytes)) {
    std::int64_t most = 1, total = 0;
    for (const std::int64_t n : lengths_) {
      most = std::max(most, (n + 63) / 64);
      total += (n + 63) / 64;
    }
    // two pages belong to no sequence
    std::vector<std::int64_t> pages(static_cast<std::size_t>(total + 2));
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), std::mt19937(5));
    num_pages_ = std::ssize(pages);
    table_ = std::make_unique<Twin>(
        bench, DType::kI32, std::initializer_list<std::int64_t>{std::ssize(lengths_), most});
    std::size_t next = 0;
    table_->set([&](std::int64_t s, std::int64_t p, std::int64_t) {
      return p * 64 < lengths_[static_cast<std::size_t>(s)] ? static_cast<double>(pages[next++])
                                                            : -1.0;
    });
    for (const RowRun& run : runs) {
      for (std::int64_t p = run.first; p < run.end; ++p) {
        seqs_.push_back(run.seq);
        positions_.push_back(p);
      }
      if (run.end - run.first == 1) continue;
      ++prefill_.seqs;
      prefill_.pages += (run.end + 63) / 64;
    }
    const std::int64_t tokens = std::ssize(seqs_);
    row_seq_ =
        std::make_unique<Twin>(bench, DType::kI32, std::initializer_list<std::int64_t>{tokens});
    position_ =
        std::make_unique<Twin>(bench, DType::kI32, std::initializer_list<std::int64_t>{tokens});
    row_seq_->set([&](std::int64_t t, std::int64_t, std::int64_t) {
      return seqs_[static_cast<std::size_t>(t)];
    });
    position_->set([&](std::int64_t t, std::int64_t, std::int64_t) {
      return positions_[static_cast<std::size_t>(t)];
    });
  }

  // Whether rows are not all taken singly, where the step is not deterministic.
  bool has_tiles() const {
    return prefill_.seqs > 0 && tokens() > std::max<std::int64_t>(2 * std::ssize(lengths_), 16);
  }
  std::int64_t tokens() const { return std::ssize(seqs_); }
  std::int64_t slots() const { return num_pages_ * 64; }
  std::int64_t longest() const { return *std::max_element(lengths_.begin(), lengths_.end()); }
  std::int64_t position(std::int64_t t) const { return positions_[static_cast<std::size_t>(t)]; }
  // Of the sequence of row t; -1: none.
  std::int64_t page(std::int64_t t, std::int64_t entry) const {
    return static_cast<std::int64_t>(
        table_->at(table_->host.data, seqs_[static_cast<std::size_t>(t)], entry, 0));
  }
  std::int64_t max_pages() const { return table_->host.dim(1); }
  // The slot of row t's key at position p.
  std::int64_t slot(std::int64_t t, std::int64_t p) const { return page(t, p / 64) * 64 + p % 64; }
  // The rows before row t that are of its sequence.
  std::int64_t place(std::int64_t t) const {
    std::int64_t place = 0;
    while (place < t &&
           seqs_[static_cast<std::size_t>(t - place - 1)] == seqs_[static_cast<std::size_t>(t)])
      ++place;
    return place;
  }
  ops::PagedRows rows(const Context& ctx) const {
    ops::PrefillRuns prefill = prefill_;
    prefill.memory = (*memory_)(ctx);
    return {(*table_)(ctx), (*row_seq_)(ctx), (*position_)(ctx), prefill};
  }

  // Numbers in the slots of the sequences. All other slots stay NaN, so that a stray read shows.
  void fill_keys(Twin& plane, unsigned seed) const {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> uniform(-1, 1);
    std::vector<bool> owned(static_cast<std::size_t>(slots()), false);
    for (std::size_t s = 0; s < lengths_.size(); ++s)
      for (std::int64_t i = 0; i < lengths_[s]; ++i) {
        const auto page = static_cast<std::int64_t>(
            table_->at(table_->host.data, static_cast<std::int64_t>(s), i / 64, 0));
        owned[static_cast<std::size_t>(page * 64 + i % 64)] = true;
      }
    plane.set([&](std::int64_t slot, std::int64_t, std::int64_t) {
      return owned[static_cast<std::size_t>(slot)] ? uniform(random)
                                                   : std::numeric_limits<double>::quiet_NaN();
    });
  }

  const Tensor& positions(const Context& ctx) const { return (*position_)(ctx); }

 private:
  static constexpr std::int64_t kPrefillBytes = 16 << 20;

  std::vector<std::int64_t> lengths_, seqs_, positions_;
  std::int64_t num_pages_ = 0;
  ops::PrefillRuns prefill_;
  std::unique_ptr<WorkMemory> memory_;
  std::unique_ptr<Twin> table_, row_seq_, position_;
};

// The rows of a batch as a step of drafts has them: each is a sequence with the pages of its own.
class BatchRuns {
 public:
  BatchRuns(Bench& bench, const Batch& batch)
      : batch_(batch),
        table_(bench, DType::kI32, {batch.tokens(), batch.max_pages()}),
        seqs_(bench, DType::kI32, {batch.tokens()}),
        places_(bench, DType::kI32, {batch.tokens()}) {
    table_.set([&](std::int64_t t, std::int64_t entry, std::int64_t) {
      return static_cast<double>(batch.page(t, entry));
    });
    seqs_.set([](std::int64_t t, std::int64_t, std::int64_t) { return static_cast<double>(t); });
    places_.set([&](std::int64_t t, std::int64_t, std::int64_t) {
      longest_ = std::max(longest_, batch.place(t) + 1);
      return static_cast<double>(batch.place(t));
    });
  }
  ops::PagedRows rows(const Context& ctx) const {
    return {table_(ctx),
            seqs_(ctx),
            batch_.positions(ctx),
            {},
            {.places = places_(ctx), .longest = longest_}};
  }

 private:
  const Batch& batch_;
  Twin table_, seqs_, places_;
  std::int64_t longest_ = 1;
};

}  // namespace sluice::oracle
