#include "hub/obtain.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/files/weight_choice.h"
#include "hub/file_choice.h"
#include "hub/hub_cache.h"
#include "hub/hub_client.h"

namespace sluice {
namespace {

double mib(std::uint64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

// Writes a log line for each completed file.
DownloadObserver log_observer() {
  auto num_told = std::make_shared<std::size_t>(0);
  DownloadObserver observer;
  observer.on_progress = [num_told](const DownloadProgress& progress) {
    const auto finished =
        static_cast<std::size_t>(std::ranges::count(progress.files, true, &FileProgress::finished));
    if (finished == *num_told) return;
    *num_told = finished;
    log_info("{}: {} of {} files, {:.1f} of {:.1f} MiB", progress.repo_id, finished,
             progress.files.size(), mib(progress.done), mib(progress.size));
  };
  observer.on_note = [](const std::string& text) { log_info("{}", text); };
  return observer;
}

bool has_path(const std::vector<RepoFile>& files, std::string_view path) {
  return std::ranges::find(files, path, &RepoFile::path) != files.end();
}

bool matches_any(std::string_view path, const std::vector<std::string>& globs) {
  return std::ranges::any_of(globs,
                             [&](const std::string& glob) { return matches_glob(path, glob); });
}

class Pull {
 public:
  Pull(const PullRequest& request, const HubSettings& settings, const DownloadObserver& observer)
      : request_(request),
        settings_(settings),
        observer_(observer),
        cache_(settings.cache, request.name.repo_id),
        library_(open_curl_library()) {}

  PulledModel run() {
    list_files();
    if (!request_.include.empty()) {
      std::vector<RepoFile> chosen;
      for (const RepoFile& file : files_)
        if (matches_any(file.path, request_.include)) chosen.push_back(file);
      fetch(std::move(chosen));
      require(pulled_.num_files > 0, "no file of {} matches --include; it has: {}",
              request_.name.repo_id, some_names());
    } else {
      fetch_model();
    }
    require(pulled_.num_files > 0, "--exclude leaves nothing of {}; it has: {}",
            request_.name.repo_id, some_names());
    mark_absent();
    // The revision points to the commit only when all files are here: until then its old target
    // stays usable.
    if (request_.name.revision != commit_ && cache_.read_ref(request_.name.revision) != commit_)
      cache_.write_ref(request_.name.revision, commit_);
    keep_list();
    pulled_.commit = commit_;
    pulled_.snapshot = cache_.snapshot(commit_);
    return pulled_;
  }

 private:
  void list_files() {
    const ModelName& name = request_.name;
    HubClient client(library_, settings_, observer_.on_note);
    commit_ =
        is_hex(name.revision, 40) ? name.revision : client.commit_of(name.repo_id, name.revision);
    if (auto kept = cache_.read_tree(commit_))
      files_ = std::move(*kept);
    else
      files_ = client.list_files(name.repo_id, commit_);
  }

  void fetch_model() {
    const std::string& repo_id = request_.name.repo_id;
    const bool has_config = has_path(files_, "config.json");
    std::vector<std::string> names;
    for (const RepoFile& file : files_) names.push_back(file.path);
    const bool text_only = request_.text_only && std::ranges::any_of(names, is_tokenizer_file);
    std::vector<WeightFormat> formats = formats_of(text_only ? "dummy" : request_.load_format);
    if (!has_config && !text_only) formats = {WeightFormat::kGguf};
    // Selected before any download: an unusable model is not downloaded.
    const std::optional<WeightChoice> choice = choose_weights(names, formats, request_.name.tag);
    require(has_config || text_only || choice.has_value(),
            "{} has no config.json and no GGUF file at revision {}, so it is no model; it has: {}",
            repo_id, request_.name.revision, some_names());
    require(!request_.weights || formats.empty() || choice.has_value(),
            "{} has no weights that --load-format {} reads at revision {}; it has: {}", repo_id,
            request_.load_format, request_.name.revision, some_names());
    std::vector<RepoFile> text = choose_text_files(files_), last;
    if (has_config) {
      last.push_back(text.back());
      text.pop_back();
    }
    fetch(std::move(text));
    fetch(std::move(last));
    const bool wants_weights = request_.weights || !has_config;
    if (!wants_weights || !choice) return;
    const SettledWeights settled = settle_weights(*choice, cache_.snapshot(commit_), names);
    std::vector<RepoFile> weights;
    for (const std::string& path : settled.names) {
      const auto file = std::ranges::find(files_, path, &RepoFile::path);
      require(file != files_.end(), "{} has no {}, which {} of it", repo_id, path,
              settled.index.empty() ? "the names of other shards tell" : settled.index + " lists");
      weights.push_back(*file);
    }
    fetch(std::move(weights));
  }

  void fetch(std::vector<RepoFile> files) {
    std::erase_if(files,
                  [&](const RepoFile& file) { return matches_any(file.path, request_.exclude); });
    pulled_.num_files += files.size();
    for (const RepoFile& file : files) pulled_.bytes += file.size;
    fetch_files({library_, settings_, request_.name.repo_id, commit_, std::move(files)}, observer_);
  }

  // Records the names that readers would look for in vain.
  void mark_absent() const {
    for (const std::string_view name : wanted_names())
      if (!has_path(files_, name)) cache_.mark_absent(commit_, name);
  }

  // huggingface_hub takes trees/<commit>.json as a promise: offline it refuses a snapshot that
  // lacks a file of the list.
  void keep_list() const {
    constexpr std::size_t kMax = 4096;
    const bool complete =
        files_.size() <= kMax && std::ranges::all_of(files_, [&](const RepoFile& file) {
          return !file.blob_id.empty() && cache_.has_file(commit_, file.path);
        });
    if (complete && !cache_.read_tree(commit_)) cache_.write_tree(commit_, files_);
  }

  std::string some_names() const {
    std::string text;
    for (std::size_t i = 0; i < std::min<std::size_t>(files_.size(), 12); ++i)
      text += (i == 0 ? "" : ", ") + files_[i].path;
    return text.empty() ? "no files" : files_.size() > 12 ? text + ", ..." : text;
  }

  const PullRequest& request_;
  const HubSettings& settings_;
  const DownloadObserver& observer_;
  const RepoCache cache_;
  const std::shared_ptr<const CurlLibrary> library_;
  std::string commit_;
  std::vector<RepoFile> files_;
  PulledModel pulled_;
};

}  // namespace

PulledModel pull_model(const PullRequest& request, const HubSettings& settings,
                       const DownloadObserver& observer) {
  require(!settings.offline, "{} forbids to ask the hub for {}; unset it",
          settings.offline_variable, request.name.repo_id);
  return Pull(request, settings, observer).run();
}

ResolvedModel obtain_model(const ModelRequest& request, const HubEnvironment& environment) {
  if (const auto local = find_local_model(request.model, request.load_format)) return *local;
  if (!is_repo_id(request.model.substr(0, request.model.find_first_of("@:"))))
    refuse_slip(request.model, fmt::format("there is no model {}", request.model));
  const ModelName name = parse_model_name(request.model, request.revision);
  const HubSettings settings = environment.settings();
  const auto look = [&] { return find_cached_model(name, request.load_format, settings.cache); };
  CachedModel cached = look();
  const auto wanted_of = [&](const CachedModel& found) {
    return request.text_only                       ? found.text
           : found.has_weights || !request.weights ? found.model
                                                   : std::nullopt;
  };
  const std::optional<ResolvedModel> usable = wanted_of(cached);
  if (usable && (cached.has_text || settings.offline)) return *usable;
  if (request.text_only && cached.why.empty())
    cached.why = fmt::format("the cache's copy of {} has no tokenizer", name.repo_id);
  // The hub is not asked for what is probably a slip.
  if (!usable) refuse_slip(request.model, cached.why);
  require(!settings.offline,
          "{}, and {} forbids to download it: unset it, or run `sluice pull {}` where the hub can "
          "be reached",
          cached.why, settings.offline_variable, request.model);
  const bool watched = request.observer.on_progress || request.observer.on_note;
  try {
    pull_model({name, request.load_format, request.weights, {}, {}, request.text_only}, settings,
               watched ? request.observer : log_observer());
  } catch (const Error& error) {
    if (usable && error.kind() == ErrorKind::kBadInput) {
      log_warning(
          "{} is in the cache, perhaps without all of its files, and the hub was asked in vain: {}",
          name.repo_id, error.message());
      return *usable;
    }
    require(error.kind() != ErrorKind::kBadInput, "{}: {}", cached.why, error.message());
    throw;
  }
  const CachedModel fetched = look();
  const std::optional<ResolvedModel> model = wanted_of(fetched);
  require(model.has_value() || !request.text_only, "{} has no tokenizer", name.repo_id);
  require(model.has_value(), "{}, although it was just downloaded", fetched.why);
  return *model;
}

}  // namespace sluice
