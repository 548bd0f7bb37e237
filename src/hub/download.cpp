#include "hub/download.h"

#include <sys/stat.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.h"
#include "hub/file_lock.h"
#include "hub/hub_client.h"
#include "hub/partial_blob.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kConnections = 8;
constexpr int kMaxPlaces = 4;  // maximum number of redirects of a file's bytes to another address
// minimum progress between failures that counts as progress
constexpr std::uint64_t kProgressBytes = 64 << 10;
constexpr std::chrono::milliseconds kReportInterval{100};

bool has_size(const std::string& path, std::uint64_t size) {
  std::error_code error;
  return fs::is_regular_file(path, error) && fs::file_size(path, error) == size && !error;
}

// A file whose blob is being downloaded.
struct OpenFile {
  std::size_t index = 0;  // index in the plan
  std::string digest;
  std::optional<FileLock> lock;
  std::optional<PartialBlob> blob;
  std::mutex moving;  // held by the worker that asks the hub for a new address
  // Guarded by Pool::mutex_.
  FileSource source;
  int num_places = 1;  // addresses that `source` has had
  std::size_t next_piece = 0;
  int num_workers = 0;
  bool in_one = false;      // the server ignores ranges
  bool is_new_try = false;  // after a wrong digest
};

class Pool {
 public:
  Pool(const FetchPlan& plan, const DownloadObserver& observer)
      : plan_(plan), observer_(observer), cache_(plan.settings.cache, plan.repo_id) {
    progress_.repo_id = plan.repo_id;
    for (const RepoFile& file : plan.files) {
      progress_.files.push_back({file.path, file.size, 0, false, false, false});
      progress_.size += file.size;
    }
  }

  void run() {
    cache_.prepare();
    check_space();
    std::vector<std::thread> threads;
    const std::size_t num_threads = std::min<std::size_t>(kConnections, wanted_connections());
    for (std::size_t i = 0; i < num_threads; ++i) threads.emplace_back([this] { work(); });
    for (std::thread& thread : threads) thread.join();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::size_t wanted_connections() const {
    std::size_t pieces = 0;
    for (const RepoFile& file : plan_.files) pieces += 1 + file.size / piece_bytes_of(file.size);
    return pieces;
  }

  bool is_present(const RepoFile& file) const {
    return has_size(cache_.snapshot(plan_.commit) + '/' + file.path, file.size);
  }

  // Checks that the missing bytes fit on the disk.
  void check_space() const {
    std::uint64_t needed = 0;
    std::vector<std::string_view> digests;
    for (const RepoFile& file : plan_.files)
      if (!is_present(file) && !has_size(cache_.blob(file.digest()), file.size)) {
        needed += file.size;
        digests.push_back(file.digest());
      }
    std::uint64_t begun = 0;
    std::error_code error;
    for (fs::directory_iterator entry(cache_.folder() + "/blobs", error), end;
         !error && entry != end; entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      struct stat info{};
      if (name.ends_with(".incomplete") &&
          std::ranges::find(digests, std::string_view(name).substr(0, name.find('.'))) !=
              digests.end() &&
          ::lstat(entry->path().c_str(), &info) == 0)
        begun += static_cast<std::uint64_t>(info.st_blocks) * 512;
    }
    needed -= std::min(needed, begun);
    const std::uint64_t free = free_bytes(cache_.folder());
    require(needed <= free,
            "{} needs {:.2f} GiB more on the disk of {}, which has {:.2f} GiB free; make room "
            "(`sluice list` shows what is there, "
            "`sluice rm` removes it), or let --download-dir (or HF_HUB_CACHE) name a directory on "
            "a larger disk",
            plan_.repo_id, static_cast<double>(needed) / (1 << 30), plan_.settings.cache,
            static_cast<double>(free) / (1 << 30));
  }

  void work() {
    try {
      HubClient client(
          plan_.library, plan_.settings, [this](const std::string& text) { note(text); }, &stop_);
      for (Job job = take(); job.kind != Job::kNone; job = take()) {
        if (job.kind == Job::kOpen) job.file = open(client, job.number);
        if (job.file == nullptr) continue;
        if (job.kind == Job::kPiece && piece_is_wanted(*job.file, job.number))
          fetch_piece(client, *job.file, job.number);
        leave(job.file);
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      stop_ = true;
    }
    changed_.notify_all();
  }

  struct Job {
    enum Kind { kNone, kPiece, kOpen } kind = kNone;
    std::size_t number = 0;          // number of the piece, or of the file to open
    std::shared_ptr<OpenFile> file;  // file of the piece; counts this worker in its num_workers
  };

  // A piece of an open file, else the next file. Waits if there is neither, but other workers open
  // or fetch a file: that may still provide pieces. kNone: all is done, or something failed.
  Job take() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (stop_) return {};
      std::size_t piece = 0;
      if (std::shared_ptr<OpenFile> file = file_with_pieces(&piece)) {
        ++file->num_workers;
        return {Job::kPiece, piece, std::move(file)};
      }
      if (next_file_ < plan_.files.size()) {
        ++num_opening_;
        progress_.files[next_file_].started = true;
        return {Job::kOpen, next_file_++, nullptr};
      }
      if (num_opening_ == 0 && open_.empty()) return {};
      changed_.wait(lock);
    }
  }

