#include "hub/resolve.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/nearest_name.h"
#include "checkpoint/files/weight_choice.h"
#include "checkpoint/gguf/gguf_file.h"
#include "hub/file_choice.h"
#include "hub/hub_cache.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

bool path_exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}
bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// The paths of the regular files beneath a folder, links to such files included, sorted.
std::vector<std::string> files_beneath(const fs::path& directory) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error))
    if (std::error_code ignored; entry->is_regular_file(ignored))
      paths.push_back(entry->path().lexically_relative(directory).string());
  std::ranges::sort(paths);
  return paths;
}

std::string how_to_get(const ModelName& name) {
  return fmt::format("get it with: sluice pull {}{}, or give a directory that has a config.json",
                     name.repo_id,
                     name.revision == "main" ? "" : fmt::format(" --revision {}", name.revision));
}

// Empty if `names` has all files of `choice`; else the missing ones.
std::string missing_weights(const WeightChoice& choice, const std::vector<std::string>& names,
                            const std::string& directory) {
  const std::vector<std::string> wanted = settle_weights(choice, directory, names).names;
  for (const std::string& name : wanted)
    if (!std::ranges::binary_search(names, name)) return name;
  // Part of a split GGUF file: model-00001-of-00003.gguf
  const std::size_t of = wanted.front().rfind("-of-");
  if (choice.format == WeightFormat::kGguf && of != std::string::npos) {
    const auto count =
        static_cast<std::size_t>(std::max(0, std::atoi(wanted.front().c_str() + of + 4)));
    if (wanted.size() < count) return fmt::format("{} of {} parts", count - wanted.size(), count);
  }
  return "";
}

// Whether a snapshot seems to have all text files. A file that is neither there nor known to be
// absent may be at the hub, for example if another program fetched only what it needed.
bool has_text_files(const RepoCache& repo, const std::string& commit,
                    const std::vector<std::string>& names) {
  const auto settled = [&](const char* name) {
    return std::ranges::binary_search(names, name) || repo.is_known_absent(commit, name);
  };
  return (std::ranges::any_of(names, is_tokenizer_file) ||
          repo.is_known_absent(commit, "tokenizer.json")) &&
         (repo.read_tree(commit).has_value() ||
          (settled("tokenizer_config.json") && settled("generation_config.json")));
}

}  // namespace

bool is_repo_id(std::string_view id) {
  const auto parts = split(id, '/');
  const auto is_edge = [](char c) { return c == '.' || c == '-'; };
  return parts.size() <= 2 && id.find("..") == std::string_view::npos &&
         id.find("--") == std::string_view::npos &&
         std::ranges::all_of(parts, [&](std::string_view part) {
           return is_plain_file_name(part) && part.size() <= 96 && !is_edge(part.front()) &&
                  !is_edge(part.back());
         });
}

bool is_revision(std::string_view revision) {
  return revision.size() <= 200 && is_plain_path(revision);
}

ModelName parse_model_name(std::string_view model, std::string_view revision) {
  require(!model.empty() && model.find('\0') == std::string_view::npos,
          "no model is given: --model DIRECTORY or org/name");
  const std::size_t at = model.find('@');
  const bool has_revision = at != std::string_view::npos;
  const std::string_view suffix = has_revision ? model.substr(at + 1) : std::string_view{};
  const std::string_view named = model.substr(0, at);
  const std::size_t colon = named.find(':');
  const std::string_view repo_id = named.substr(0, colon);
  const std::string_view tag =
      colon == std::string_view::npos ? std::string_view{} : named.substr(colon + 1);
  const bool good_tag = colon == std::string_view::npos || is_plain_file_name(tag);
  require(is_repo_id(repo_id) && good_tag && (!has_revision || !suffix.empty()),
          "the model \"{}\" is neither a directory nor a .gguf file here, nor a repository id "
          "(name or org/name, with @revision or not)",
          model.substr(0, 200));
  require(suffix.empty() || revision.empty() || suffix == revision,
          "two revisions are given: @{} and --revision {}; give one", suffix.substr(0, 200),
          revision.substr(0, 200));
  const std::string_view chosen = !revision.empty() ? revision : !suffix.empty() ? suffix : "main";
  require(is_revision(chosen), "the revision \"{}\" is not a branch, a tag or a commit",
          chosen.substr(0, 200));
  return {std::string(repo_id), std::string(tag), std::string(chosen)};
}

std::optional<ResolvedModel> find_local_model(std::string_view model,
                                              std::string_view load_format) {
  const fs::path path(model);
  if (is_folder(path)) {
    const bool has_config = path_exists(path / "config.json");
    if (has_config && load_format != "gguf") return ResolvedModel{std::string(model), "", ""};
    std::vector<std::string> files;
    for (const std::string& name : names_in(path.string()))
      if (std::error_code error; is_gguf_path(name) && fs::is_regular_file(path / name, error))
        files.push_back(name);
    require(!files.empty() || has_config,
            "the directory {} has no config.json and no .gguf file, so it is no model", model);
    require(!files.empty(), "the directory {} has no .gguf file, which --load-format gguf asks for",
            model);
    // Names with spaces are allowed here. Several files are one model only if they are its parts.
    if (files.size() == 1) return ResolvedModel{(path / files.front()).string(), "", ""};
    std::optional<WeightChoice> choice;
    try {
      choice = choose_weights(files, {WeightFormat::kGguf}, "");
    } catch (const Error&) {
    }
    std::vector<std::string> shown;
    for (const std::string& name : files) shown.push_back((path / name).string());
    require(choice && choice->names.size() == files.size(),
            "the directory {} has {}{} GGUF files; give one of them: {}", model,
            has_config ? "" : "no config.json and ", files.size(), fmt::join(shown, ", "));
    return ResolvedModel{(path / choice->names.front()).string(), "", ""};
  }
  if (!is_gguf_path(model)) {
    std::error_code error;
    require(!fs::is_regular_file(path, error),
            "{} is a file, but not a .gguf one; give a directory that has a config.json, or a "
            ".gguf file",
            model);
    return std::nullopt;
  }
  const auto parts = split(model, '/');
  require(path_exists(path) || parts.size() < 3 ||
              !is_repo_id(fmt::format("{}/{}", parts[0], parts[1])),
          "there is no file {}; of a repository of the hub, name a GGUF file by a part of its "
          "name: {}/{}:{}",
          model, parts[0], parts[1], path.stem().string());
  require(path_exists(path), "there is no file {}", model);
  return ResolvedModel{std::string(model), "", ""};
}

