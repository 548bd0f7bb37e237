#include "distributed/hosts/launcher_place.h"

#include <charconv>

#include "base/error.h"

namespace sluice {
namespace {

using Variable = std::function<const char*(const char* name)>;

struct LauncherRow {
  const char* name;
  const char* node;
  const char* num_nodes;
  const char* hosts[2] = {};       // that name node 0; the first that is there counts
  const char* num_here = nullptr;  // processes of this host
  bool has_host_list = false;      // as Slurm writes it
  // Shells of an allocation have the number of nodes, too, and are no node.
  bool needs_node = false;
};

// Each process that a launcher starts is a node. The first row whose variables are there counts:
// mpirun may run below the others.
constexpr LauncherRow kLaunchers[] = {
    {.name = "mpirun",
     .node = "OMPI_COMM_WORLD_RANK",
     .num_nodes = "OMPI_COMM_WORLD_SIZE",
     .num_here = "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {.name = "mpirun", .node = "PMI_RANK", .num_nodes = "PMI_SIZE", .num_here = "MPI_LOCALNRANKS"},
    {.name = "LeaderWorkerSet",
     .node = "LWS_WORKER_INDEX",
     .num_nodes = "LWS_GROUP_SIZE",
     .hosts = {"LWS_LEADER_ADDRESS"}},
    {.name = "srun",
     .node = "SLURM_PROCID",
     .num_nodes = "SLURM_NTASKS",
     .hosts = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"},
     .has_host_list = true,
     .needs_node = true},
    {.name = "srun",
     .node = "SLURM_NODEID",
     .num_nodes = "SLURM_NNODES",
     .hosts = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"},
     .has_host_list = true,
     .needs_node = true},
};

const char* value_of(const Variable& variable, const char* name) {
  const char* const text = name ? variable(name) : nullptr;
  return text && *text ? text : nullptr;
}

int number_of(const char* name, std::string_view text, int low, int high) {
  int out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  require(error == std::errc() && end == text.data() + text.size() && out >= low && out <= high,
          "the launcher's {} is '{}', and not {} to {}", name, text, low, high);
  return out;
}

// The first variable that such a launcher sets beside others, and is missing; null: none is set, or
// all are.
const char* missing_variable(const LauncherRow& row, const Variable& variable) {
  const bool has_node = value_of(variable, row.node), has_count = value_of(variable, row.num_nodes);
  const bool has_host = !row.has_host_list && value_of(variable, row.hosts[0]);
  const bool is_set = has_node || (!row.needs_node && (has_count || has_host));
  if (!is_set) return nullptr;
  return !has_node ? row.node : !has_count ? row.num_nodes : nullptr;
}

void find_address(const LauncherRow& row, const Variable& variable, LauncherPlace& place) {
  for (const char* const name : row.hosts) {
    const char* const text = value_of(variable, name);
    if (!text) continue;
    const std::string host = row.has_host_list ? first_host(text) : text;
    require(!host.empty(), "the launcher's {} is '{}', which names no host; give --dist-init-addr",
            name, text);
    const bool is_ipv6 = host.find(':') != std::string::npos && host.front() != '[';
    place.address = fmt::format(fmt::runtime(is_ipv6 ? "[{}]:{}" : "{}:{}"), host, kLauncherPort);
    place.address_variable = name;
    return;
  }
}

}  // namespace

std::string first_host(std::string_view list) {
  std::string host;
  bool is_inside = false, is_done = false;  // of brackets; with their first number
  for (const char c : list) {
    if (is_inside) {
      is_inside = c != ']';
      is_done = is_done || c == ',' || c == '-';
      if (is_inside && !is_done) host += c;
    } else if (c == ',') {
      return host;
    } else if (c == '[') {
      is_inside = true;
      is_done = false;
    } else {
      host += c;
    }
  }
  return is_inside ? "" : host;
}

std::optional<LauncherPlace> launcher_place(const Variable& variable) {
  const LauncherRow* unfinished = nullptr;
  for (const LauncherRow& row : kLaunchers) {
    const char* const node = value_of(variable, row.node);
    const char* const num_nodes = value_of(variable, row.num_nodes);
    if (!unfinished && missing_variable(row, variable)) unfinished = &row;
    if (!node || !num_nodes) continue;
    // Slurm says twice which node this is.
    if (unfinished && std::string_view(unfinished->name) != row.name) break;
    LauncherPlace place{
        .launcher = row.name, .nodes_variable = row.num_nodes, .node_variable = row.node};
    place.num_nodes = number_of(row.num_nodes, num_nodes, 1, 64);
    place.node = number_of(row.node, node, 0, place.num_nodes - 1);
    if (const char* const here = value_of(variable, row.num_here))
      place.num_here = number_of(row.num_here, here, 1, place.num_nodes);
    find_address(row, variable, place);
    return place;
  }
  if (unfinished)
    fail(ErrorKind::kBadInput,
         "{} has set some variables of a node, and not {}; give --nnodes and --node-rank",
         unfinished->name, missing_variable(*unfinished, variable));
  return std::nullopt;
}

}  // namespace sluice
