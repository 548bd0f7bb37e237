#include "hub/cache_scan.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "hub/file_lock.h"
#include "hub/hub_cache.h"
#include "hub/resolve.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

std::uint64_t bytes_on_disk(const fs::path& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)
             ? static_cast<std::uint64_t>(info.st_size)
             : 0;
}

// Visits every entry beneath a folder; errors end it early.
template <class Visit>
void for_each_beneath(const fs::path& folder, Visit visit) {
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    visit(*entry);
}

template <class Visit>
void for_each_in(const fs::path& folder, Visit visit) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    visit(*entry);
}

CachedRevision scan_revision(const std::string& cache, const CachedRepo& repo,
                             const fs::path& snapshot) {
  CachedRevision revision;
  revision.commit = snapshot.filename().string();
  for_each_beneath(snapshot, [&](const fs::directory_entry& entry) {
    std::error_code error;
    if (!entry.is_regular_file(error)) return;  // a dangling link does not count
    ++revision.num_files;
    struct stat info{};
    if (::stat(entry.path().c_str(), &info) == 0)
      revision.last_modified = std::max<std::int64_t>(revision.last_modified, info.st_mtime);
    if (entry.is_symlink(error))
      revision.blobs.push_back(fs::read_symlink(entry.path(), error).filename().string());
    else
      revision.own_bytes += bytes_on_disk(entry.path());
  });
  revision.bytes = revision.own_bytes;
  std::ranges::sort(revision.blobs);
  revision.blobs.erase(std::unique(revision.blobs.begin(), revision.blobs.end()),
                       revision.blobs.end());
  for (const std::string& blob : revision.blobs)
    revision.bytes += bytes_on_disk(fs::path(repo.folder) / "blobs" / blob);
  try {
    const CachedModel found = find_cached_model({repo.repo_id, "", revision.commit}, "auto", cache);
    revision.has_model = found.model.has_value();
    revision.has_weights = revision.has_model && found.has_weights;
  } catch (const Error&) {
    revision.has_model = revision.has_weights = true;  // several GGUF files: the user selects one
  }
  return revision;
}

CachedRepo scan_folder(const std::string& cache, const fs::path& folder,
                       const std::string& repo_id) {
  CachedRepo repo;
  repo.repo_id = repo_id;
  repo.folder = folder.string();
  for_each_in(folder / "snapshots", [&](const fs::directory_entry& entry) {
    std::error_code error;
    if (entry.is_directory(error))
      repo.revisions.push_back(scan_revision(cache, repo, entry.path()));
  });
  for_each_beneath(folder / "refs", [&](const fs::directory_entry& entry) {
    std::error_code error;
    if (!entry.is_regular_file(error)) return;
    const std::string name = fs::relative(entry.path(), folder / "refs", error).string();
    if (!is_revision(name)) return;
    std::string commit;
    try {
      commit = RepoCache(cache, repo_id).read_ref(name);
    } catch (const Error&) {
      return;
    }
    for (CachedRevision& revision : repo.revisions)
      if (revision.commit == commit) revision.refs.push_back(name);
  });
  for_each_in(folder / "blobs", [&](const fs::directory_entry& entry) {
    const std::string name = entry.path().filename().string();
    struct stat info{};
    if (name.ends_with(".incomplete") && ::lstat(entry.path().c_str(), &info) == 0) {
      // it may have holes
      const std::uint64_t bytes = static_cast<std::uint64_t>(info.st_blocks) * 512;
      repo.incomplete_bytes += bytes;
      repo.bytes += bytes;
    } else {
      repo.bytes += bytes_on_disk(entry.path());
    }
  });
  for (CachedRevision& revision : repo.revisions) {
    repo.bytes += revision.own_bytes;
    std::ranges::sort(revision.refs);
  }
  std::ranges::sort(repo.revisions, std::greater<>(), &CachedRevision::last_modified);
  return repo;
}

void erase_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  require(!error, "cannot remove {}: {}", path.string(), error.message());
}

fs::path locks_of(const CachedRepo& repo, const std::string& cache) {
  return fs::path(cache) / ".locks" / fs::path(repo.folder).filename();
}

void require_idle(const CachedRepo& repo, const std::string& cache) {
  for_each_in(locks_of(repo, cache), [&](const fs::directory_entry& entry) {
    require(
        !is_locked(entry.path().string()),
        "another process is downloading {} (it holds {}); let it end, or stop it, and try again",
        repo.repo_id, entry.path().string());
  });
}

}  // namespace

std::vector<CachedRepo> scan_cache(const std::string& cache) {
  std::vector<CachedRepo> repos;
  for_each_in(cache, [&](const fs::directory_entry& entry) {
    const std::string repo_id = repo_id_of_folder(entry.path().filename().string());
    std::error_code error;
    if (!repo_id.empty() && is_repo_id(repo_id) && entry.is_directory(error))
      repos.push_back(scan_folder(cache, entry.path(), repo_id));
  });
  std::ranges::sort(repos, {}, &CachedRepo::repo_id);
  return repos;
}

CachedRepo scan_repo(const std::string& cache, std::string_view repo_id) {
  const RepoCache repo(cache, repo_id);
  std::error_code error;
  require(fs::is_directory(repo.folder(), error),
          "the cache {} has no model {}; `sluice list` shows what it has", cache, repo_id);
  return scan_folder(cache, repo.folder(), std::string(repo_id));
}

Removal plan_removal(const CachedRepo& repo, const CachedRevision& revision) {
  Removal removal;
  removal.bytes = revision.own_bytes;
  for (const std::string& blob : revision.blobs) {
    const bool is_shared = std::ranges::any_of(repo.revisions, [&](const CachedRevision& other) {
      return other.commit != revision.commit && std::ranges::binary_search(other.blobs, blob);
    });
    if (is_shared) continue;
    removal.blobs.push_back(blob);
    removal.bytes += bytes_on_disk(fs::path(repo.folder) / "blobs" / blob);
  }
  return removal;
}

void remove_revision(const CachedRepo& repo, const CachedRevision& revision,
                     const std::string& cache) {
  const fs::path folder = repo.folder;
  require_idle(repo, cache);
  const Removal removal = plan_removal(repo, revision);
  for (const std::string& ref : revision.refs) erase_tree(folder / "refs" / ref);
  for (const char* part : {"snapshots", ".no_exist"}) erase_tree(folder / part / revision.commit);
  erase_tree(folder / "trees" / (revision.commit + ".json"));
  for (const std::string& blob : removal.blobs) erase_tree(folder / "blobs" / blob);
}

void remove_reference(const CachedRepo& repo, const std::string& reference) {
  erase_tree(fs::path(repo.folder) / "refs" / reference);
}

void remove_repo(const CachedRepo& repo, const std::string& cache) {
  require_idle(repo, cache);
  std::error_code error;
  // The folder may be a link to another disk.
  const fs::path real = fs::canonical(repo.folder, error);
  if (!error) erase_tree(real);
  erase_tree(repo.folder);
  erase_tree(locks_of(repo, cache));
}

}  // namespace sluice
