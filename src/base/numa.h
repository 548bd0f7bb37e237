// Memory nodes. On a machine with several nodes a processor reads the memory of its own node faster
// than that of the others.
//
//   NumaPlacement placement(usable_numa_nodes(), workers);
//   placement.bind(worker);                              // on the worker's own thread
//   placement.place(memory, bytes, Spread::kByShare);    // before anybody touches it
//
// usable_numa_nodes() is empty, and nothing here has an effect, in three cases: the machine has one
// node; libnuma's system calls are missing (old kernels, containers that forbid them); a memory
// policy was set before (numactl). A placement is a wish: the kernel uses another node when one is
// full, and each refusal is logged once.
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

// The nodes of `nodes` that have some of `processors`, restricted to these.
NumaNodes restricted(const NumaNodes& nodes, const std::vector<int>& processors);

// The nodes whose processors the calling thread may use, restricted to these. Empty in the cases
// above, and if the memory of one of these nodes may not be used.
NumaNodes usable_numa_nodes();

enum class Spread : std::uint8_t {
  kByShare,      // each worker's even share of the bytes is on its node, dealt as
                 // ThreadPool::parallel_for deals
  kInterleaved,  // page by page over the nodes: for bytes that any thread reads
};

// A range of whole huge pages and the nodes of their memory: one node, or several in turn.
struct PlacedRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::vector<int> nodes;  // node ids
  bool operator==(const PlacedRange&) const = default;
};

// The workers of one pool on the nodes. Constant after construction: any thread may use it.
class NumaPlacement {
 public:
  // 2 MiB. A range begins and ends at a multiple, because the kernel would split a partial huge
  // page into small ones.
  static constexpr std::int64_t kPageBytes = 2 << 20;

  // Places nothing.
  NumaPlacement() = default;
  // Places nothing for fewer than two nodes. `workers` (at least 1) are dealt to the nodes in
  // contiguous runs, in proportion to each node's processors; worker 0 is on the first node.
  NumaPlacement(NumaNodes nodes, int workers);

  bool several() const { return !nodes_.empty(); }
  // The index in nodes() of a worker's node. Only if there are several nodes.
  std::size_t node_of_worker(int worker) const;
  const NumaNodes& nodes() const { return nodes_; }

  // Lets the calling thread run on the processors of the worker's node only, on any of them.
  void bind(int worker) const;

  // The requests of place(): ascending, and only the whole pages of [memory, memory + bytes). A
  // page belongs to the share of its first byte. Interleaved pages go to the nodes that have
  // workers.
  std::vector<PlacedRange> ranges(std::uintptr_t memory, std::int64_t bytes, Spread spread) const;
  // Sets the nodes for pages of host memory that no thread has touched. Also for a shared mapping
  // of a tmpfs file, however its pages are written.
  void place(void* memory, std::int64_t bytes, Spread spread) const;

  // "2 nodes, 16 and 16 workers".
  std::string describe() const;

 private:
  NumaNodes nodes_;  // none or several
  int workers_ = 1;
};

// Restricts the calling thread, and threads that it creates later, to the node on which it runs: to
// memory of the node, and to those of its processors that it may use. No effect on a machine with
// one node or under a memory policy, so a second call has no effect.
void isolate_on_own_node();

// The nodes that the calling thread's memory must come from, by isolate_on_own_node() or numactl;
// empty: any.
std::vector<int> bound_memory_nodes();
// Bytes on these nodes that are free or that the system can reclaim; the maximum value if memory
// may come from any node.
std::int64_t bound_memory_bytes();

}  // namespace sluice