  // The next piece that no worker has begun. mutex_ is held.
  std::shared_ptr<OpenFile> file_with_pieces(std::size_t* piece) {
    for (const std::shared_ptr<OpenFile>& file : open_) {
      while (!file->in_one && file->next_piece < file->blob->num_pieces()) {
        *piece = file->next_piece++;
        if (!file->blob->is_done(*piece)) return file;
      }
    }
    return nullptr;
  }

  bool piece_is_wanted(const OpenFile& file, std::size_t piece) {
    const std::lock_guard lock(mutex_);
    return !file.in_one && !file.blob->is_done(piece);
  }

  // Adds the file to the open files, with this worker in it; null if there is nothing left to
  // fetch.
  std::shared_ptr<OpenFile> open(HubClient& client, std::size_t index) {
    std::shared_ptr<OpenFile> file = open_file(client, index);
    {
      const std::lock_guard lock(mutex_);
      --num_opening_;
      if (file != nullptr) {
        open_.push_back(file);
        ++file->num_workers;
      }
    }
    changed_.notify_all();
    return file;
  }

  // Null if the file is already in the snapshot, or its blob existed and was linked.
  std::shared_ptr<OpenFile> open_file(HubClient& client, std::size_t index) {
    const RepoFile& wanted = plan_.files[index];
    if (is_present(wanted)) return finish_file(index, wanted.size), nullptr;
    if (!wanted.digest().empty() && has_size(cache_.blob(wanted.digest()), wanted.size)) {
      link(wanted, wanted.digest(), false);
      return finish_file(index, wanted.size), nullptr;
    }
    auto file = std::make_shared<OpenFile>();
    file->index = index;
    file->source = client.locate(plan_.repo_id, plan_.commit, wanted.path);
    file->digest = digest_of(wanted, file->source);
    require(!file->source.size || *file->source.size == wanted.size,
            "the hub says that {} of {} has {} bytes, and its list says {}; try again, or check "
            "HF_ENDPOINT",
            wanted.path, plan_.repo_id, file->source.size.value_or(0), wanted.size);
    file->lock.emplace(cache_.lock(file->digest), &stop_, [&] {
      note(fmt::format("another process is downloading {}: waiting for it", wanted.path));
    });
    if (has_size(cache_.blob(file->digest), wanted.size)) {
      link(wanted, file->digest, false);
      return finish_file(index, wanted.size), nullptr;
    }
    file->blob.emplace(cache_, file->digest, wanted.size, file->lock->is_real());
    const std::uint64_t done = file->blob->done_bytes();
    if (done > 0)
      note(fmt::format("{}: going on after {:.1f} of {:.1f} MiB", wanted.path,
                       static_cast<double>(done) / (1 << 20),
                       static_cast<double>(wanted.size) / (1 << 20)));
    add_progress(index, done, done);
    return file;
  }

  // The name and expected digest of the blob: the ETag if it is a digest. It must not contradict
  // the list.
  std::string digest_of(const RepoFile& wanted, const FileSource& source) const {
    const bool named = is_hex(source.etag, 40) || is_hex(source.etag, 64);
    const std::string& listed = wanted.digest();
    require(!named || source.etag.size() != listed.size() || source.etag == listed,
            "the hub says two things of {} of {}: its digest is {} and, in its list, {}; try "
            "again, or check HF_ENDPOINT",
            wanted.path, plan_.repo_id, source.etag, listed);
    require(named || !listed.empty(),
            "the hub gives no digest for {} of {}, so what it sends cannot be checked; check "
            "HF_ENDPOINT",
            wanted.path, plan_.repo_id);
    return named ? source.etag : listed;
  }

