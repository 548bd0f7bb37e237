// For tests: the ranks of one process, a thread each, and collectives over host memory.
#pragma once

#include <algorithm>
#include <barrier>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "tensor/communicator.h"
#include "tensor/format.h"

namespace sluice::testing {

// What the ranks of a group share.
struct InProcessGroup {
  explicit InProcessGroup(int size) : meet(size), tensors(static_cast<std::size_t>(size)) {}
  int size() const { return static_cast<int>(tensors.size()); }

  std::barrier<> meet;
  std::vector<Tensor> tensors;  // [rank]
};

// Sums float32 in rank order. Counts its sums.
class InProcessCommunicator final : public Communicator {
 public:
  InProcessCommunicator(InProcessGroup& group, int rank) : group_(group), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return group_.size(); }
  void all_reduce(const Tensor& x) override {
    check(x.dense() && x.dtype == DType::kF32, "{} is not dense float32", x);
    group_.tensors[static_cast<std::size_t>(rank_)] = x;
    group_.meet.arrive_and_wait();
    std::vector<float> sum(static_cast<std::size_t>(x.numel()));
    for (const Tensor& part : group_.tensors)
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part.ptr<float>()[i];
    group_.meet.arrive_and_wait();
    std::copy(sum.begin(), sum.end(), x.ptr<float>());
    ++num_sums;
  }
  // As SharedMemoryCommunicator does.
  void all_gather(const Tensor& x, const Tensor& out) override {
    check(x.dense() && out.numel() == x.numel() * size(), "{} into {}", x, out);
    group_.tensors[static_cast<std::size_t>(rank_)] = x;
    group_.meet.arrive_and_wait();
    for (int rank = 0; rank < size(); ++rank) {
      const Tensor& part = group_.tensors[static_cast<std::size_t>(rank)];
      if (out.dense()) {
        std::memcpy(static_cast<std::byte*>(out.data) + rank * x.bytes(), part.data,
                    static_cast<std::size_t>(x.bytes()));
        continue;
      }
      for (std::int64_t row = 0; row < x.dim(0); ++row)
        std::memcpy(out.at(rank).at(row).data, part.at(row).data,
                    static_cast<std::size_t>(x.bytes() / x.dim(0)));
    }
    group_.meet.arrive_and_wait();
  }
  void broadcast(const Tensor& x, int root) override {
    group_.tensors[static_cast<std::size_t>(rank_)] = x;
    group_.meet.arrive_and_wait();
    if (rank_ != root)
      std::memcpy(x.data, group_.tensors[static_cast<std::size_t>(root)].data,
                  static_cast<std::size_t>(x.bytes()));
    group_.meet.arrive_and_wait();
  }
  void barrier() override { group_.meet.arrive_and_wait(); }

  int num_sums = 0;

 private:
  InProcessGroup& group_;
  const int rank_;
};

}  // namespace sluice::testing
