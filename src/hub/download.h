// Files of one commit of a hub's repository, fetched into the cache: several connections at once,
// each file in pieces, what was interrupted is gone on with, every file's digest is checked before
// it appears.
//
//   fetch_files({.library = ..., .settings = ..., .repo_id = "org/name", .commit = commit, .files =
//   files}, observer);
//
// Two processes may fetch the same: a lock on each blob lets one download it and the other find it.
// Error{kBadInput} says what failed and what to do; what has come stays for the next try.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hub/hub_environment.h"
#include "hub/repo_files.h"
#include "hub/transfer.h"

namespace sluice {

struct FileProgress {
  std::string path;
  std::uint64_t size = 0;  // bytes
  std::uint64_t done = 0;  // of them on the disk
  bool started = false;
  bool finished = false;
  bool was_present = false;  // nothing of it had to be fetched
};

// How far a download is.
struct DownloadProgress {
  std::string repo_id;
  std::vector<FileProgress> files;
  std::uint64_t size = 0;  // of all files
  std::uint64_t done = 0;
  std::uint64_t present = 0;  // of `done` what had not to be fetched now
};

// Called by one thread at a time, any thread.
struct DownloadObserver {
  // at most ten times a second, and when a file is finished
  std::function<void(const DownloadProgress&)> on_progress;
  std::function<void(const std::string&)> on_note;  // a wait, another try
};

struct FetchPlan {
  std::shared_ptr<const CurlLibrary> library;
  HubSettings settings;
  std::string repo_id;
  std::string commit;
  std::vector<RepoFile> files;
};

// Returns when snapshots/<commit>/ has all of them.
void fetch_files(const FetchPlan& plan, const DownloadObserver& observer);

}  // namespace sluice
