// Which files of a repository a model needs, by --load-format, and which of them a snapshot already
// has.
//
// The files beside the weights: config.json, what tokenizers and chat templates are made of, and
// the indexes of shards; Python modules too, which only the Transformers plugin runs and only when
// asked. weight_choice.h chooses the weights.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/repo_files.h"

namespace sluice {

// The names that are looked for beside the weights (not config.json). A repository that lacks one
// is marked so in the cache.
std::vector<std::string_view> wanted_names();

// The files beside the weights, config.json last: a snapshot that has it has them all.
std::vector<RepoFile> choose_text_files(const std::vector<RepoFile>& files);

// Whether a tokenizer can be read from a file of this name, alone or with others.
bool is_tokenizer_file(std::string_view name);

// For --include and --exclude: '*' any characters ('/' too), '?' one, [abc] one of them, as
// Python's fnmatch; a pattern that ends with '/' means all beneath.
bool matches_glob(std::string_view path, std::string_view pattern);

}  // namespace sluice
