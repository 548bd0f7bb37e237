// The contents of the Hugging Face cache, and removal of parts of it.
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
  std::vector<std::string> refs;   // branches and tags that point here
  std::vector<std::string> blobs;  // names of its files in blobs/, each once, sorted
  std::size_t num_files = 0;
  std::uint64_t bytes = 0;         // its blobs, and its files that are not links
  std::uint64_t own_bytes = 0;     // files that are not links
  std::int64_t last_modified = 0;  // time of its newest file, seconds since 1970
  bool has_model = false;          // a config.json or a GGUF file
  bool has_weights = false;        // all weight files of one format
};

struct CachedRepo {
  std::string repo_id;
  std::string folder;
  std::vector<CachedRevision> revisions;  // the newest first
  std::uint64_t bytes = 0;             // all blobs, complete or not, and files that are not links
  std::uint64_t incomplete_bytes = 0;  // interrupted downloads
};

// The models of the cache by name; other folders are ignored. Empty if there is no cache.
std::vector<CachedRepo> scan_cache(const std::string& cache);

// One repository; Error{kBadInput} if the cache has none of that name.
CachedRepo scan_repo(const std::string& cache, std::string_view repo_id);

// The effect of removing a revision: the blobs that no other revision of the repository has, and
// their bytes.
struct Removal {
  std::vector<std::string> blobs;
  std::uint64_t bytes = 0;
};
Removal plan_removal(const CachedRepo& repo, const CachedRevision& revision);
// Removes a revision. Error{kBadInput} while another process downloads into the repository.
// References go first and blobs last, so that an interrupted removal leaves nothing that looks
// whole.
void remove_revision(const CachedRepo& repo, const CachedRevision& revision,
                     const std::string& cache);
// Removes one of several names of a commit, and nothing else.
void remove_reference(const CachedRepo& repo, const std::string& reference);
// Removes the whole repository, with its locks.
void remove_repo(const CachedRepo& repo, const std::string& cache);

}  // namespace sluice
