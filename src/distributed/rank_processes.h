// The processes of the ranks beside the first, which the first rank's process starts and ends.
//
//   RankProcesses ranks(4, run_program({"/proc/self/exe", "rank"}));
//   SharedMemoryCommunicator communicator(ranks.region(), 0);
//   ranks.socket(2).send(kind, bytes);
//
// A rank gets its socket as descriptor kRankSocketFd and the shared region as kRankRegionFd. A file
// of memory for experts that all ranks have is kRankExpertsFd. A rank calls RankGuard (below)
// first.
//
// A thread looks after the ranks. A rank that ends, or whose guard is silent for kSilence, is a
// failure: the region keeps it, so every wait ends, and all ranks are killed. Where the region
// outlives ranks, that rank alone is killed, and the region says that it is lost. No rank outlives
// this object, or the process: the system kills ranks whose parent is gone.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "distributed/message_socket.h"
#include "distributed/shared_region.h"

namespace sluice {

inline constexpr int kRankSocketFd = 3, kRankRegionFd = 4, kRankExpertsFd = 5;

// What a new process does with its descriptors in place; returns its exit status. It runs between
// fork() and the start of a program, where other threads may hold locks.
using RankEntry = std::function<int()>;
// Starts another program. `words`: its path, then its arguments.
RankEntry run_program(std::vector<std::string> words);

class RankProcesses {
 public:
  // Without a sign of life for so long a rank counts as hung.
  static constexpr std::chrono::seconds kSilence{5};

  // Ranks 1 to size - 1. Error{kNoResources}.
  RankProcesses(int size, RankEntry entry) : RankProcesses(size, 0, size, std::move(entry)) {}
  // Those of [first, first + count) alone, which are on this host, without rank 0.
  RankProcesses(int size, int first, int count, RankEntry entry);
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;
  ~RankProcesses();
  // Closes the sockets, which ends the ranks, and kills those that do not end within two seconds.
  void end();

  SharedRegion& region() { return region_; }
  int experts_fd() const { return experts_fd_; }
  MessageSocket& socket(int rank) { return children_[static_cast<std::size_t>(rank) - 1].socket; }
  int pid(int rank) const { return children_[static_cast<std::size_t>(rank) - 1].pid; }
  int size() const { return region_.size(); }
  // Calls `told` when a rank is lost, in the thread that looks after ranks; null: no longer.
  void on_loss(std::function<void()> told);
  // Whether a rank that takes or sends no more messages is lost, and no failure; waits as below.
  bool is_lost_soon(int rank);
  // The region's failure, where one is about to be noticed: waits for it for a second at most.
  RankFailure failure_soon();

 private:
  struct Child {
    int rank = 0;
    MessageSocket socket;
    int pid = -1;
    bool ended = false;
    std::uint32_t beats = 0;
    int silent_ticks = 0;
    bool is_hung = false;
  };
  void look_after(const RankEntry& entry, std::promise<std::string> started);
  void start(Child& child, const RankEntry& entry);
  // Whether the child has ended; says so to the region if it was not to.
  bool has_ended(Child& child, bool expected);
  void end_all();

  SharedRegion region_;
  const int experts_fd_;  // a file without a name
  // [rank - 1]: of the thread once it runs, but for the sockets. Ranks elsewhere count as ended.
  std::vector<Child> children_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;       // guarded by mutex_
  std::mutex told_mutex_;       // held while told_ runs
  std::function<void()> told_;  // guarded by told_mutex_
  std::thread thread_;
};

// The signs of life of a rank in a process of its own, and its end with the first rank's process.
class RankGuard {
 public:
  // `region` outlives the guard.
  RankGuard(SharedRegion& region, int rank);
  ~RankGuard();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace sluice
