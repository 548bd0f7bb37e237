// `sluice rm`: removes a model of the cache, or one revision of it.
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "cli/download_bars.h"
#include "cli/verbs.h"
#include "hub/cache_scan.h"
#include "hub/resolve.h"
#include "runtime/memory_plan.h"

namespace sluice {
namespace {

std::string bytes(std::uint64_t count) {
  return format_bytes(static_cast<std::int64_t>(count));
}

bool confirmed(const Arguments& arguments) {
  if (arguments.has("yes")) return true;
  if (isatty(STDIN_FILENO) == 0)
    throw UsageError("nobody is there to be asked", "add --yes to remove without a question");
  fmt::print(stderr, "Remove it? [y/N] ");
  std::fflush(stderr);
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

// By branch, tag, commit or the beginning of a commit.
const CachedRevision& find_revision(const CachedRepo& repo, const std::string& wanted) {
  constexpr std::size_t kShortest = 6;
  const CachedRevision* found = nullptr;
  for (const CachedRevision& revision : repo.revisions) {
    const bool is_named = std::ranges::find(revision.refs, wanted) != revision.refs.end();
    if (is_named) return revision;
    if (wanted.size() < kShortest || !revision.commit.starts_with(wanted)) continue;
    require(found == nullptr, "\"{}\" begins several commits of {}; give more of it", wanted,
            repo.repo_id);
    found = &revision;
  }
  require(found != nullptr,
          "the cache has no revision {} of {}; `sluice list` shows those that it has", wanted,
          repo.repo_id);
  return *found;
}

}  // namespace

int run_rm(const Arguments& arguments) {
  if (arguments.positional.empty())
    throw UsageError("no model was named", "sluice rm ORG/NAME; sluice list shows what is there");
  const std::string revision = arguments.get("revision");
  const std::string& named = arguments.positional[0];
  const ModelName name = parse_model_name(named, revision);
  require(name.tag.empty(),
          "rm removes a model or one revision of it, not \"{}\" of it alone; give {}", name.tag,
          name.repo_id);
  const bool one_revision = !revision.empty() || named.find('@') != std::string::npos;
  const std::string cache = hub_environment(arguments).cache_directory();
  const CachedRepo repo = scan_repo(cache, name.repo_id);
  if (one_revision) {
    const CachedRevision& chosen = find_revision(repo, name.revision);
    if (std::ranges::find(chosen.refs, name.revision) != chosen.refs.end() &&
        chosen.refs.size() > 1) {
      std::vector<std::string> others = chosen.refs;
      std::erase(others, name.revision);
      fmt::print(stderr,
                 "{} at {}: only the name goes; its files stay, since {} leads to them too\n",
                 repo.repo_id, name.revision, fmt::join(others, ", "));
      if (!confirmed(arguments)) return 1;
      remove_reference(repo, name.revision);
      return 0;
    }
    const Removal removal = plan_removal(repo, chosen);
    fmt::print(stderr, "{} at {}: {} in {} files that no other revision has, of {}\n", repo.repo_id,
               chosen.commit, bytes(removal.bytes), removal.blobs.size(), cache);
    if (!confirmed(arguments)) return 1;
    if (repo.revisions.size() == 1)
      remove_repo(repo, cache);
    else
      remove_revision(repo, chosen, cache);
    fmt::print(stderr, "removed: {} are free again\n", bytes(removal.bytes));
    return 0;
  }
  fmt::print(stderr, "{}: {} in {} revision{}, of {}\n", repo.repo_id, bytes(repo.bytes),
             repo.revisions.size(), repo.revisions.size() == 1 ? "" : "s", cache);
  if (!confirmed(arguments)) return 1;
  remove_repo(repo, cache);
  fmt::print(stderr, "removed: {} are free again\n", bytes(repo.bytes));
  return 0;
}

}  // namespace sluice
