// How a download is shown, and the way in which commands get their model.
//
//   DownloadBars bars(stderr);
//   pull_model(request, settings, bars.observer());
#pragma once

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "engine/options.h"
#include "hub/hub_environment.h"
#include "hub/obtain.h"

namespace sluice {

// On a terminal a live bar for each file that is on its way and one for all, elsewhere a line for
// each file that has come and one every ten seconds. The observer may be called by any thread, one
// at a time.
class DownloadBars {
 public:
  explicit DownloadBars(std::FILE* out);
  DownloadBars(std::FILE* out, bool is_terminal, int columns);
  ~DownloadBars() { clear(); }
  DownloadBars(const DownloadBars&) = delete;
  DownloadBars& operator=(const DownloadBars&) = delete;

  DownloadObserver observer();

 private:
  void show(const DownloadProgress& progress);
  void say(const std::string& line);
  void clear();

  std::FILE* out_;
  bool is_terminal_;
  int columns_;                    // 0: ask the terminal
  int num_lines_ = 0;              // of bars on the screen
  std::vector<std::string> told_;  // files whose end was told
  std::chrono::steady_clock::time_point began_, last_line_;
  std::string began_for_;  // the first file of the list that `began_` belongs to
};

// "model-00001-of-00004.safetensors [####......]  41 %  1.2 of 3.0 GiB", at most `width` columns; a
// long name loses its middle.
std::string download_line(std::string_view name, std::uint64_t done, std::uint64_t size,
                          std::string_view more, int width);

// The model of --model, fetched with bars on standard error where it is not there. `weights` false:
// the configuration and the tokenizer will do.
ResolvedModel obtain_model(const Options& options, bool weights = true);
// The folder of --tokenizer-path, else of --model.
ResolvedModel obtain_tokenizer(const Options& options);
// The same for verbs that have a flag for it and take no options.
HubEnvironment hub_environment(const Arguments& arguments);
// Without the network.
ResolvedModel find_model(const Options& options);

}  // namespace sluice
