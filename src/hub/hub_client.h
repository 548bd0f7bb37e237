// Queries to a Hugging Face hub: the commit of a revision, its files, the address of a file's
// bytes, and the bytes.
//
//   HubClient client(open_curl_library(), settings, {});
//   const std::string commit = client.commit_of("org/name", "main");
//   for (const RepoFile& file : client.list_files("org/name", commit)) ...
//
// One thread at a time. Temporary failures (a busy hub, a broken connection) are retried with
// increasing waits, or with the wait of Retry-After. After that, and for all other failures, the
// client throws Error{kBadInput} with what to do. The token goes only to the hub's own scheme, host
// and port, never to the target of a redirect. At most five redirects, none from https to http.
// Source: huggingface_hub, file_download.py (get_hf_file_metadata, http_get) and hf_api.py.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/hub_errors.h"
#include "hub/repo_files.h"

namespace sluice {

// The address of a file's bytes, and their digest.
struct FileSource {
  Url url;
  std::string etag;                   // digest of the file itself (X-Linked-Etag, else ETag)
  std::optional<std::uint64_t> size;  // X-Linked-Size, else Content-Length
  std::string commit;                 // X-Repo-Commit
};

class HubClient {
 public:
  // `stop`, if given, ends a running request (Error). `note` is told of waits and retries. Both
  // outlive the client.
  HubClient(std::shared_ptr<const CurlLibrary> library, const HubSettings& settings,
            std::function<void(const std::string&)> note, const std::atomic<bool>* stop = nullptr);

  std::string commit_of(const std::string& repo_id, const std::string& revision);
  // All files of the commit, each path once.
  std::vector<RepoFile> list_files(const std::string& repo_id, const std::string& commit);
  FileSource locate(const std::string& repo_id, const std::string& commit, const std::string& path);

  // The outcome of one GET of bytes [first, last] of a file of `size` bytes, without a retry.
  // Redirects are followed, and `source` remembers their target.
  enum class Answer {
    kPart,   // the requested bytes came (or as many as came before a failure)
    kWhole,  // the range was ignored: no byte was used, the file must be read from its start
    kMoved,  // the address is no longer valid: locate again
    kFailed  // see `outcome`
  };
  struct Read {
    Answer answer = Answer::kFailed;
    TransferOutcome outcome;
  };
  // `takes_whole`: also use the bytes of an answer that ignores the range; then the range must
  // begin at 0.
  Read read(FileSource& source, std::uint64_t first, std::uint64_t last, std::uint64_t size,
            bool takes_whole, const std::function<bool(std::span<const std::byte>)>& on_bytes);

  // Waits; false if `stop` was set meanwhile.
  bool pause(std::chrono::milliseconds time) const;
  const HubSettings& settings() const { return settings_; }

 private:
  TransferOutcome ask(Url url, bool head, const HubQuestion& question, Url* answered_by);
  std::string token_for(const Url& url) const;

  const HubSettings settings_;
  const std::function<void(const std::string&)> note_;
  const std::atomic<bool>* stop_;
  Url endpoint_;
  TransferSession session_;
};

}  // namespace sluice
