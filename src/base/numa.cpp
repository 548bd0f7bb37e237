#include "base/numa.h"

#include <fmt/format.h>
#include <numa.h>
#include <numaif.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>

#include "base/error.h"
#include "base/log.h"

namespace sluice {
namespace {

struct FreeMask {
  void operator()(bitmask* mask) const { numa_bitmask_free(mask); }
};
using Mask = std::unique_ptr<bitmask, FreeMask>;

// libnuma needs a kernel with memory policies that this process may set. Checked once, because it
// does not change.
bool machine_has_several() {
  static const bool several = numa_available() >= 0 && numa_max_node() > 0;
  return several;
}

std::vector<int> members(const bitmask& mask) {
  std::vector<int> out;
  for (unsigned i = 0; i < mask.size; ++i)
    if (numa_bitmask_isbitset(&mask, i)) out.push_back(static_cast<int>(i));
  return out;
}

Mask node_mask(const std::vector<int>& nodes) {
  Mask mask(numa_allocate_nodemask());
  for (const int node : nodes) numa_bitmask_setbit(mask.get(), static_cast<unsigned>(node));
  return mask;
}

// All nodes with processors, also those that this process may not use.
NumaNodes machine_nodes() {
  NumaNodes nodes;
  const Mask processors(numa_allocate_cpumask());
  for (const int id : members(*numa_nodes_ptr))
    if (numa_node_to_cpus(id, processors.get()) == 0) nodes.push_back({id, members(*processors)});
  return nodes;
}

std::vector<int> usable_processors() {
  const Mask processors(numa_allocate_cpumask());
  return numa_sched_getaffinity(0, processors.get()) > 0 ? members(*processors)
                                                         : std::vector<int>{};
}

// numa_run_on_node() would also use processors of the node outside the process's own mask
// (taskset).
bool run_on(const NumaNode& node) {
  const Mask processors(numa_allocate_cpumask());
  for (const int id : node.processors)
    numa_bitmask_setbit(processors.get(), static_cast<unsigned>(id));
  return numa_sched_setaffinity(0, processors.get()) == 0;
}

// Logged once: a refusal for one thread or range means a refusal for all.
void note_refusal(std::string_view what) {
  static std::atomic<bool> noted{false};
  const int error = errno;
  if (!noted.exchange(true))
    log_warning("numa: {} was refused ({}); the system places it", what, std::strerror(error));
}

// The memory policy of the calling thread, and its nodes.
int memory_policy(bitmask* nodes) {
  constexpr int kFlags = 7 << 13;  // flag bits of the policy's number
  int mode = MPOL_DEFAULT;
  if (get_mempolicy(&mode, nodes->maskp, nodes->size + 1, nullptr, 0) != 0) return MPOL_DEFAULT;
  return mode & ~kFlags;
}

// The nodes of the processors that the calling thread may use, one or several; none if placement is
// disabled.
NumaNodes nodes_of_thread() {
  if (!machine_has_several()) return {};
  const Mask policy_nodes(numa_allocate_nodemask());
  if (const int mode = memory_policy(policy_nodes.get());
      mode != MPOL_DEFAULT && mode != MPOL_LOCAL)
    return {};
  return restricted(machine_nodes(), usable_processors());
}

std::uintptr_t page_up(std::uintptr_t address) {
  constexpr std::uintptr_t kPage = NumaPlacement::kPageBytes;
  return (address + kPage - 1) / kPage * kPage;
}

}  // namespace

NumaNodes restricted(const NumaNodes& nodes, const std::vector<int>& processors) {
  NumaNodes out;
  for (const NumaNode& node : nodes) {
    NumaNode kept{node.id, {}};
    for (const int id : node.processors)
      if (std::ranges::find(processors, id) != processors.end()) kept.processors.push_back(id);
    if (!kept.processors.empty()) out.push_back(std::move(kept));
  }
  return out;
}

NumaNodes usable_numa_nodes() {
  NumaNodes nodes = nodes_of_thread();
  if (nodes.size() < 2) return {};
  // Processors without memory of their own belong to no node here, and no worker runs on them.
  const Mask memory(numa_get_mems_allowed());
  for (const NumaNode& node : nodes)
    if (!numa_bitmask_isbitset(memory.get(), static_cast<unsigned>(node.id)) ||
        numa_node_size64(node.id, nullptr) <= 0)
      return {};
  return nodes;
}

NumaPlacement::NumaPlacement(NumaNodes nodes, int workers) : workers_(workers) {
  check(workers >= 1, "{} workers on memory nodes", workers);
  for (const NumaNode& node : nodes)
    check(!node.processors.empty(), "memory node {} without processors", node.id);
  if (nodes.size() >= 2) nodes_ = std::move(nodes);
}

std::size_t NumaPlacement::node_of_worker(int worker) const {
  check(several() && worker >= 0 && worker < workers_, "worker {} of {} on {} memory nodes", worker,
        workers_, nodes_.size());
  std::size_t processors = 0;
  for (const NumaNode& node : nodes_) processors += node.processors.size();
  // Workers are dealt over the processors of all nodes in order.
  std::size_t at =
      processors * static_cast<std::size_t>(worker) / static_cast<std::size_t>(workers_);
  std::size_t index = 0;
  for (; at >= nodes_[index].processors.size(); ++index) at -= nodes_[index].processors.size();
  return index;
}

void NumaPlacement::bind(int worker) const {
  if (several() && !run_on(nodes_[node_of_worker(worker)]))
    note_refusal("keeping a thread to a node");
}

std::vector<PlacedRange> NumaPlacement::ranges(std::uintptr_t memory, std::int64_t bytes,
                                               Spread spread) const {
  std::vector<PlacedRange> out;
  if (!several() || bytes < kPageBytes) return out;
  const std::uintptr_t begin = page_up(memory),
                       end =
                           (memory + static_cast<std::uintptr_t>(bytes)) / kPageBytes * kPageBytes;
  if (begin >= end) return out;
  std::vector<int> used;
  for (int worker = 0; worker < workers_; ++worker) {
    const int node = nodes_[node_of_worker(worker)].id;
    if (used.empty() || used.back() != node) used.push_back(node);
    if (spread != Spread::kByShare) continue;
    // The pages of share `worker`: those whose first byte lies in the share.
    const auto edge = [&](std::int64_t share) {
      return std::clamp(page_up(memory + static_cast<std::uintptr_t>(bytes * share / workers_)),
                        begin, end);
    };
    const std::uintptr_t from = edge(worker), to = edge(worker + 1);
    if (from == to) continue;
    if (!out.empty() && out.back().nodes.front() == node)
      out.back().end = to;
    else
      out.push_back({from, to, {node}});
  }
  if (spread == Spread::kInterleaved) out.push_back({begin, end, used});
  return out;
}

void NumaPlacement::place(void* memory, std::int64_t bytes, Spread spread) const {
  for (const PlacedRange& range : ranges(reinterpret_cast<std::uintptr_t>(memory), bytes, spread)) {
    const Mask nodes = node_mask(range.nodes);
    // Preferred, not bound: numa_tonode_memory() binds, and a process whose node is full would be
    // killed.
    const int mode = range.nodes.size() == 1 ? MPOL_PREFERRED : MPOL_INTERLEAVE;
    if (mbind(reinterpret_cast<void*>(range.begin), range.end - range.begin, mode, nodes->maskp,
              nodes->size + 1, 0) != 0)
      return note_refusal("a place for memory");
  }
}

std::string NumaPlacement::describe() const {
  if (!several()) return "no placement";
  std::vector<int> counts(nodes_.size(), 0);
  for (int worker = 0; worker < workers_; ++worker) ++counts[node_of_worker(worker)];
  return fmt::format("{} nodes, {} workers", nodes_.size(), fmt::join(counts, " and "));
}

void isolate_on_own_node() {
  const NumaNodes nodes = nodes_of_thread();
  if (nodes.empty()) return;
  const int own = numa_node_of_cpu(sched_getcpu());
  for (const NumaNode& node : nodes) {
    if (node.id != own) continue;
    const Mask memory = node_mask({own});
    // Binds memory first: half the processors without the node's memory would be a loss without a
    // gain.
    if (set_mempolicy(MPOL_BIND, memory->maskp, memory->size + 1) != 0 || !run_on(node))
      note_refusal("keeping the program to a node");
  }
}

std::vector<int> bound_memory_nodes() {
  if (!machine_has_several()) return {};
  const Mask nodes(numa_allocate_nodemask());
  return memory_policy(nodes.get()) == MPOL_BIND ? members(*nodes) : std::vector<int>{};
}

std::int64_t bound_memory_bytes() {
  const std::vector<int> nodes = bound_memory_nodes();
  if (nodes.empty()) return std::numeric_limits<std::int64_t>::max();
  std::int64_t bytes = 0;
  for (const int node : nodes) {
    // Parses lines such as "Node 0 MemFree:  123 kB".
    std::ifstream file(fmt::format("/sys/devices/system/node/node{}/meminfo", node));
    std::string word, key, rest;
    int id = 0;
    std::int64_t kib = 0;
    for (; file >> word >> id >> key >> kib; std::getline(file, rest))
      if (key == "MemFree:" || key == "Active(file):" || key == "Inactive(file):")
        bytes += kib * 1024;
  }
  return bytes;
}

}  // namespace sluice