  // The last worker that leaves a complete file gives it its final name.
  void leave(const std::shared_ptr<OpenFile>& file) {
    PartialBlob& blob = *file->blob;
    blob.advance_digest();
    const RepoFile& wanted = plan_.files[file->index];
    {
      const std::lock_guard lock(mutex_);
      if (--file->num_workers > 0 || stop_ || blob.done_bytes() < wanted.size) return;
      ++file->num_workers;  // no other worker finishes it
    }
    if (!blob.finish()) {
      try_anew(*file);
      changed_.notify_all();
      return;
    }
    link(wanted, file->digest, true);
    {
      const std::lock_guard lock(mutex_);
      std::erase(open_, file);
    }
    file->lock.reset();
    finish_file(file->index, 0);
    changed_.notify_all();
  }

  void try_anew(OpenFile& file) {
    const RepoFile& wanted = plan_.files[file.index];
    require(!file.is_new_try,
            "what came for {} of {} is not what the hub says it is, twice: its digest is {}, and "
            "it should be {}; it was thrown away. "
            "Something on the way changes files (a proxy, a mirror, this machine's memory or "
            "disk): check HF_ENDPOINT and HTTPS_PROXY",
            wanted.path, plan_.repo_id, file.blob->found_digest(), file.digest);
    note(fmt::format("{}: the digest is wrong, so it is fetched anew", wanted.path));
    const std::lock_guard lock(mutex_);
    file.is_new_try = true;
    file.next_piece = 0;
    file.in_one = false;
    --file.num_workers;
    progress_.done -= progress_.files[file.index].done;
    progress_.files[file.index].done = 0;
  }

  void fetch_piece(HubClient& client, OpenFile& file, std::size_t piece) {
    const RepoFile& wanted = plan_.files[file.index];
    const std::uint64_t end = file.blob->end(piece);
    std::uint64_t at = file.blob->begin(piece), last_failure = at;
    Patience patience;
    while (at < end) {
      FileSource source = source_of(file);
      const Url before = source.url;
      const HubClient::Read read = client.read(source, at, end - 1, wanted.size, false,
                                               [&](std::span<const std::byte> bytes) {
                                                 file.blob->write(at, bytes);
                                                 at += bytes.size();
                                                 add_progress(file.index, bytes.size(), 0);
                                                 return !stop_.load();
                                               });
      if (read.answer == HubClient::Answer::kWhole) {
        {
          const std::lock_guard lock(mutex_);
          // another worker already reads it in one request
          if (std::exchange(file.in_one, true)) return;
        }
        fetch_in_one(client, file);
        return;
      }
      if (at == end) break;
      if (at - last_failure >= kProgressBytes) patience.reset();
      last_failure = at;
      recover(client, file, read, source, before, patience);
    }
    file.blob->mark_done(piece);
  }

  // A server that ignores ranges sends the whole file from its start on every request.
  void fetch_in_one(HubClient& client, OpenFile& file) {
    const RepoFile& wanted = plan_.files[file.index];
    note(fmt::format("{}: the server sends whole files only, so it cannot go on where it was",
                     wanted.path));
    Patience patience;
    for (std::uint64_t farthest = 0;;) {
      std::uint64_t at = 0;
      std::size_t piece = 0;
      FileSource source = source_of(file);
      const Url before = source.url;
      set_progress(file.index, 0);
      const HubClient::Read read = client.read(
          source, 0, wanted.size - 1, wanted.size, true, [&](std::span<const std::byte> bytes) {
            file.blob->write(at, bytes);
            at += bytes.size();
            add_progress(file.index, bytes.size(), 0);
            for (; piece < file.blob->num_pieces() && file.blob->end(piece) <= at; ++piece)
              file.blob->mark_done(piece);
            return !stop_.load();
          });
      if (at == wanted.size) return;
      if (at >= farthest + kProgressBytes) patience.reset();
      farthest = std::max(farthest, at);
      recover(client, file, read, source, before, patience);
    }
  }

