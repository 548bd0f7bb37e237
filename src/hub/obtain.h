// From the MODEL argument of a command to a directory, or a GGUF file, on disk: the one function
// through which every command finds its model, and downloads it when it is not there.
//
//   ResolvedModel model = obtain_model({.model = "org/name"}, HubEnvironment::of_process());
//
// In this order: a local path; the cache, at the wanted revision, without asking anybody; the hub.
// A repository is a model when it has a config.json, or GGUF files. What the cache lacks is
// fetched, be it all or the rest of an interrupted download. Error{kBadInput} says what is missing
// where, why the hub did not give it, and what to do.
#pragma once

#include <string>
#include <vector>

#include "hub/download.h"
#include "hub/resolve.h"

namespace sluice {

struct ModelRequest {
  std::string model;                 // --model
  std::string revision;              // --revision; empty: main, or what follows '@'
  std::string load_format = "auto";  // --load-format
  bool weights = true;               // false: the configuration and the tokenizer will do
  bool text_only = false;            // a tokenizer is wanted, not a model: it needs no config.json
  DownloadObserver observer;         // default: lines of the log
};
ResolvedModel obtain_model(const ModelRequest& request, const HubEnvironment& environment);

// `sluice pull`: asks the hub which commit the revision is now, and fetches what of it is not
// there.
struct PullRequest {
  ModelName name;
  std::string load_format = "auto";
  bool weights = true;
  // globs: what matches one of them, instead of what the load format chooses
  std::vector<std::string> include;
  std::vector<std::string> exclude;  // globs: without these
  bool text_only = false;            // as above
};
struct PulledModel {
  std::string commit;
  std::string snapshot;  // directory
  std::size_t num_files = 0;
  std::uint64_t bytes = 0;  // of these files
};
PulledModel pull_model(const PullRequest& request, const HubSettings& settings,
                       const DownloadObserver& observer);

}  // namespace sluice
