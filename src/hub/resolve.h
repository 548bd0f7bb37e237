// From the MODEL argument of a command to a directory, or a GGUF file, on disk, without the network
// (hub/obtain.h has the form that downloads).
//
//   ResolvedModel model = resolve_model("org/name@v1", "", HubEnvironment::of_process());
//
// MODEL is one of three:
// - a directory with a config.json or, without one, with exactly one model in .gguf files;
// - a .gguf file;
// - a repository id `name` or `org/name` that the Hugging Face cache on disk holds
// (hub/hub_cache.h). `:TAG` (a part of a GGUF file's name, such as Q4_K_M) and `@REVISION` are
// optional.
//
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
  std::string commit;     // commit of the snapshot, 40 hex digits; empty for a directory
};

// `revision` is that of --revision; empty: main, or the part after '@' in `model`. With
// `load_format` gguf a folder's GGUF file is taken even if there is a config.json.
ResolvedModel resolve_model(std::string_view model, std::string_view revision,
                            const HubEnvironment& environment,
                            std::string_view load_format = "auto");

// A model's name at a hub.
struct ModelName {
  std::string repo_id;            // "org/name"
  std::string tag;                // "Q4_K_M"; usually empty
  std::string revision = "main";  // a branch, a tag, refs/pr/1 or a commit
};
// Error{kBadInput} if `model` has no such form, or names another revision than `revision`.
ModelName parse_model_name(std::string_view model, std::string_view revision);

// The model on this machine's disk; nothing if MODEL is neither a directory nor a .gguf file.
// Error{kBadInput} for a directory that holds no model.
std::optional<ResolvedModel> find_local_model(std::string_view model, std::string_view load_format);

// Of a path with slips, the model on this machine's disk that it may mean: each part that does not
// exist becomes the nearest name of its folder. Nothing if `model` names a model, or is near none.
std::optional<std::string> near_local_model(std::string_view model);
// Error{kBadInput}, which begins with `what_is_wrong`, where `model` is probably a slip of the path
// of a model on this machine's disk. One with a revision is none.
void refuse_slip(std::string_view model, std::string_view what_is_wrong);

// A model's files in the cache.
struct CachedModel {
  std::optional<ResolvedModel> model;  // set if it has a config.json or a GGUF file
  std::optional<ResolvedModel> text;   // set if it has a tokenizer, for callers that need only that
  bool has_weights = false;            // all weight files of the load format; true for dummy
  bool has_text = false;               // all files beside the weights, as far as is known
  std::string why;                     // the missing files
};
CachedModel find_cached_model(const ModelName& name, std::string_view load_format,
                              const std::string& cache);

// Whether `id` is a repository id: one or two parts of [A-Za-z0-9._-], at most 96 characters each,
// none beginning or ending with '.' or '-', without ".." or "--".
bool is_repo_id(std::string_view id);
// Whether `revision` is a branch, a tag, refs/pr/1 or a commit: path components that cannot leave a
// folder.
bool is_revision(std::string_view revision);

}  // namespace sluice
