// Questions to a Hugging Face hub: which commit a revision is, which files it has, where a file's
// bytes are, and the bytes.
//
//   HubClient client(open_curl_library(), settings, {});
//   const std::string commit = client.commit_of("org/name", "main");
//   for (const RepoFile& file : client.list_files("org/name", commit)) ...
//
// One thread at a time. Passing failures (a busy hub, a broken connection) are tried again with
// growing waits, as is what Retry-After asks; then, and for all else, Error{kBadInput} with what to
// do. The token goes to the hub's own scheme, host and port alone, never where a redirect leads; at
// most five redirects, none from https to http. Source: huggingface_hub, file_download.py
// (get_hf_file_metadata, http_get) and hf_api.py.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/hub_errors.h"
#include "hub/repo_files.h"

namespace sluice {

// Where a file's bytes are, and what names them.
struct FileSource {
  Url url;
  std::string etag;                   // of the file itself (X-Linked-Etag, else ETag)
  std::optional<std::uint64_t> size;  // X-Linked-Size, else Content-Length
  std::string commit;                 // X-Repo-Commit
};

class HubClient {
 public:
  // `stop`, where given, ends what runs (Error); it and `note`, which is told of waits and tries,
  // outlive the client.
  HubClient(std::shared_ptr<const CurlLibrary> library, const HubSettings& settings,
            std::function<void(const std::string&)> note, const std::atomic<bool>* stop = nullptr);

  std::string commit_of(const std::string& repo_id, const std::string& revision);
  // All files of the commit, each path once.
  std::vector<RepoFile> list_files(const std::string& repo_id, const std::string& commit);
  FileSource locate(const std::string& repo_id, const std::string& commit, const std::string& path);

  // One GET of bytes [first, last] of a file of `size` bytes, without another try: redirects are
  // followed and `source` remembers where they led.
  enum class Answer {
    kPart,   // the bytes asked for came (or as many as came before it broke)
    kWhole,  // the range was ignored: nothing was taken, the file must be read from its start
    kMoved,  // the place is no longer valid: locate again
    kFailed  // see `outcome`
  };
  struct Read {
    Answer answer = Answer::kFailed;
    TransferOutcome outcome;
  };
  // `takes_whole`: bytes of an answer that ignores the range are wanted too; it must then begin at
  // 0.
  Read read(FileSource& source, std::uint64_t first, std::uint64_t last, std::uint64_t size,
            bool takes_whole, const std::function<bool(std::span<const std::byte>)>& on_bytes);

  // Waits; false when `stop` was set meanwhile.
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
