// Which of several nodes this process is, as the launcher that started it says in the environment:
// mpirun, srun, or a LeaderWorkerSet of Kubernetes. No library of theirs is needed.
//
//   const std::optional<LauncherPlace> place = launcher_place(std::getenv);
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace sluice {

struct LauncherPlace {
  std::string launcher = {};  // "mpirun (OMPI_COMM_WORLD_RANK)"
  int num_nodes = 1;
  int node = 0;
  std::string address = {};  // HOST:PORT of node 0, where the launcher knows it; else empty
};

// The port of node 0 where a launcher gives a host alone.
inline constexpr int kLauncherPort = 20000;

// Nothing where no launcher has said anything. `variable`: as std::getenv. Error{kBadInput}: a
// variable of a launcher is no number, or lies outside.
std::optional<LauncherPlace> launcher_place(
    const std::function<const char*(const char* name)>& variable);

}  // namespace sluice
