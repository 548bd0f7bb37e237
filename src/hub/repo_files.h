// The list of a repository's files, as the hub's API gives it and as trees/<commit>.json of the
// cache keeps it.
//
// The list comes from outside (R8): a path that could lead out of a folder, or a list beyond the
// limits, refuses the whole list. Errors: Error{kBadInput} that names the path or the number.
// Source: huggingface_hub, hf_api.py (HfApi.list_repo_tree) and _tree_cache.py.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

struct RepoFile {
  std::string path;        // "tokenizer/vocab.txt"
  std::uint64_t size = 0;  // bytes
  // git's SHA-1: of the file itself, or of the pointer to it where it is large
  std::string blob_id;
  std::string lfs_sha256;  // of a large file; else empty
  std::string xet_hash;    // kept for trees/<commit>.json; else unused

  // What names the blob and verifies it: 64 digits of SHA-256 for a large file, 40 of git's SHA-1
  // for others.
  const std::string& digest() const { return lfs_sha256.empty() ? blob_id : lfs_sha256; }
  bool operator==(const RepoFile&) const = default;
};

struct RepoLimits {
  std::size_t max_files = 100'000;
  std::size_t max_pages = 1'000;
  std::uint64_t max_file_bytes = std::uint64_t{1} << 43;  // 8 TiB
  std::size_t max_page_bytes = 16 << 20;
};

// Appends the files of one page of /api/models/ID/tree/COMMIT?recursive=true (directories are left
// out).
void append_tree_page(std::string_view page, std::vector<RepoFile>& files,
                      const RepoLimits& limits = {});

// The commit that /api/models/ID/revision/REVISION answers with: 40 hexadecimal digits.
std::string commit_of_reply(std::string_view reply);

// trees/<commit>.json: nothing when the text is not such a list, or one of a newer format.
std::optional<std::vector<RepoFile>> parse_tree_cache(std::string_view text,
                                                      const RepoLimits& limits = {});
std::string tree_cache_text(const std::vector<RepoFile>& files);

// Whether a path of a repository may be made beneath a folder: relative, at most 1024 bytes and 16
// components, none empty, ".", ".." or longer than 255 bytes, no backslash, colon or control
// character, valid UTF-8.
bool is_safe_repo_path(std::string_view path);

// Lower-case hexadecimal digits, `length` of them.
bool is_hex(std::string_view text, std::size_t length);

}  // namespace sluice
