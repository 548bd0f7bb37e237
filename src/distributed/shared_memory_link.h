// A link between two ranks of one host over memory that they share: a ring of pieces, which belongs
// to the receiver. A tensor goes through it piece by piece, so its size does not matter.
//
//   SharedMemoryLink link(region, 2, 0);   // in rank 2: link.send(x); in rank 0: link.receive(x)
//
// Host memory. A wait ends with the failure of the region, as when a rank has died.
#pragma once

#include "distributed/shared_region.h"
#include "distributed/stage_link.h"

namespace sluice {

class SharedMemoryLink final : public StageLink {
 public:
  // `region` outlives the link. A rank has one link in which it receives. `spin_us`: how long a
  // rank looks for the other one before it sleeps.
  SharedMemoryLink(SharedRegion& region, int from, int to, int spin_us);
  void send(const Tensor& x) override;
  void receive(const Tensor& x) override;

 private:
  SharedRegion& region_;
  const int to_, spin_us_;
  std::uint32_t num_pieces_ = 0;  // sent, or received
};

}  // namespace sluice
