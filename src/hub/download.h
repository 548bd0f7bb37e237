// Downloads files of one commit of a hub repository into the cache. It uses several connections and
// fetches each file in pieces. It resumes interrupted downloads and verifies every file's digest
// before the file appears.
//
//   fetch_files({.library = ..., .settings = ..., .repo_id = "org/name",
//                .commit = commit, .files = files}, observer);
//
// Two processes may fetch the same files: a lock on each blob lets one process download it and the
// other find it. Error{kBadInput} says what failed and what to do; completed pieces stay for the
// next attempt.
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
  std::uint64_t done = 0;  // bytes on the disk
  bool started = false;
  bool finished = false;
  bool was_present = false;  // no byte of it had to be fetched
};

// The progress of a download.
struct DownloadProgress {
  std::string repo_id;
  std::vector<FileProgress> files;
  std::uint64_t size = 0;  // all files together
  std::uint64_t done = 0;
  std::uint64_t present = 0;  // the part of `done` that did not have to be fetched now
};

// Called by one thread at a time, on any thread.
struct DownloadObserver {
  // at most ten times a second, and when a file is finished
  std::function<void(const DownloadProgress&)> on_progress;
  std::function<void(const std::string&)> on_note;  // a wait, a retry
};

struct FetchPlan {
  std::shared_ptr<const CurlLibrary> library;
  HubSettings settings;
  std::string repo_id;
  std::string commit;
  std::vector<RepoFile> files;
};

// Returns when snapshots/<commit>/ has all files.
void fetch_files(const FetchPlan& plan, const DownloadObserver& observer);

}  // namespace sluice
