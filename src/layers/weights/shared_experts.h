// The experts of all ranks of a host, in memory that all of them have: a rank can compute any
// expert, and is told which ones it does. So the experts of a lost rank are not lost.
//
//   SharedExperts experts(fd, rank, 4);         // every rank, over one file without a name
//   std::byte* own = experts.take(bytes);       // this rank's part of a stack, to be filled
//   Tensor all = experts.whole(own_part);       // the stack of all ranks
//   experts.add(places, choices);               // a layer: [E] int32, the stack's entry of each
//                                               // expert that this rank computes, else -1
//   experts.seal();                             // nothing is written from now on
//   owners = experts.deal(lost);                // the first rank; bit r: rank r is lost
//   experts.set_owners(owners);                 // every rank, between the same steps
//
// All ranks take equally many bytes in the same order, and each fills its own part. Experts
// [E g / N, E (g + 1) / N) are in the part of rank g, of N that divide E. One thread. Errors:
// Error{kNoResources}.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
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
  // `choices` [E] int64: how many tokens chose each expert; undefined at ranks that do not deal.
  void add(const Tensor& places, const Tensor& choices);
  void seal();
  // The rank that computes each expert, layer after layer. The experts of lost ranks go to the
  // others by the choices of each layer; those of the others stay.
  std::vector<std::uint8_t> deal(std::uint64_t lost) const;
  void set_owners(std::span<const std::uint8_t> owners);

 private:
  struct Mapping {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
  };

  const int fd_, rank_, num_ranks_;
  std::int64_t end_ = 0;  // of the file's part that is taken
  std::vector<Mapping> mappings_;
  struct Layer {
    Tensor places, choices;
  };
  std::vector<Layer> layers_;
};

// The rank that computes each expert, where those of `lost` are gone. Their experts go to the
// others, the most chosen one first, each to the rank whose experts are chosen least; of equal
// ones to that with the fewest experts, and then to the next one from `first` on.
std::vector<std::uint8_t> dealt_experts(std::span<const std::int64_t> choices, int num_ranks,
                                        std::uint64_t lost, int first);

}  // namespace sluice