  // After an incomplete transfer: waits, or finds the new address of the bytes, or throws.
  void recover(HubClient& client, OpenFile& file, const HubClient::Read& read,
               const FileSource& source, const Url& before, Patience& patience) {
    const RepoFile& wanted = plan_.files[file.index];
    const HubQuestion question{plan_.repo_id, plan_.commit, wanted.path};
    require(!stop_, "stopped");
    if (read.answer == HubClient::Answer::kMoved) return move(client, file, before);
    const int status = read.outcome.head.status();
    const bool is_transfer = read.outcome.error != TransferError::kNone;
    const std::string why = is_transfer
                                ? explain_transfer(read.outcome.error, read.outcome.detail,
                                                   source.url.host, plan_.settings)
                                : explain_status(read.outcome.head, question, plan_.settings);
    const int tries = is_transfer          ? tries_after(read.outcome.error)
                      : is_passing(status) ? Patience::kTries
                                           : 0;
    const auto wait =
        patience.next(tries, is_transfer ? std::nullopt : asked_to_wait(read.outcome.head));
    require(wait.has_value(), "{}: {}", wanted.path, why);
    note(fmt::format(
        "{}: {}; next try in {:.1f} s", wanted.path,
        is_transfer ? read.outcome.detail : fmt::format("{} answers {}", source.url.host, status),
        std::chrono::duration<double>(*wait).count()));
    require(client.pause(*wait), "stopped");
  }

  // Asks the hub again for the address of the bytes: storage addresses expire.
  void move(HubClient& client, OpenFile& file, const Url& before) {
    const RepoFile& wanted = plan_.files[file.index];
    const std::lock_guard moving(file.moving);
    {
      const std::lock_guard lock(mutex_);
      if (file.source.url.text() != before.text()) return;  // another worker has already asked
      require(++file.num_places <= kMaxPlaces,
              "the storage of {} of {} refuses what the hub says is there; try again later",
              wanted.path, plan_.repo_id);
    }
    const FileSource source = client.locate(plan_.repo_id, plan_.commit, wanted.path);
    const std::lock_guard lock(mutex_);
    require(
        source.etag == file.source.etag,
        "{} of {} has changed at the hub while it was downloaded (it was {}, it is {}); try again",
        wanted.path, plan_.repo_id, file.source.etag.substr(0, 80), source.etag.substr(0, 80));
    file.source = source;
  }

  FileSource source_of(OpenFile& file) {
    const std::lock_guard lock(mutex_);
    return file.source;
  }

  void link(const RepoFile& file, const std::string& digest, bool is_new) {
    cache_.link(plan_.commit, file.path, digest, plan_.settings.symlinks, is_new);
  }

  void add_progress(std::size_t index, std::uint64_t bytes, std::uint64_t present) {
    const std::lock_guard lock(mutex_);
    progress_.files[index].done += bytes;
    progress_.done += bytes;
    progress_.present += present;
    report(false);
  }

  void set_progress(std::size_t index, std::uint64_t done) {
    const std::lock_guard lock(mutex_);
    progress_.done += done - progress_.files[index].done;
    progress_.files[index].done = done;
  }

  void finish_file(std::size_t index, std::uint64_t present) {
    const std::lock_guard lock(mutex_);
    FileProgress& file = progress_.files[index];
    progress_.done += file.size - file.done;
    progress_.present += present;
    file.was_present = present == file.size;
    file.done = file.size;
    file.started = file.finished = true;
    report(true);
  }

  // mutex_ is held.
  void report(bool always) {
    const auto now = Clock::now();
    if (!observer_.on_progress || (!always && now - last_report_ < kReportInterval)) return;
    last_report_ = now;
    observer_.on_progress(progress_);
  }

  void note(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (observer_.on_note) observer_.on_note(text);
  }

  const FetchPlan& plan_;
  const DownloadObserver& observer_;
  const RepoCache cache_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::vector<std::shared_ptr<OpenFile>> open_;
  std::size_t next_file_ = 0;
  int num_opening_ = 0;
  DownloadProgress progress_;
  Clock::time_point last_report_{};
  std::exception_ptr error_;
};

}  // namespace

void fetch_files(const FetchPlan& plan, const DownloadObserver& observer) {
  if (!plan.files.empty()) Pool(plan, observer).run();
}

}  // namespace sluice
