#include "distributed/hosts/launcher_place.h"

#include <charconv>
#include <string_view>

#include "base/error.h"

namespace sluice {
namespace {

struct LauncherRow {
  const char* name;
  const char* node;
  const char* num_nodes;
  const char* host;  // of node 0; null: the launcher does not say
};

// Each process that a launcher starts is a node. The first row whose variables are there counts:
// mpirun may run below the others.
constexpr LauncherRow kLaunchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", nullptr},
    {"mpirun", "PMI_RANK", "PMI_SIZE", nullptr},
    {"LeaderWorkerSet", "LWS_WORKER_INDEX", "LWS_GROUP_SIZE", "LWS_LEADER_ADDRESS"},
    {"srun", "SLURM_PROCID", "SLURM_NTASKS", nullptr},
    {"srun", "SLURM_NODEID", "SLURM_NNODES", nullptr},
};

int number_of(const char* name, std::string_view text, int low, int high) {
  int out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  require(error == std::errc() && end == text.data() + text.size() && out >= low && out <= high,
          "the launcher's {} is '{}', and not {} to {}", name, text, low, high);
  return out;
}

}  // namespace

std::optional<LauncherPlace> launcher_place(
    const std::function<const char*(const char* name)>& variable) {
  for (const LauncherRow& row : kLaunchers) {
    const char* const node = variable(row.node);
    const char* const num_nodes = variable(row.num_nodes);
    if (!node || !num_nodes) continue;
    LauncherPlace place{.launcher = fmt::format("{} ({})", row.name, row.node)};
    place.num_nodes = number_of(row.num_nodes, num_nodes, 1, 64);
    place.node = number_of(row.node, node, 0, place.num_nodes - 1);
    const char* const host = row.host ? variable(row.host) : nullptr;
    if (host && *host) place.address = fmt::format("{}:{}", host, kLauncherPort);
    return place;
  }
  return std::nullopt;
}

}  // namespace sluice
