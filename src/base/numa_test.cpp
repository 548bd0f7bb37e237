#include "base/numa.h"

#include <gtest/gtest.h>
#include <numa.h>
#include <numaif.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <limits>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "base/thread_pool.h"

namespace sluice {
namespace {

constexpr std::int64_t kPage = NumaPlacement::kPageBytes;
constexpr std::uintptr_t kBase = std::uintptr_t{1} << 40;

// Nodes 0, 1, ... with counts[i] processors each, numbered consecutively.
NumaNodes made_up(const std::vector<int>& counts) {
  NumaNodes nodes;
  int next = 0;
  for (const int count : counts) {
    NumaNode node{static_cast<int>(nodes.size()),
                  std::vector<int>(static_cast<std::size_t>(count))};
    std::iota(node.processors.begin(), node.processors.end(), next);
    next += count;
    nodes.push_back(std::move(node));
  }
  return nodes;
}

std::vector<std::size_t> nodes_of_workers(const std::vector<int>& counts, int workers) {
  const NumaPlacement placement(made_up(counts), workers);
  std::vector<std::size_t> out;
  for (int worker = 0; worker < workers; ++worker) out.push_back(placement.node_of_worker(worker));
  return out;
}

// In pages from kBase on.
struct Pages {
  std::uintptr_t begin, end;
  std::vector<int> nodes;
};
std::vector<PlacedRange> in_pages(const std::vector<Pages>& pages) {
  std::vector<PlacedRange> out;
  for (const Pages& p : pages)
    out.push_back({kBase + p.begin * kPage, kBase + p.end * kPage, p.nodes});
  return out;
}

std::vector<int> own_processors() {
  cpu_set_t mask;
  EXPECT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  std::vector<int> out;
  for (int id = 0; id < CPU_SETSIZE; ++id)
    if (CPU_ISSET(id, &mask)) out.push_back(id);
  return out;
}

TEST(Numa, NodesKeepTheProcessorsOfTheMask) {
  const NumaNodes all = made_up({2, 2, 2});
  const NumaNodes some = restricted(all, {1, 4, 5, 77});
  ASSERT_EQ(some.size(), 2u);
  EXPECT_EQ(some[0].id, 0);
  EXPECT_EQ(some[0].processors, std::vector<int>{1});
  EXPECT_EQ(some[1].id, 2);
  EXPECT_EQ(some[1].processors, (std::vector<int>{4, 5}));
  EXPECT_TRUE(restricted(all, {}).empty());
}

TEST(Numa, WorkersAreDealtInRunsByProcessors) {
  using Nodes = std::vector<std::size_t>;
  EXPECT_EQ(nodes_of_workers({2, 2}, 4), (Nodes{0, 0, 1, 1}));
  EXPECT_EQ(nodes_of_workers({2, 2}, 3), (Nodes{0, 0, 1}));
  EXPECT_EQ(nodes_of_workers({2, 2}, 1), (Nodes{0}));
  EXPECT_EQ(nodes_of_workers({1, 3}, 4), (Nodes{0, 1, 1, 1}));
  EXPECT_EQ(nodes_of_workers({6, 2}, 4), (Nodes{0, 0, 0, 1}));
  EXPECT_EQ(nodes_of_workers({4, 4, 4, 4}, 2), (Nodes{0, 2}));
  EXPECT_EQ(nodes_of_workers({1, 1}, 5), (Nodes{0, 0, 0, 1, 1}));  // more than there are processors
  EXPECT_EQ(NumaPlacement(made_up({32, 32}), 48).describe(), "2 nodes, 24 and 24 workers");
  EXPECT_THROW(NumaPlacement(made_up({2, 2}), 4).node_of_worker(4), Error);
}

TEST(Numa, NothingIsPlacedOnFewerThanTwoNodes) {
  for (const NumaPlacement& placement :
       {NumaPlacement(), NumaPlacement({}, 4), NumaPlacement(made_up({8}), 4)}) {
    EXPECT_FALSE(placement.several());
    for (const Spread spread : {Spread::kByShare, Spread::kInterleaved})
      EXPECT_TRUE(placement.ranges(kBase, 64 * kPage, spread).empty());
    placement.bind(0);  // processors 0 to 3 need not exist
    placement.place(nullptr, std::numeric_limits<std::int64_t>::max(), Spread::kInterleaved);
  }
}

TEST(Numa, SharesLieOnTheNodesOfTheirWorkers) {
  const NumaPlacement even(made_up({2, 2}), 4);
  EXPECT_EQ(even.ranges(kBase, 8 * kPage, Spread::kByShare), in_pages({{0, 4, {0}}, {4, 8, {1}}}));
  // Share 2 begins in the middle of page 2; the first byte of that page is share 1's.
  EXPECT_EQ(even.ranges(kBase, 5 * kPage, Spread::kByShare), in_pages({{0, 3, {0}}, {3, 5, {1}}}));
  EXPECT_EQ(even.ranges(kBase, kPage, Spread::kByShare), in_pages({{0, 1, {0}}}));
  // 24 shares of 3 and 21 workers.
  EXPECT_EQ(NumaPlacement(made_up({3, 21}), 24).ranges(kBase, 16 * kPage, Spread::kByShare),
            in_pages({{0, 2, {0}}, {2, 16, {1}}}));
  EXPECT_EQ(NumaPlacement(made_up({1, 1, 1}), 3).ranges(kBase, 10 * kPage, Spread::kByShare),
            in_pages({{0, 4, {0}}, {4, 7, {1}}, {7, 10, {2}}}));
  // More nodes than workers, and one worker.
  EXPECT_EQ(NumaPlacement(made_up({4, 4, 4, 4}), 2).ranges(kBase, 4 * kPage, Spread::kByShare),
            in_pages({{0, 2, {0}}, {2, 4, {2}}}));
  EXPECT_EQ(NumaPlacement(made_up({2, 2}), 1).ranges(kBase, 4 * kPage, Spread::kByShare),
            in_pages({{0, 4, {0}}}));
  // More workers than pages: every share has bytes, but some shares have no page.
  EXPECT_EQ(NumaPlacement(made_up({8, 8}), 16).ranges(kBase, 3 * kPage, Spread::kByShare),
            in_pages({{0, 2, {0}}, {2, 3, {1}}}));
}

TEST(Numa, OnlyWholePagesArePlaced) {
  const NumaPlacement placement(made_up({1, 1}), 2);
  for (const Spread spread : {Spread::kByShare, Spread::kInterleaved}) {
    EXPECT_TRUE(placement.ranges(kBase, 0, spread).empty());
    EXPECT_TRUE(placement.ranges(kBase, 4096, spread).empty());
    EXPECT_TRUE(placement.ranges(kBase, kPage - 1, spread).empty());
    EXPECT_TRUE(placement.ranges(kBase + 64, 2 * kPage - 65, spread).empty());
  }
  // The page that begins 64 bytes before, and the page that ends 64 bytes after, also hold other
  // data.
  EXPECT_EQ(placement.ranges(kBase + 64, 4 * kPage, Spread::kByShare),
            in_pages({{1, 3, {0}}, {3, 4, {1}}}));
  EXPECT_EQ(placement.ranges(kBase - 64, 4 * kPage, Spread::kByShare),
            in_pages({{0, 2, {0}}, {2, 3, {1}}}));
  EXPECT_EQ(placement.ranges(kBase, 4 * kPage + 4097, Spread::kByShare),
            in_pages({{0, 3, {0}}, {3, 4, {1}}}));
  EXPECT_EQ(placement.ranges(kBase + 64, 4 * kPage, Spread::kInterleaved),
            in_pages({{1, 4, {0, 1}}}));
}

TEST(Numa, EverySizeIsCoveredOnceInOrder) {
  for (const auto& counts : std::vector<std::vector<int>>{{1, 1}, {3, 5}, {2, 2, 2}, {1, 7, 1, 7}})
    for (int workers = 1; workers <= 17; ++workers) {
      const NumaPlacement placement(made_up(counts), workers);
      for (std::int64_t bytes = kPage; bytes < 40 * kPage; bytes += 3 * kPage / 2 + 4093) {
        const std::vector<PlacedRange> ranges = placement.ranges(kBase, bytes, Spread::kByShare);
        ASSERT_FALSE(ranges.empty());
        EXPECT_LE(ranges.size(), counts.size());
        EXPECT_EQ(ranges.back().end, kBase + static_cast<std::uintptr_t>(bytes / kPage * kPage));
        for (std::size_t i = 0; i < ranges.size(); ++i) {
          EXPECT_LT(ranges[i].begin, ranges[i].end);
          EXPECT_EQ(ranges[i].begin, i > 0 ? ranges[i - 1].end : kBase);
        }
      }
    }
  // A terabyte for a thousand workers overflows nothing.
  const std::vector<PlacedRange> large =
      NumaPlacement(made_up({512, 512}), 1024)
          .ranges(kBase, std::int64_t{1} << 40, Spread::kByShare);
  ASSERT_EQ(large.size(), 2u);
  EXPECT_EQ(large[1].begin, kBase + (std::uintptr_t{1} << 39));
}

TEST(Numa, PagesAreInterleavedOverTheNodesWithWorkers) {
  EXPECT_EQ(NumaPlacement(made_up({2, 2, 2}), 6).ranges(kBase, 5 * kPage, Spread::kInterleaved),
            in_pages({{0, 5, {0, 1, 2}}}));
  EXPECT_EQ(NumaPlacement(made_up({4, 4, 4, 4}), 2).ranges(kBase, 5 * kPage, Spread::kInterleaved),
            in_pages({{0, 5, {0, 2}}}));
  EXPECT_EQ(NumaPlacement(made_up({2, 2}), 1).ranges(kBase, 5 * kPage, Spread::kInterleaved),
            in_pages({{0, 5, {0}}}));
}

// The pages of a mapping, and the policy that the kernel reports for them.
class Mapping {
 public:
  explicit Mapping(std::int64_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    EXPECT_NE(data_, MAP_FAILED);
  }
  ~Mapping() { munmap(data_, static_cast<std::size_t>(bytes_)); }
  void* data() const { return data_; }
  int policy_at(std::uintptr_t address) const {
    int mode = -1;
    EXPECT_EQ(get_mempolicy(&mode, nullptr, 0, reinterpret_cast<void*>(address), MPOL_F_ADDR), 0);
    return mode;
  }

