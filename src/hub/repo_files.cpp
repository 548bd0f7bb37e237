#include "hub/repo_files.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxPath = 1024, kMaxComponent = 255, kMaxDepth = 16;

// An untrusted path for a message, without characters that could move a cursor.
std::string shown(std::string_view text) {
  std::string out(text.substr(0, 80));
  std::ranges::replace_if(
      out, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; }, '?');
  return out;
}

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80                   ? 1
                               : lead >= 0xc2 && lead < 0xe0 ? 2
                               : lead >= 0xe0 && lead < 0xf0 ? 3
                               : lead >= 0xf0 && lead < 0xf5 ? 4
                                                             : 0;
    if (length == 0 || i + length > text.size()) return false;
    for (std::size_t k = 1; k < length; ++k)
      if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) return false;
    i += length;
  }
  return true;
}

std::string text_of(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

std::uint64_t size_of(const Json& object, const char* key, std::string_view path,
                      const RepoLimits& limits) {
  const auto it = object.find(key);
  require(it != object.end() && it->is_number_unsigned(), "the list of the hub has no size for {}",
          shown(path));
  const auto size = it->get<std::uint64_t>();
  require(size <= limits.max_file_bytes,
          "the list of the hub says that {} has {} bytes; at most {} are allowed", shown(path),
          size, limits.max_file_bytes);
  return size;
}

// Drops an invalid digest. Then the file cannot be verified and is refused when it is needed.
std::string digest_of(std::string text, std::size_t length) {
  return is_hex(text, length) ? text : std::string();
}

RepoFile read_entry(const Json& entry, const RepoLimits& limits) {
  RepoFile file;
  file.path = text_of(entry, "path");
  require(is_safe_repo_path(file.path),
          "the list of the hub has a file named \"{}\", which could lead out of its folder; "
          "nothing was downloaded",
          shown(file.path));
  file.size = size_of(entry, "size", file.path, limits);
  file.blob_id = digest_of(text_of(entry, "oid"), 40);
  file.xet_hash = digest_of(text_of(entry, "xetHash"), 64);
  const auto lfs = entry.find("lfs");
  if (lfs != entry.end() && lfs->is_object()) {
    file.lfs_sha256 = digest_of(text_of(*lfs, "oid"), 64);
    if (file.lfs_sha256.empty())
      file.blob_id.clear();  // git's name of the pointer does not describe the file
    file.size = size_of(*lfs, "size", file.path, limits);
  }
  return file;
}

std::optional<RepoFile> read_cached(const std::string& path, const Json& entry,
                                    const RepoLimits& limits) {
  RepoFile file;
  file.path = path;
  if (!is_safe_repo_path(path) || !entry.is_object()) return std::nullopt;
  const auto size = entry.find("size");
  if (size == entry.end() || !size->is_number_unsigned()) return std::nullopt;
  file.size = size->get<std::uint64_t>();
  file.blob_id = digest_of(text_of(entry, "blob_id"), 40);
  file.lfs_sha256 = digest_of(text_of(entry, "lfs_sha256"), 64);
  file.xet_hash = digest_of(text_of(entry, "xet_hash"), 64);
  const auto lfs_size = entry.find("lfs_size");
  if (!file.lfs_sha256.empty() && lfs_size != entry.end() && lfs_size->is_number_unsigned())
    file.size = lfs_size->get<std::uint64_t>();
  return file.size <= limits.max_file_bytes ? std::optional(file) : std::nullopt;
}

}  // namespace

bool is_hex(std::string_view text, std::size_t length) {
  return text.size() == length && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

bool is_safe_repo_path(std::string_view path) {
  if (path.empty() || path.size() > kMaxPath || !is_utf8(path)) return false;
  if (std::ranges::any_of(path, [](char c) {
        return static_cast<unsigned char>(c) < ' ' || c == 127 || c == '\\' || c == ':';
      }))
    return false;
  std::size_t depth = 0;
  for (std::size_t begin = 0; begin <= path.size(); ++depth) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == ".." || part.size() > kMaxComponent) return false;
    begin = end + 1;
  }
  return depth <= kMaxDepth;
}

void append_tree_page(std::string_view page, std::vector<RepoFile>& files,
                      const RepoLimits& limits) {
  require(page.size() <= limits.max_page_bytes,
          "a page of the hub's list of files has {} bytes; at most {} are allowed", page.size(),
          limits.max_page_bytes);
  const Json list = parse_json_or_throw(page, "the hub's list of files");
  require(list.is_array(), "the hub's list of files is not a list: {}", shown(page));
  for (const Json& entry : list) {
    require(entry.is_object(), "the hub's list of files has an entry that is no file: {}",
            shown(dump_json(entry)));
    if (text_of(entry, "type") == "directory") continue;
    require(files.size() < limits.max_files, "the hub lists more than {} files; this is no model",
            limits.max_files);
    files.push_back(read_entry(entry, limits));
  }
}

std::string commit_of_reply(std::string_view reply) {
  const Json json = parse_json_or_throw(reply, "the hub's answer about a revision");
  const std::string commit = json.is_object() ? text_of(json, "sha") : "";
  require(is_hex(commit, 40),
          "the hub's answer about a revision holds no commit: its sha is \"{}\"", shown(commit));
  return commit;
}

std::optional<std::vector<RepoFile>> parse_tree_cache(std::string_view text,
                                                      const RepoLimits& limits) {
  if (text.size() > limits.max_page_bytes) return std::nullopt;
  const Result<Json> json = parse_json(text);
  if (!json.ok() || !json->is_object()) return std::nullopt;
  const auto version = json->find("format_version"), list = json->find("files");
  if (version == json->end() || *version != 1 || list == json->end() || !list->is_object() ||
      list->size() > limits.max_files)
    return std::nullopt;
  std::vector<RepoFile> files;
  for (const auto& [path, entry] : list->items()) {
    std::optional<RepoFile> file = read_cached(path, entry, limits);
    if (!file) return std::nullopt;
    files.push_back(std::move(*file));
  }
  return files;
}

std::string tree_cache_text(const std::vector<RepoFile>& files) {
  std::vector<const RepoFile*> sorted;
  for (const RepoFile& file : files) sorted.push_back(&file);
  std::ranges::sort(sorted, {},
                    [](const RepoFile* file) -> const std::string& { return file->path; });
  Json entries = Json::object();
  for (const RepoFile* file : sorted) {
    Json entry = {{"size", file->size}, {"blob_id", file->blob_id}};
    if (!file->lfs_sha256.empty()) {
      entry["lfs_sha256"] = file->lfs_sha256;
      entry["lfs_size"] = file->size;
    }
    if (!file->xet_hash.empty()) entry["xet_hash"] = file->xet_hash;
    entries[file->path] = std::move(entry);
  }
  return Json{{"format_version", 1}, {"files", std::move(entries)}}.dump(1);
}

}  // namespace sluice
