#include "distributed/rank_processes.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/log.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kTick{100};
constexpr std::chrono::seconds kPatience{2};  // for ranks that were told to end

// Puts the descriptors in their places; they stay open in the next program.
void place_descriptors(int socket, int region, int experts) {
  // Out of the way first: one may lie where the other goes.
  const int high_socket = fcntl(socket, F_DUPFD, 64), high_region = fcntl(region, F_DUPFD, 64),
            high_experts = fcntl(experts, F_DUPFD, 64);
  dup2(high_socket, kRankSocketFd);
  dup2(high_region, kRankRegionFd);
  dup2(high_experts, kRankExpertsFd);
  close(high_socket);
  close(high_region);
  close(high_experts);
}

// A rank ends when the first one does, not by the signals that its terminal sends to all.
void set_signals() {
  for (const int number : {SIGINT, SIGTERM, SIGPIPE}) signal(number, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("was killed by signal {} ({})", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
  return fmt::format("ended with status {}", WEXITSTATUS(status));
}

}  // namespace

RankEntry run_program(std::vector<std::string> words) {
  return [words = std::move(words)] {
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    close_range(kRankExpertsFd + 1, ~0U, 0);
    execv(arguments[0], arguments.data());
    return 127;
  };
}

RankProcesses::RankProcesses(int size, int first, int count, RankEntry entry)
    : region_(SharedRegion::create(size)),
      experts_fd_(memfd_create("sluice-experts", MFD_CLOEXEC)) {
  for (int rank = 1; rank < size; ++rank)
    children_.push_back({.rank = rank,
                         .socket = MessageSocket(-1),
                         .ended = rank < first || rank >= first + count});
  std::promise<std::string> started;
  std::future<std::string> outcome = started.get_future();
  // The system kills a rank when the thread that started it ends, so this thread stays.
  thread_ = std::thread([this, entry = std::move(entry), started = std::move(started)]() mutable {
    look_after(entry, std::move(started));
  });
  const std::string problem = outcome.get();
  if (problem.empty()) return;
  thread_.join();
  fail(ErrorKind::kNoResources, "a process for a rank cannot be started: {}", problem);
}

RankProcesses::~RankProcesses() {
  end();
  if (experts_fd_ >= 0) close(experts_fd_);
}

void RankProcesses::end() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void RankProcesses::start(Child& child, const RankEntry& entry) {
  auto [here, there] = MessageSocket::pair();
  const pid_t parent = getpid();
  const int pid = fork();
  if (pid < 0) fail(ErrorKind::kNoResources, "{}", std::strerror(errno));
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    set_signals();
    for (Child& other : children_) other.socket.close();
    place_descriptors(there.fd(), region_.fd(), experts_fd_);
    _exit(entry());
  }
  child.pid = pid;
  child.socket = std::move(here);
}

void RankProcesses::look_after(const RankEntry& entry, std::promise<std::string> started) {
  try {
    for (Child& child : children_)
      if (!child.ended) start(child, entry);
  } catch (const Error& error) {
    end_all();
    return started.set_value(error.message());
  }
  started.set_value("");
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kTick, [&] { return stopping_; })) {
    lock.unlock();
    for (Child& child : children_) {
      if (has_ended(child, false)) continue;
      const std::uint32_t beats = region_.beats(child.rank);
      child.silent_ticks = beats == child.beats ? child.silent_ticks + 1 : 0;
      child.beats = beats;
      if (child.silent_ticks * kTick < kSilence) continue;
      if (region_.outlives_ranks()) {
        child.is_hung = true;
        kill(child.pid, SIGKILL);
        continue;
      }
      region_.fail(ErrorKind::kFatal,
                   fmt::format("rank {} (process {}) shows no sign of life for {} s", child.rank,
                               child.pid, kSilence.count()));
    }
    if (region_.failure())
      for (Child& child : children_)
        if (!child.ended) kill(child.pid, SIGKILL);
    lock.lock();
  }
  lock.unlock();
  end_all();
}

bool RankProcesses::has_ended(Child& child, bool expected) {
  if (child.ended || child.pid < 0) return true;
  int status = 0;
  if (waitpid(child.pid, &status, WNOHANG) != child.pid) return false;
  child.ended = true;
  if (!expected && region_.outlives_ranks() && !region_.failure()) {
    const std::string how = child.is_hung
                                ? fmt::format("showed no sign of life for {} s", kSilence.count())
                                : how_it_ended(status);
    log_error("rank {} (process {}) is lost: it {}", child.rank, child.pid, how);
    region_.lose(child.rank);
    std::lock_guard lock(told_mutex_);
    if (told_) told_();
  } else if (!expected)
    region_.fail(ErrorKind::kFatal, fmt::format("rank {} (process {}) {}", child.rank, child.pid,
                                                how_it_ended(status)));
  return true;
}

void RankProcesses::end_all() {
  for (Child& child : children_) child.socket.close();
  const auto deadline = Clock::now() + (region_.failure() ? Clock::duration{} : kPatience);
  for (Child& child : children_) {
    while (!has_ended(child, true) && Clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (child.ended || child.pid < 0) continue;
    kill(child.pid, SIGKILL);
    while (waitpid(child.pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    child.ended = true;
  }
}

void RankProcesses::on_loss(std::function<void()> told) {
  std::lock_guard lock(told_mutex_);
  told_ = std::move(told);
}

bool RankProcesses::is_lost_soon(int rank) {
  if (!region_.outlives_ranks()) return false;
  const auto deadline = Clock::now() + std::chrono::seconds(1);
  const auto is_lost = [&] { return (region_.lost() >> rank & 1) != 0; };
  while (!is_lost() && !region_.failure() && Clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return is_lost();
}

RankFailure RankProcesses::failure_soon() {
  const auto deadline = Clock::now() + std::chrono::seconds(1);
  while (!region_.failure() && Clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return region_.failure().value_or(
      RankFailure{ErrorKind::kFatal, "a rank takes no more messages"});
}

RankGuard::RankGuard(SharedRegion& region, int rank) {
  thread_ = std::thread([this, &region, rank] {
    std::unique_lock lock(mutex_);
    do region.beat(rank);
    while (!changed_.wait_for(lock, kTick, [&] { return stopping_; }));
  });
}

RankGuard::~RankGuard() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

}  // namespace sluice
