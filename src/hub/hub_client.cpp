#include "hub/hub_client.h"

#include <algorithm>
#include <thread>

#include "base/error.h"

namespace sluice {
namespace {

constexpr int kMaxRedirects = 5;
constexpr std::chrono::seconds kPageTimeout{120};

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}
bool is_success(int status) {
  return status >= 200 && status < 300;
}

// The target of a redirect.
std::optional<Url> next_place(const Url& from, const HttpHead& head) {
  std::optional<Url> next = resolve_location(from, head.get("Location"));
  return next && from.scheme == "https" && next->scheme != "https" ? std::nullopt : next;
}

}  // namespace

HubClient::HubClient(std::shared_ptr<const CurlLibrary> library, const HubSettings& settings,
                     std::function<void(const std::string&)> note, const std::atomic<bool>* stop)
    : settings_(settings),
      note_(std::move(note)),
      stop_(stop),
      session_(std::move(library), settings, stop) {
  const std::optional<Url> endpoint = parse_hub_url(settings.endpoint);
  require(endpoint.has_value(), "HF_ENDPOINT is \"{}\", which is no URL", settings.endpoint);
  endpoint_ = *endpoint;
  if (endpoint_.target == "/") endpoint_.target.clear();
}

std::string HubClient::token_for(const Url& url) const {
  return same_origin(url, endpoint_) ? settings_.token : "";
}

bool HubClient::pause(std::chrono::milliseconds time) const {
  constexpr std::chrono::milliseconds kStep{20};
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
    if (stop_ != nullptr && stop_->load()) return false;
    std::this_thread::sleep_for(std::min(time, kStep));
  }
  return true;
}

TransferOutcome HubClient::ask(Url url, bool head, const HubQuestion& question, Url* answered_by) {
  Patience patience;
  for (int redirects = 0;;) {
    TransferRequest request;
    request.url = url.text();
    request.head = head;
    request.token = token_for(url);
    request.connect_timeout = request.idle_timeout = settings_.etag_timeout;
    request.total_timeout = head ? settings_.etag_timeout : kPageTimeout;
    request.max_body_bytes = RepoLimits{}.max_page_bytes;
    TransferOutcome outcome = session_.perform(request, {});
    const int status = outcome.head.status();
    const bool answered = outcome.error == TransferError::kNone;
    if (answered && is_success(status)) {
      if (answered_by != nullptr) *answered_by = url;
      return outcome;
    }
    if (answered && is_redirect(status)) {
      const std::optional<Url> next = next_place(url, outcome.head);
      require(next.has_value() && ++redirects <= kMaxRedirects, "{}",
              explain_status(outcome.head, question, settings_));
      // If the bytes are on another host, the hub's own answer has all properties of the file.
      if (head && !same_origin(*next, url) &&
          (outcome.head.has("X-Linked-Etag") || outcome.head.has("ETag"))) {
        *answered_by = *next;
        return outcome;
      }
      url = *next;
      continue;
    }
    const bool passing = answered ? is_passing(status) : tries_after(outcome.error) > 0;
    const auto wait = patience.next(answered ? Patience::kTries : tries_after(outcome.error),
                                    answered ? asked_to_wait(outcome.head) : std::nullopt);
    const std::string why =
        answered ? explain_status(outcome.head, question, settings_)
                 : explain_transfer(outcome.error, outcome.detail, url.host, settings_);
    require(passing && wait.has_value(), "{}", why);
    if (note_)
      note_(fmt::format("{} {}; next try in {:.1f} s", url.host,
                        answered ? fmt::format("answers {}", status) : outcome.detail,
                        std::chrono::duration<double>(*wait).count()));
    require(pause(*wait), "{}", why);
  }
}

std::string HubClient::commit_of(const std::string& repo_id, const std::string& revision) {
  Url url = endpoint_;
  url.target += "/api/models/" + url_escaped(repo_id) + "/revision/" + url_escaped(revision, false);
  const TransferOutcome outcome = ask(url, false, {repo_id, revision, ""}, nullptr);
  return commit_of_reply(outcome.body);
}

std::vector<RepoFile> HubClient::list_files(const std::string& repo_id, const std::string& commit) {
  const RepoLimits limits;
  const HubQuestion question{repo_id, commit, ""};
  std::vector<RepoFile> files;
  Url url = endpoint_;
  url.target +=
      "/api/models/" + url_escaped(repo_id) + "/tree/" + commit + "?recursive=true&expand=false";
  for (std::size_t pages = 1;; ++pages) {
    require(pages <= limits.max_pages,
            "the hub's list of the files of {} has more than {} pages; check HF_ENDPOINT", repo_id,
            limits.max_pages);
    Url answered_by = url;
    const TransferOutcome page = ask(url, false, question, &answered_by);
    const std::size_t before = files.size();
    append_tree_page(page.body, files, limits);
    const std::string_view link = next_link(page.head.get("Link"));
    if (link.empty()) break;
    require(
        files.size() > before,
        "the hub's list of the files of {} goes on with pages that are empty; check HF_ENDPOINT",
        repo_id);
    const std::optional<Url> next = resolve_location(answered_by, link);
    require(next.has_value() && (answered_by.scheme != "https" || next->scheme == "https"),
            "the hub's list of the files of {} goes on at a place that cannot be used", repo_id);
    url = *next;
  }
  std::vector<std::string_view> paths;
  for (const RepoFile& file : files) paths.push_back(file.path);
  std::ranges::sort(paths);
  const auto twice = std::ranges::adjacent_find(paths);
  require(twice == paths.end(), "the hub lists the file {} of {} twice",
          twice == paths.end() ? "" : *twice, repo_id);
  return files;
}

