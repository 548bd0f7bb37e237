// The cache that huggingface_hub reads and writes, so that models are shared with Python tools:
//
//   CACHEDIR.TAG
//   .locks/models--ORG--NAME/<etag>.lock
//   models--ORG--NAME/refs/<revision>                 the commit, 40 hexadecimal digits
//                     blobs/<etag>                    named by its digest
//                     blobs/<etag>.<8 digits>.incomplete   during a download
//                     snapshots/<commit>/path/file    a link to ../../../blobs/<etag>
//                     .no_exist/<commit>/file         empty: known to be absent
//                     trees/<commit>.json             the list of the commit's files
//
// Every entry appears by a rename. Paths within a repository are safe (is_safe_repo_path) and are
// created beneath the folder's descriptor without following links (R8). Any thread.
// Error{kBadInput} names the path and the reason. Source: huggingface_hub, file_download.py
// (_hf_hub_download_to_cache_dir, _create_symlink) and _tree_cache.py.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/repo_files.h"

namespace sluice {

// "org/name" -> "models--org--name".
std::string repo_folder_name(std::string_view repo_id);
// The inverse; empty if the name is not a folder of a model.
std::string repo_id_of_folder(std::string_view folder);

class RepoCache {
 public:
  // Creates nothing yet. The caller has checked `repo_id` and revisions (hub/resolve.h).
  RepoCache(std::string cache, std::string_view repo_id);

  const std::string& folder() const { return folder_; }
  std::string snapshot(std::string_view commit) const;
  std::string blob(std::string_view digest) const;
  std::string lock(std::string_view digest) const;

  // The commit of a branch or a tag; empty if the cache has no such reference.
  std::string read_ref(std::string_view revision) const;
  std::optional<std::vector<RepoFile>> read_tree(std::string_view commit) const;
  bool has_file(std::string_view commit, std::string_view path) const;  // false for a dangling link
  bool is_known_absent(std::string_view commit, std::string_view path) const;

  // Creates CACHEDIR.TAG and the folders that a download writes to. Missing space and rights show
  // here first.
  void prepare() const;
  void write_ref(std::string_view revision, std::string_view commit) const;
  void write_tree(std::string_view commit, const std::vector<RepoFile>& files) const;
  void mark_absent(std::string_view commit, std::string_view path) const;
  // Makes snapshots/<commit>/<path> the blob by a relative link. Without `symlinks` (or if the file
  // system has none) a new blob is moved, and a blob that another snapshot may have is copied.
  void link(std::string_view commit, std::string_view path, std::string_view digest, bool symlinks,
            bool is_new) const;

 private:
  std::string cache_;
  std::string name_;
  std::string folder_;
};

// Bytes that the user may still write to the file system of `path`, or of its nearest existing
// parent.
std::uint64_t free_bytes(const std::string& path);

}  // namespace sluice
