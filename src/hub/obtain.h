// From the MODEL argument of a command to a directory, or a GGUF file, on disk. Every command finds
// its model through this one function, which downloads a missing model.
//
//   ResolvedModel model = obtain_model({.model = "org/name"}, HubEnvironment::of_process());
//
// The order is: a local path; the cache, at the requested revision, without a request; the hub. A
// repository is a model if it has a config.json, or GGUF files. Missing files are downloaded, all
// of them or the rest of an interrupted download. Error{kBadInput} says what is missing where, why
// the hub did not give it, and what to do.
#pragma once

#include <string>
#include <vector>

#include "hub/download.h"
#include "hub/resolve.h"

namespace sluice {

struct ModelRequest {
  std::string model;                 // --model
  std::string revision;              // --revision; empty: main, or the part after '@'
  std::string load_format = "auto";  // a value of the option, load_format
  bool weights = true;               // false: configuration and tokenizer suffice
  bool text_only = false;            // a tokenizer suffices: no config.json is needed
  DownloadObserver observer;         // default: lines of the log
};
ResolvedModel obtain_model(const ModelRequest& request, const HubEnvironment& environment);

// `sluice pull`: asks the hub for the current commit of the revision, and downloads its missing
// files.
struct PullRequest {
  ModelName name;
  std::string load_format = "auto";
  bool weights = true;
  // globs: files that match one of them, instead of the selection by load format
  std::vector<std::string> include;
  std::vector<std::string> exclude;  // globs: files to leave out
  bool text_only = false;            // a tokenizer suffices: no config.json is needed
};
struct PulledModel {
  std::string commit;
  std::string snapshot;  // directory
  std::size_t num_files = 0;
  std::uint64_t bytes = 0;  // bytes of these files
};
PulledModel pull_model(const PullRequest& request, const HubSettings& settings,
                       const DownloadObserver& observer);

}  // namespace sluice