std::optional<std::string> near_local_model(std::string_view model) {
  constexpr std::size_t kMaxEntries = 4096;  // of a folder: the time is bounded
  fs::path path;
  bool is_changed = false;
  for (const fs::path& part : fs::path(model)) {
    if (part.empty()) continue;
    if (path_exists(path / part)) {
      path /= part;
      continue;
    }
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator entry(path.empty() ? fs::path(".") : path, error), end;
         !error && entry != end && names.size() < kMaxEntries; entry.increment(error))
      names.push_back(entry->path().filename().string());
    std::ranges::sort(names);
    const std::vector<std::string_view> views(names.begin(), names.end());
    const std::string_view near = nearest_name(part.string(), views);
    if (near.empty()) return std::nullopt;
    path /= near;
    is_changed = true;
  }
  const bool is_model = path_exists(path / "config.json") || is_gguf_path(path.string());
  return is_changed && is_model ? std::optional(path.string()) : std::nullopt;
}

void refuse_slip(std::string_view model, std::string_view what_is_wrong) {
  if (model.find('@') != std::string_view::npos) return;
  std::optional<std::string> near = near_local_model(model);
  // The folder that most people keep models in.
  const fs::path in_models = fs::path("models") / model;
  if (!near && path_exists(in_models / "config.json")) near = in_models.string();
  if (!near) return;
  require(false, "{}; did you mean {}?{}", what_is_wrong, *near,
          is_repo_id(model) ? fmt::format(" For the hub's model write {}@main", model) : "");
}

CachedModel find_cached_model(const ModelName& name, std::string_view load_format,
                              const std::string& cache) {
  const RepoCache repo(cache, name.repo_id);
  CachedModel found;
  if (!is_folder(repo.folder())) {
    found.why = fmt::format(
        "the model {} is not on this machine: there is no directory {} and no {} in the cache {}",
        name.repo_id, name.repo_id, repo_folder_name(name.repo_id), cache);
    return found;
  }
  const std::string commit =
      is_hex(name.revision, 40) ? name.revision : repo.read_ref(name.revision);
  if (commit.empty()) {
    found.why =
        fmt::format("the cache has the model {}, but not its revision {}: there is no {}/refs/{}",
                    name.repo_id, name.revision, repo.folder(), name.revision);
    return found;
  }
  const std::string snapshot = repo.snapshot(commit);
  const std::vector<std::string> names = files_beneath(snapshot);
  if (!name.tag.empty() && !has_gguf(names, name.tag)) {
    found.why = fmt::format("the cache's copy of {} at {} has no GGUF file with \"{}\" in its name",
                            name.repo_id, name.revision, name.tag);
    return found;
  }
  const bool has_config = std::ranges::binary_search(names, "config.json");
  std::vector<WeightFormat> formats = formats_of(load_format);
  if (!has_config) formats = {WeightFormat::kGguf};  // a GGUF file contains its configuration
  const std::optional<WeightChoice> choice = choose_weights(names, formats, name.tag);
  const bool is_gguf = choice && choice->format == WeightFormat::kGguf;
  found.has_text = is_gguf || has_text_files(repo, commit, names);
  if (is_gguf)
    found.text = {snapshot + '/' + choice->names.front(), name.repo_id, commit};
  else if (std::ranges::any_of(names, is_tokenizer_file))
    found.text = {snapshot, name.repo_id, commit};
  if (!has_config && !is_gguf) {
    found.why =
        fmt::format("the cache has no complete copy of {} at {}: there is no {}/config.json",
                    name.repo_id, name.revision, snapshot);
    return found;
  }
  found.model = {is_gguf ? snapshot + '/' + choice->names.front() : snapshot, name.repo_id, commit};
  const std::string missing = formats.empty() ? ""
                              : !choice       ? "weights"
                                              : missing_weights(*choice, names, snapshot);
  found.has_weights = missing.empty();
  if (!missing.empty())
    found.why = fmt::format("the cache has no complete copy of {} at {}: {} is missing in {}",
                            name.repo_id, name.revision, missing, snapshot);
  return found;
}

ResolvedModel resolve_model(std::string_view model, std::string_view revision,
                            const HubEnvironment& environment, std::string_view load_format) {
  if (const auto local = find_local_model(model, load_format)) return *local;
  const ModelName name = parse_model_name(model, revision);
  const CachedModel cached = find_cached_model(name, load_format, environment.cache_directory());
  require(cached.model.has_value(), "{}; {}", cached.why, how_to_get(name));
  return *cached.model;
}

}  // namespace sluice
