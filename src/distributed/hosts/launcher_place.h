// Which of several nodes this process is, as the launcher that started it says in the environment:
// mpirun, srun, or a LeaderWorkerSet of Kubernetes. No library of theirs is needed.
//
//   const std::optional<LauncherPlace> place = launcher_place(std::getenv);
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// What a launcher says, and the variable that says it.
struct LauncherPlace {
  std::string launcher = {};  // "mpirun"
  int num_nodes = 1;
  int node = 0;
  std::string address = {};  // HOST:PORT of node 0, where the launcher knows it; else empty
  int num_here = 1;          // processes that it started on this host, where it says so
  std::string nodes_variable = {}, node_variable = {}, address_variable = {};
};

// The port of node 0 where a launcher gives a host alone.
inline constexpr int kLauncherPort = 20000;

// Nothing where no launcher has said anything. `variable`: as std::getenv. Error{kBadInput}: a
// variable of a launcher is missing beside another one, is no number, or lies outside.
std::optional<LauncherPlace> launcher_place(
    const std::function<const char*(const char* name)>& variable);

// The first host of a list as Slurm writes it: "a01" of "a[01-04,7],b". Empty: it is no list.
std::string first_host(std::string_view list);

}  // namespace sluice