 private:
  std::int64_t bytes_;
  void* data_;
};

TEST(Numa, TheKernelIsTold) {
  if (numa_available() < 0) GTEST_SKIP() << "no memory policies here";
  // Two entries for node 0, the only node that surely exists.
  const NumaPlacement placement({{0, {0}}, {0, {0}}}, 2);
  const Mapping shared(8 * kPage), mixed(8 * kPage);
  placement.place(shared.data(), 8 * kPage, Spread::kByShare);
  const auto ranges = placement.ranges(reinterpret_cast<std::uintptr_t>(shared.data()), 8 * kPage,
                                       Spread::kByShare);
  ASSERT_FALSE(ranges.empty());
  EXPECT_EQ(shared.policy_at(ranges.front().begin), MPOL_PREFERRED);
  EXPECT_EQ(shared.policy_at(ranges.back().end - 1), MPOL_PREFERRED);
  // With node 1, which this machine may lack: the kernel uses the nodes that exist.
  const NumaPlacement two(made_up({1, 1}), 2);
  two.place(mixed.data(), 8 * kPage, Spread::kInterleaved);
  const auto whole =
      two.ranges(reinterpret_cast<std::uintptr_t>(mixed.data()), 8 * kPage, Spread::kInterleaved);
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(mixed.policy_at(whole[0].begin), MPOL_INTERLEAVE);
  EXPECT_EQ(mixed.policy_at(whole[0].end - 1), MPOL_INTERLEAVE);
}

TEST(Numa, WhatTheKernelRefusesIsNoError) {
  const NumaPlacement nowhere({{900, {4000}}, {901, {4001}}}, 2);
  Mapping memory(8 * kPage);
  for (const Spread spread : {Spread::kByShare, Spread::kInterleaved})
    nowhere.place(memory.data(), 8 * kPage, spread);
  static_cast<char*>(memory.data())[5 * kPage] = 1;
  const std::vector<int> before = own_processors();
  nowhere.bind(1);
  EXPECT_EQ(own_processors(), before);
}

TEST(Numa, WorkersOfAPoolStayOnTheirNodes) {
  const std::vector<int> processors = own_processors();
  if (processors.size() < 2) GTEST_SKIP() << "one processor";
  const NumaNodes nodes = {{0, {processors[0]}}, {1, {processors[1]}}};
  std::vector<std::vector<int>> seen(4);
  // On another thread, so that this thread stays unbound.
  std::thread([&] {
    ThreadPool pool(4, nodes);
    EXPECT_EQ(own_processors(), processors);
    pool.bind_caller();
    EXPECT_TRUE(pool.placement().several());
    pool.run(4, [&](int worker) { seen[static_cast<std::size_t>(worker)] = own_processors(); });
    EXPECT_EQ(usable_threads(), 1);  // on the bound thread
  }).join();
  EXPECT_EQ(seen[0], std::vector<int>{processors[0]});
  EXPECT_EQ(seen[1], std::vector<int>{processors[0]});
  EXPECT_EQ(seen[2], std::vector<int>{processors[1]});
  EXPECT_EQ(seen[3], std::vector<int>{processors[1]});
  ThreadPool plain(3, {{0, {processors[0]}}});
  plain.bind_caller();
  plain.run(3, [&](int worker) { seen[static_cast<std::size_t>(worker)] = own_processors(); });
  for (int worker = 0; worker < 3; ++worker)
    EXPECT_EQ(seen[static_cast<std::size_t>(worker)], processors);
}

TEST(Numa, ThisMachineIsReadWithoutSurprise) {
  const NumaNodes nodes = usable_numa_nodes();
  EXPECT_NE(nodes.size(), 1u);
  const std::vector<int> processors = own_processors();
  std::size_t count = 0;
  for (const NumaNode& node : nodes) {
    EXPECT_EQ(restricted({node}, processors)[0].processors, node.processors);
    count += node.processors.size();
  }
  EXPECT_EQ(count, nodes.empty() ? 0 : processors.size());
  std::thread([&] {
    EXPECT_EQ(bound_memory_nodes().empty(),
              bound_memory_bytes() == std::numeric_limits<std::int64_t>::max());
    isolate_on_own_node();
    EXPECT_TRUE(usable_numa_nodes().empty());
    if (nodes.empty()) {
      EXPECT_EQ(own_processors(), processors);
    } else {
      EXPECT_EQ(bound_memory_nodes().size(), 1u);
      EXPECT_GT(bound_memory_bytes(), 0);
      EXPECT_LT(own_processors().size(), processors.size());
    }
  }).join();
}

}  // namespace
}  // namespace sluice