FileSource HubClient::locate(const std::string& repo_id, const std::string& commit,
                             const std::string& path) {
  Url url = endpoint_;
  url.target += "/" + url_escaped(repo_id) + "/resolve/" + commit + "/" + url_escaped(path);
  FileSource source;
  const TransferOutcome outcome = ask(url, true, {repo_id, commit, path}, &source.url);
  const HttpHead& head = outcome.head;
  source.commit = head.get("X-Repo-Commit");
  source.etag =
      plain_etag(head.has("X-Linked-Etag") ? head.get("X-Linked-Etag") : head.get("ETag"));
  if (head.has("X-Linked-Size"))
    source.size = parse_decimal(head.get("X-Linked-Size"));
  else if (is_success(head.status()) && head.has("Content-Length"))
    source.size = parse_decimal(head.get("Content-Length"));
  require(source.commit.empty() || source.commit == commit,
          "the hub answers for commit {} when it is asked for commit {} of {}",
          source.commit.substr(0, 40), commit, repo_id);
  return source;
}

HubClient::Read HubClient::read(FileSource& source, std::uint64_t first, std::uint64_t last,
                                std::uint64_t size, bool takes_whole,
                                const std::function<bool(std::span<const std::byte>)>& on_bytes) {
  const bool wants_part = first > 0 || last + 1 < size;
  for (int redirects = 0; redirects <= kMaxRedirects; ++redirects) {
    TransferRequest request;
    request.url = source.url.text();
    request.token = token_for(source.url);
    request.connect_timeout = request.idle_timeout = settings_.download_timeout;
    if (wants_part) request.range = {first, last};
    Read read;
    bool accepted = false, misplaced = false;
    std::uint64_t left = last - first + 1;
    TransferEvents events;
    events.on_head = [&](const HttpHead& head) {
      if (head.status() == 200 && wants_part) {
        read.answer = Answer::kWhole;
        accepted = takes_whole;
        left = size;
      } else if (head.status() == 206) {
        const auto range = parse_content_range(head.get("Content-Range"));
        misplaced = !wants_part || !range || range->first != first || range->last != last ||
                    range->size != size;
        read.answer = Answer::kPart;
        accepted = true;
      } else if (head.status() == 200) {
        read.answer = Answer::kPart;
        accepted = true;
      }
      if (!accepted) return false;
      const std::string_view encoding = head.get("Content-Encoding");
      const auto length = parse_decimal(head.get("Content-Length"));
      misplaced =
          misplaced || (!encoding.empty() && encoding != "identity") || (length && *length != left);
      return !misplaced;
    };
    events.on_body = [&](std::span<const std::byte> bytes) {
      misplaced = bytes.size() > left;
      if (misplaced) return false;
      left -= bytes.size();
      return on_bytes(bytes);
    };
    read.outcome = session_.perform(request, events);
    const int status = read.outcome.head.status();
    if (misplaced) {
      read.answer = Answer::kFailed;
      read.outcome.error = TransferError::kOther;
      read.outcome.detail = fmt::format(
          "the answer ({}) holds other bytes than were asked for: length \"{}\", range \"{}\", "
          "encoding \"{}\"",
          status, read.outcome.head.get("Content-Length").substr(0, 40),
          read.outcome.head.get("Content-Range").substr(0, 60),
          read.outcome.head.get("Content-Encoding").substr(0, 20));
      return read;
    }
    if (accepted) {
      // Without a length a truncated body looks like a complete one.
      if (read.outcome.error == TransferError::kNone && left > 0) {
        read.outcome.error = TransferError::kBroken;
        read.outcome.detail = "the answer ended early";
      }
      return read;
    }
    if (read.answer == Answer::kWhole) return read;
    // on_head ended the transfer of an unneeded body.
    if (status != 0 && read.outcome.error == TransferError::kStopped)
      read.outcome.error = TransferError::kNone;
    if (is_redirect(status)) {
      const std::optional<Url> next = next_place(source.url, read.outcome.head);
      if (!next) return read;
      source.url = *next;
      continue;
    }
    const bool is_place_gone = status == 403 || status == 404 || status == 410;
    read.answer = is_place_gone ? Answer::kMoved : Answer::kFailed;
    return read;
  }
  Read read;
  read.outcome.error = TransferError::kOther;
  read.outcome.detail = fmt::format("more than {} redirects", kMaxRedirects);
  return read;
}

}  // namespace sluice
