// The program on several hosts: which node it is, and what it does where that is not node 0.
//
//   Options options = with_launcher(options);      // before anything reads them
//   if (options.node() > 0) return run_node(options);
//
// Node 0 is the engine's process (engine/rank_process.h). Another node joins it, finds the model on
// its own host, starts its ranks, and ends with node 0.
#pragma once

#include "engine/options.h"

namespace sluice {

// The options with what they leave open about nodes, as the launcher's environment says it: only
// with a key file, since that is given for several hosts alone. Notes in the log what it took.
// Error{kBadInput}: the environment cannot be understood, or says half of it.
Options with_launcher(Options options);

// The whole life of a node beside the first; returns when node 0 has ended in order. A first signal
// to end is passed over, since it goes to all nodes; a second one ends the node. Error: what ended
// the ranks, on this node or another one.
int run_node(const Options& options);

}  // namespace sluice
