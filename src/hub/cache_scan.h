// What the Hugging Face cache holds, and how some of it is removed.
//
// Source: huggingface_hub, utils/_cache_manager.py (scan_cache_dir, HFCacheInfo.delete_revisions).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

struct CachedRevision {
  std::string commit;
  std::vector<std::string> refs;   // branches and tags that lead here
  std::vector<std::string> blobs;  // names in blobs/ of its files, each once, sorted
  std::size_t num_files = 0;
  std::uint64_t bytes = 0;         // of its blobs, and of files that are no links
  std::uint64_t own_bytes = 0;     // of the latter
  std::int64_t last_modified = 0;  // of its newest file, seconds since 1970
  bool has_model = false;          // a config.json or a GGUF file
  bool has_weights = false;        // all of one format
};

struct CachedRepo {
  std::string repo_id;
  std::string folder;
  std::vector<CachedRevision> revisions;  // the newest first
  std::uint64_t bytes = 0;  // of all blobs, complete or not, and of files that are no links
  std::uint64_t incomplete_bytes = 0;  // of downloads that were interrupted
};

// The models of the cache by name; folders of other things are left out. Empty where there is no
// cache.
std::vector<CachedRepo> scan_cache(const std::string& cache);

// One repository; Error{kBadInput} when the cache has none of that name.
CachedRepo scan_repo(const std::string& cache, std::string_view repo_id);

// What removing a revision would free: the blobs that no other revision of the repository has, and
// their bytes.
struct Removal {
  std::vector<std::string> blobs;
  std::uint64_t bytes = 0;
};
Removal plan_removal(const CachedRepo& repo, const CachedRevision& revision);
// Removing: Error{kBadInput} while another process downloads into the repository.
// Removes the references first and the blobs last, so that what is interrupted leaves nothing that
// looks whole.
void remove_revision(const CachedRepo& repo, const CachedRevision& revision,
                     const std::string& cache);
// One of a commit's several names, and nothing else.
void remove_reference(const CachedRepo& repo, const std::string& reference);
// All of it, with its locks.
void remove_repo(const CachedRepo& repo, const std::string& cache);

}  // namespace sluice
