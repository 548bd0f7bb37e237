#include "engine/hosts/node.h"

#include <fmt/ranges.h>
#include <signal.h>

#include <cstdlib>

#include "base/log.h"
#include "distributed/hosts/launcher_place.h"
#include "engine/draft_choice.h"
#include "engine/model_choice.h"
#include "engine/model_request.h"
#include "engine/rank_process.h"

namespace sluice {
namespace {

// SIGTERM and SIGINT, blocked for every thread that starts after this.
class EndSignals {
 public:
  EndSignals() {
    sigemptyset(&wanted_);
    sigaddset(&wanted_, SIGTERM);
    sigaddset(&wanted_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &wanted_, nullptr);
  }
  // Whether one came within a tenth of a second.
  bool wait() const {
    const timespec nap{.tv_sec = 0, .tv_nsec = 100'000'000};
    return sigtimedwait(&wanted_, nullptr, &nap) > 0;
  }

 private:
  sigset_t wanted_;
};

// With what a launcher says where the options say nothing.
Options filled(Options options, const LauncherPlace& place) {
  std::vector<std::string> taken;
  const auto note = [&](std::string_view option, const auto& value, const std::string& variable) {
    taken.push_back(fmt::format("--{} {} ({})", option, value, variable));
  };
  if (options.nnodes == 0) {
    options.nnodes = place.num_nodes;
    note("nnodes", place.num_nodes, place.nodes_variable);
  }
  if (options.node_rank < 0) {
    options.node_rank = place.node;
    note("node-rank", place.node, place.node_variable);
  }
  if (options.dist_init_addr.empty() && !place.address.empty()) {
    options.dist_init_addr = place.address;
    note("dist-init-addr", place.address, place.address_variable);
  }
  if (!taken.empty()) log_info("{} says: {}", place.launcher, fmt::join(taken, ", "));
  if (place.num_here > 1)
    log_warning("{} started {} nodes on this host; one would do, whose ranks share memory",
                place.launcher, place.num_here);
  return options;
}

// Until node 0 has ended, or the ranks have failed.
void watch(const HostBridge& bridge, SharedRegion& region, const EndSignals& signals) {
  int num_signals = 0;
  while (!bridge.has_ended() && !region.failure()) {
    if (!signals.wait()) continue;
    if (++num_signals == 1)
      log_info("this node ends with node 0; a second signal ends it, and so the server, now");
    else
      region.fail(ErrorKind::kFatal, "the node was ended by a signal");
  }
}

}  // namespace

Options with_launcher(Options options) {
  const std::string key_file = options.dist_key_file;
  const bool is_open = options.nnodes == 0 || options.node_rank < 0;
  if (!key_file.empty() && (is_open || options.dist_init_addr.empty())) {
    if (const std::optional<LauncherPlace> place = launcher_place(std::getenv))
      options = filled(std::move(options), *place);
  }
  if (options.num_nodes() == 1 && (!key_file.empty() || !options.dist_init_addr.empty()))
    log_warning("there is one node, so that none is joined: --nnodes says how many there are");
  return options;
}

int run_node(const Options& options) {
  require_nodes(options);
  const NodeLayout layout = layout_of(options);
  const int node = options.node(), first = layout.first_rank(node);
  const HostAddress address = HostAddress::parse(options.dist_init_addr);
  log_info("node {} of {} has ranks {} to {}, and no server; node 0 is at {}", node,
           layout.num_nodes, first, first + layout.ranks_of_node() - 1, address.text());
  std::unique_ptr<SecureSocket> node_0 =
      join(address, NodeKey::read(options.dist_key_file), launch_of(options),
           std::chrono::duration<double>(options.dist_timeout_s));
  log_info("joined node 0 ({})", node_0->peer());
  ModelDirectories directories;
  try {
    directories.model = obtain_model(model_request(options), hub_environment(options)).directory;
    (void)read_model_config(options, directories.model);
    directories.draft = obtain_draft(options);
  } catch (const Error& error) {
    say_failure(*node_0, error);
    throw;
  }
  say_ready(*node_0);
  await_start(*node_0);

  const EndSignals signals;
  const std::unique_ptr<RankProcesses> processes = start_own_ranks(options, directories);
  std::vector<JoinedNode> peers;
  peers.push_back({.node = 0, .socket = std::move(node_0)});
  HostBridge bridge(*processes, layout, node, std::move(peers));
  log_info("ranks {} to {} run", first, first + layout.ranks_of_node() - 1);
  watch(bridge, processes->region(), signals);
  bridge.stop_messages();
  processes->end();
  if (const std::optional<RankFailure> why = processes->region().failure())
    throw Error(why->kind, why->text);
  log_info("node 0 has ended, and so does this one");
  return 0;
}

}  // namespace sluice
