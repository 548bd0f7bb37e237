// The experts of all ranks of a host, in memory that all of them have: a rank can compute any
// expert, and deals say which ones it does. So the experts of a lost rank are not lost.
//
//   SharedExperts experts(fd, rank, 4);         // every rank, over one file without a name
//   std::byte* own = experts.take(bytes);       // this rank's part of a stack, to be filled
//   Tensor all = experts.whole(own_part);       // the stack of all ranks
//   experts.add(places);                        // a layer: [E] int32, the stack's entry of each
//                                               // expert that this rank computes, else -1
//   experts.seal();                             // nothing is written from now on
//   experts.deal(lost);                         // bit r: rank r is lost
//
// All ranks take equally many bytes in the same order, and each fills its own part. Experts
// [E g / N, E (g + 1) / N) are in the part of rank g, of N that divide E. One thread. Errors:
// Error{kNoResources}.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace sluice {

class SharedExperts {
 public:
  // Takes the descriptor.
  SharedExperts(int fd, int rank, int num_ranks);
  SharedExperts(const SharedExperts&) = delete;
  SharedExperts& operator=(const SharedExperts&) = delete;
  ~SharedExperts();

  int num_ranks() const { return num_ranks_; }
  std::byte* take(std::int64_t bytes);
  // `own` [experts of a rank, ...] begins where take() said; undefined stays so.
  Tensor whole(const Tensor& own) const;
  void add(const Tensor& places);
  void seal();
  // The experts of lost ranks go to the others in equal numbers; those of the others stay.
  void deal(std::uint64_t lost);

 private:
  struct Mapping {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
  };

  const int fd_, rank_, num_ranks_;
  std::int64_t end_ = 0;  // of the file's part that is taken
  std::vector<Mapping> mappings_;
  std::vector<Tensor> places_;
};

// [experts]: the rank that computes each. All ranks but those of `lost` get as many as each other,
// or one more. `first`: the rank that is asked first to take one more.
std::vector<int> dealt_experts(int experts, int num_ranks, std::uint64_t lost, int first);

}  // namespace sluice
