#include "hub/resolve.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/error.h"
#include "hub/file.h"
#include "hub/gguf_file.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

bool is_commit(std::string_view text) {
  return text.size() == 40 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// A branch, a tag, refs/pr/1 or a commit: path components that cannot leave the refs folder.
bool is_revision(std::string_view revision) {
  const auto parts = split(revision, '/');
  return revision.size() <= 200 && std::all_of(parts.begin(), parts.end(), is_plain_file_name);
}

bool path_exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}
bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// What of a model's directory is read: itself, or its one GGUF file where there is no config.json; nothing when it has
// neither.
std::optional<std::string> model_in(const fs::path& directory) {
  if (path_exists(directory / "config.json")) return directory.string();
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    if (std::error_code ignored; is_gguf_path(entry->path().string()) && entry->is_regular_file(ignored)) files.push_back(entry->path().string());
  std::sort(files.begin(), files.end());
  require(files.size() <= 1, "the directory {} has no config.json and {} GGUF files; give one of them: {}", directory.string(),
          files.size(), fmt::join(files, ", "));
  return files.empty() ? std::nullopt : std::optional(files.front());
}

std::string how_to_get(std::string_view repo_id, std::string_view revision) {
  return fmt::format(
      "get it with: hf download {}{} (or huggingface-cli download), or give a directory that has a "
      "config.json",
      repo_id, revision == "main" ? "" : fmt::format(" --revision {}", revision));
}

std::string read_ref(const fs::path& repo, std::string_view revision) {
  const fs::path ref = repo / "refs" / revision;
  if (!is_folder(ref.parent_path())) return {};
  std::string commit =
      read_text_beneath(ref.parent_path().string(), ref.filename().string(), 4096).value_or("");
  while (!commit.empty() && (commit.back() == '\n' || commit.back() == '\r' || commit.back() == ' '))
    commit.pop_back();
  require(commit.empty() || is_commit(commit),
          "{} does not hold a commit of 40 hex digits; the cache is damaged", ref.string());
  return commit;
}

ResolvedModel resolve_in_cache(std::string_view repo_id, std::string_view revision, const fs::path& cache) {
  std::string folder = "models";
  for (const std::string_view part : split(repo_id, '/'))
    fmt::format_to(std::back_inserter(folder), "--{}", part);
  const fs::path repo = cache / folder;
  require(is_folder(repo),
          "the model {} is not on this machine: there is no directory {} and no {} in the cache {}; {}",
          repo_id, repo_id, folder, cache.string(), how_to_get(repo_id, revision));
  const std::string commit = is_commit(revision) ? std::string(revision) : read_ref(repo, revision);
  require(!commit.empty(), "the cache has the model {}, but not its revision {}: there is no {}; {}", repo_id,
          revision, (repo / "refs" / revision).string(), how_to_get(repo_id, revision));
  const fs::path snapshot = repo / "snapshots" / commit;
  const auto found = model_in(snapshot);
  require(found.has_value(), "the cache has no complete copy of {} at {}: there is no {}; {}", repo_id, revision,
          (snapshot / "config.json").string(), how_to_get(repo_id, revision));
  return {*found, std::string(repo_id), commit};
}

}  // namespace

HubEnvironment HubEnvironment::of_process() {
  return {variable("HF_HUB_CACHE"), variable("HUGGINGFACE_HUB_CACHE"), variable("HF_HOME"),
          variable("XDG_CACHE_HOME"), variable("HOME")};
}

std::string HubEnvironment::cache_directory() const {
  const auto expand = [&](std::string path) {  // as the Hub client does
    return path == "~" || path.starts_with("~/") ? home + path.substr(1) : path;
  };
  if (!hf_hub_cache.empty()) return expand(hf_hub_cache);
  if (!huggingface_hub_cache.empty()) return expand(huggingface_hub_cache);
  if (!hf_home.empty()) return expand(hf_home) + "/hub";
  if (!xdg_cache_home.empty()) return expand(xdg_cache_home) + "/huggingface/hub";
  return home + "/.cache/huggingface/hub";
}

bool is_repo_id(std::string_view id) {
  const auto parts = split(id, '/');
  const auto is_edge = [](char c) { return c == '.' || c == '-'; };
  return parts.size() <= 2 && id.find("..") == std::string_view::npos &&
         id.find("--") == std::string_view::npos &&
         std::all_of(parts.begin(), parts.end(), [&](std::string_view part) {
           return is_plain_file_name(part) && part.size() <= 96 && !is_edge(part.front()) &&
                  !is_edge(part.back());
         });
}

ResolvedModel resolve_model(std::string_view model, std::string_view revision,
                            const HubEnvironment& environment) {
  require(!model.empty() && model.find('\0') == std::string_view::npos,
          "no model is given: --model DIRECTORY or org/name");
  if (is_folder(fs::path(model))) {
    const auto found = model_in(fs::path(model));
    require(found.has_value(), "the directory {} has no config.json and no .gguf file, so it is no model", model);
    return {*found == fs::path(model).string() ? std::string(model) : *found, "", ""};
  }
  if (is_gguf_path(model)) {
    require(path_exists(fs::path(model)), "there is no file {}", model);
    return {std::string(model), "", ""};
  }
  const std::size_t at = model.find('@');
  const std::string_view repo_id = model.substr(0, at);
  const std::string_view suffix = at == std::string_view::npos ? std::string_view{} : model.substr(at + 1);
  require(is_repo_id(repo_id) && (at == std::string_view::npos || !suffix.empty()),
          "the model \"{}\" is neither a directory here nor a repository id (name or org/name, with "
          "@revision or not)",
          model.substr(0, 200));
  require(suffix.empty() || revision.empty() || suffix == revision,
          "two revisions are given: @{} and --revision {}; give one", suffix.substr(0, 200),
          revision.substr(0, 200));
  const std::string_view chosen = !revision.empty() ? revision : !suffix.empty() ? suffix : "main";
  require(is_revision(chosen), "the revision \"{}\" is not a branch, a tag or a commit",
          chosen.substr(0, 200));
  return resolve_in_cache(repo_id, chosen, environment.cache_directory());
}

}  // namespace sluice
