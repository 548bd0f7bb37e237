// `sluice pull`: brings a model of the hub into the cache, or up to date.
#include <chrono>
#include <filesystem>

#include "checkpoint/files/weight_choice.h"
#include "cli/download_bars.h"
#include "cli/verbs.h"
#include "hub/file_choice.h"
#include "hub/resolve.h"
#include "runtime/memory_plan.h"

namespace sluice {

int run_pull(const Arguments& arguments) {
  if (arguments.positional.empty())
    throw UsageError(
        "no model was named",
        "sluice pull ORG/NAME, with :TAG for one of several GGUF files and @REVISION or not");
  const std::string& model = arguments.positional[0];
  if (model.find('@') == std::string::npos && std::filesystem::exists(model))
    throw UsageError(fmt::format("{} is on this machine's disk, so nothing is downloaded", model),
                     fmt::format("for the hub's model write {}@main", model));
  refuse_slip(model, fmt::format("the hub is not asked for {}", model));
  PullRequest request;
  request.name = parse_model_name(model, arguments.get("revision"));
  request.load_format = arguments.get("load-format", "auto");
  formats_of(request.load_format);  // refused before the network is asked
  for (const auto& [flag, globs] :
       {std::pair("include", &request.include), std::pair("exclude", &request.exclude)})
    if (arguments.has(flag)) *globs = arguments.values.at(flag);
  const HubSettings settings = hub_environment(arguments).settings();
  const auto begin = std::chrono::steady_clock::now();
  PulledModel pulled;
  {
    DownloadBars bars(stderr);
    pulled = pull_model(request, settings, bars.observer());
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  fmt::print(stderr, "{} at {}: {} files, {}, {:.1f} s\n", request.name.repo_id, pulled.commit,
             pulled.num_files, format_bytes(static_cast<std::int64_t>(pulled.bytes)), took.count());
  fmt::print("{}\n", pulled.snapshot);  // for scripts
  return 0;
}

}  // namespace sluice
