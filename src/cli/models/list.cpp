// `sluice list`: the models of the cache.
#include <algorithm>
#include <ctime>

#include <fmt/ranges.h>

#include "base/json.h"
#include "cli/download_bars.h"
#include "cli/verbs.h"
#include "hub/cache_scan.h"
#include "runtime/memory_plan.h"

namespace sluice {
namespace {

std::string bytes(std::uint64_t count) {
  return format_bytes(static_cast<std::int64_t>(count));
}

std::string date_of(std::int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  localtime_r(&time, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d", &parts)};
}

std::string names_of(const CachedRevision& revision) {
  return revision.refs.empty() ? "-" : fmt::format("{}", fmt::join(revision.refs, ","));
}

std::string_view state_of(const CachedRevision& revision) {
  return !revision.has_model ? "incomplete" : !revision.has_weights ? "no weights" : "complete";
}

Json json_of(const CachedRepo& repo) {
  Json revisions = Json::array();
  for (const CachedRevision& r : repo.revisions)
    revisions.push_back({{"commit", r.commit},
                         {"refs", r.refs},
                         {"files", r.num_files},
                         {"bytes", r.bytes},
                         {"last_modified", r.last_modified},
                         {"state", state_of(r)}});
  return {{"model", repo.repo_id},
          {"bytes", repo.bytes},
          {"incomplete_bytes", repo.incomplete_bytes},
          {"folder", repo.folder},
          {"revisions", std::move(revisions)}};
}

}  // namespace

int run_list(const Arguments& arguments) {
  const std::string cache = hub_environment(arguments).cache_directory();
  const std::vector<CachedRepo> repos = scan_cache(cache);
  if (arguments.has("json")) {
    Json all = Json::array();
    for (const CachedRepo& repo : repos) all.push_back(json_of(repo));
    fmt::print("{}\n", dump_json(all));
    return 0;
  }
  std::size_t width = 5, names_width = 16;
  std::uint64_t sum = 0;
  for (const CachedRepo& repo : repos) {
    width = std::max(width, repo.repo_id.size());
    for (const CachedRevision& r : repo.revisions)
      names_width = std::max(names_width, names_of(r).size());
  }
  const auto print_row = [&](std::string_view model, std::string_view names,
                             std::string_view commit, std::string_view size,
                             std::string_view modified, std::string_view state) {
    fmt::print("{:<{}}  {:<{}}  {:<8}  {:>10}  {:<10}  {}\n", model, width, names, names_width,
               commit, size, modified, state);
  };
  if (!repos.empty()) print_row("model", "revision", "commit", "size", "modified", "state");
  for (const CachedRepo& repo : repos) {
    sum += repo.bytes;
    for (const CachedRevision& r : repo.revisions)
      print_row(repo.repo_id, names_of(r), r.commit.substr(0, 8), bytes(r.bytes),
                date_of(r.last_modified), state_of(r));
    if (repo.incomplete_bytes > 0)
      print_row(repo.repo_id, "(interrupted)", "", bytes(repo.incomplete_bytes), "",
                fmt::format("sluice pull {} goes on", repo.repo_id));
    else if (repo.revisions.empty())
      print_row(repo.repo_id, "-", "", bytes(repo.bytes), "", "no revision");
  }
  fmt::print("{} model{}, {}, in {}\n", repos.size(), repos.size() == 1 ? "" : "s", bytes(sum),
             cache);
  if (repos.empty()) fmt::print(stderr, "hint: sluice pull ORG/NAME downloads a model\n");
  return 0;
}

}  // namespace sluice
