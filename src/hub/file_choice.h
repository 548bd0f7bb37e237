// Which files of a repository a model needs, by the load format, and which of them a snapshot
// already has.
//
// The files beside the weights are config.json, the files of tokenizers and chat templates, those
// of sentence-transformers' modules, and the indexes of shards. Python modules are included too;
// only the Transformers plugin runs them, and only on request. weight_choice.h selects the weights.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/repo_files.h"

namespace sluice {

// The names of files beside the weights (without config.json). If a repository lacks one, the cache
// records its absence.
std::vector<std::string_view> wanted_names();

// The files beside the weights, config.json last: so a snapshot with config.json has all of them.
std::vector<RepoFile> choose_text_files(const std::vector<RepoFile>& files);

// Whether a tokenizer can be read from a file of this name, alone or with others.
bool is_tokenizer_file(std::string_view name);

// For --include and --exclude: '*' any characters ('/' too), '?' one, [abc] one of them, as
// Python's fnmatch; a pattern that ends with '/' means all beneath.
bool matches_glob(std::string_view path, std::string_view pattern);

}  // namespace sluice
