// Memory nodes: on a machine with several, a processor reads the memory of its own node faster than
// that of the others.
//
//   NumaPlacement placement(usable_numa_nodes(), workers);
//   placement.bind(worker);                              // on the worker's own thread
//   placement.place(memory, bytes, Spread::kByShare);    // before anybody touches it
//
// Where there is one node, no libnuma's system calls (old kernels, containers that forbid them) or
// a policy of memory that somebody set before (numactl), usable_numa_nodes() is empty and nothing
// here does anything. A placement is a wish: the kernel takes memory of another node when one is
// full, and what it refuses is logged once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

struct NumaNode {
  int id = 0;
  std::vector<int> processors;  // ids, ascending; at least 1
};
using NumaNodes = std::vector<NumaNode>;  // ascending by id

// Those of `nodes` that have some of `processors`, with these alone.
NumaNodes restricted(const NumaNodes& nodes, const std::vector<int>& processors);

// The nodes whose processors the calling thread may use, with these; empty as said above, and where
// memory of one of them may not be used.
NumaNodes usable_numa_nodes();

enum class Spread : std::uint8_t {
  kByShare,  // a worker's even share of the bytes on its node: what ThreadPool::parallel_for deals
             // in the same way
  kInterleaved,  // page by page over the nodes: what any thread reads
};

// Whole huge pages, and where their memory is taken: on one node, or on several in turn.
struct PlacedRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::vector<int> nodes;  // ids
  bool operator==(const PlacedRange&) const = default;
};

// The workers of one pool on the nodes. Constant after construction: any thread may use it.
class NumaPlacement {
 public:
  // 2 MiB. No range begins or ends inside one, because the kernel would then make small pages of
  // it.
  static constexpr std::int64_t kPageBytes = 2 << 20;

  // Places nothing.
  NumaPlacement() = default;
  // So does one for fewer than two nodes. `workers` of at least 1 are dealt to the nodes in
  // contiguous runs, as many as a node has of the processors; worker 0 is on the first.
  NumaPlacement(NumaNodes nodes, int workers);

  bool several() const { return !nodes_.empty(); }
  // The index of a worker's node in nodes(). Only where there are several.
  std::size_t node_of_worker(int worker) const;
  const NumaNodes& nodes() const { return nodes_; }

  // Lets the calling thread run on the processors of the worker's node only: on any of these.
  void bind(int worker) const;

  // What place() asks for: ascending, and only the whole pages of [memory, memory + bytes). A page
  // belongs to the share that its first byte lies in. Pages are interleaved over the nodes that
  // have workers.
  std::vector<PlacedRange> ranges(std::uintptr_t memory, std::int64_t bytes, Spread spread) const;
  // Says where pages of host memory will be taken that nobody has touched; also those of a shared
  // mapping of a tmpfs file, however they are written.
  void place(void* memory, std::int64_t bytes, Spread spread) const;

  // "2 nodes, 16 and 16 workers".
  std::string describe() const;

 private:
  NumaNodes nodes_;  // none or several
  int workers_ = 1;
};

// Keeps the calling thread, and those that it makes from now on, to memory of the node on which it
// runs and to those of its processors that it may use. Nothing on a machine with one node or where
// memory has a policy, so also the second time.
void isolate_on_own_node();

// The nodes that the calling thread's memory must come from, by isolate_on_own_node() or numactl;
// empty: any.
std::vector<int> bound_memory_nodes();
// Bytes that are free there or hold what the system can drop; the largest number where memory may
// come from any node.
std::int64_t bound_memory_bytes();

}  // namespace sluice
