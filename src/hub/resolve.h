// From the MODEL argument of a command to a directory, or a GGUF file, on disk, without the network
// (hub/obtain.h has the form that downloads).
//
//   ResolvedModel model = resolve_model("org/name@v1", "", HubEnvironment::of_process());
//
// MODEL is a directory that has a config.json or, without one, exactly one model in .gguf files; a
// .gguf file; or a repository id `name` or `org/name`, with `:TAG` (a part of a GGUF file's name,
// as Q4_K_M) and `@REVISION` or not, that the Hugging Face cache on disk holds (hub/hub_cache.h).
// Error{kBadInput} says what was looked for, where, and how to get it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "hub/hub_environment.h"

namespace sluice {

struct ResolvedModel {
  std::string directory;  // or the path of a .gguf file (is_gguf_path)
  std::string repo_id;    // empty for a directory or a file
  std::string commit;     // of the snapshot, 40 hex digits; empty for a directory
};

// `revision` is that of --revision; empty: main, or what follows '@' in `model`. `load_format` is
// --load-format: with gguf a folder's GGUF file is taken although it has a config.json.
ResolvedModel resolve_model(std::string_view model, std::string_view revision,
                            const HubEnvironment& environment,
                            std::string_view load_format = "auto");

// A model's name at a hub.
struct ModelName {
  std::string repo_id;            // "org/name"
  std::string tag;                // "Q4_K_M"; mostly empty
  std::string revision = "main";  // a branch, a tag, refs/pr/1 or a commit
};
// Error{kBadInput} when `model` has no such form, or names another revision than `revision` does.
ModelName parse_model_name(std::string_view model, std::string_view revision);

// What MODEL names on this machine's disk; nothing when it is neither a directory nor a .gguf file.
// Error{kBadInput} for a directory that holds no model.
std::optional<ResolvedModel> find_local_model(std::string_view model, std::string_view load_format);

// What the cache has of a model.
struct CachedModel {
  std::optional<ResolvedModel> model;  // when it has a config.json or a GGUF file
  std::optional<ResolvedModel> text;   // when it has a tokenizer, for who wants no more
  bool has_weights = false;            // all of those that --load-format asks for; true for dummy
  bool has_text = false;               // the files beside the weights, as far as can be told
  std::string why;                     // what is missing
};
CachedModel find_cached_model(const ModelName& name, std::string_view load_format,
                              const std::string& cache);

// Whether `id` is a repository id: one or two parts of [A-Za-z0-9._-], at most 96 characters each,
// none beginning or ending with '.' or '-', without ".." or "--".
bool is_repo_id(std::string_view id);
// Whether it is a branch, a tag, refs/pr/1 or a commit: path components that cannot leave a folder.
bool is_revision(std::string_view revision);

}  // namespace sluice
