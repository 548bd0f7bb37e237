// The list of a repository's files, in the form of the hub's API and of trees/<commit>.json in the
// cache.
//
// The list is untrusted (R8): a path that could leave a folder, or a list beyond the limits, makes
// the whole list invalid. Errors: Error{kBadInput} that names the path or the number. Source:
// huggingface_hub, hf_api.py (HfApi.list_repo_tree) and _tree_cache.py.
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
  // git's SHA-1: of the file itself, or of the pointer to a large file
  std::string blob_id;
  std::string lfs_sha256;  // for a large file; else empty
  std::string xet_hash;    // kept for trees/<commit>.json; else unused

  // The name and checksum of the blob: 64 digits of SHA-256 for a large file, 40 of git's SHA-1 for
  // others.
  const std::string& digest() const { return lfs_sha256.empty() ? blob_id : lfs_sha256; }
  bool operator==(const RepoFile&) const = default;
};

struct RepoLimits {
  std::size_t max_files = 100'000;
  std::size_t max_pages = 1'000;
  std::uint64_t max_file_bytes = std::uint64_t{1} << 43;  // 8 TiB
  std::size_t max_page_bytes = 16 << 20;
};

// Appends the files of one page of /api/models/ID/tree/COMMIT?recursive=true (without directories).
void append_tree_page(std::string_view page, std::vector<RepoFile>& files,
                      const RepoLimits& limits = {});

// The commit that /api/models/ID/revision/REVISION answers with: 40 hexadecimal digits.
std::string commit_of_reply(std::string_view reply);

// Parses trees/<commit>.json: nothing if the text is not such a list, or has a newer format.
std::optional<std::vector<RepoFile>> parse_tree_cache(std::string_view text,
                                                      const RepoLimits& limits = {});
std::string tree_cache_text(const std::vector<RepoFile>& files);

// Whether a path of a repository may be created beneath a folder. It is relative, valid UTF-8, and
// has at most 1024 bytes and 16 components. No component is empty, ".", ".." or longer than 255
// bytes. It has no backslash, colon or control character.
bool is_safe_repo_path(std::string_view path);

// Lower-case hexadecimal digits, `length` of them.
bool is_hex(std::string_view text, std::size_t length);

}  // namespace sluice
