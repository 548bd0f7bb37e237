// From the MODEL argument of a command to a directory, or a GGUF file, on disk.
//
//   ResolvedModel model = resolve_model("org/name@v1", "", HubEnvironment::of_process());
//
// MODEL is a directory that has a config.json or, without one, exactly one .gguf file; a .gguf file; or a repository id `name` or `org/name`, with `@revision` or
// not, that the Hugging Face cache on disk holds (models--org--name/refs/<revision>, snapshots/<commit>/).
// Nothing is downloaded. Error{kBadInput} says what was looked for, where, and how to get it.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// The environment variables that place the cache; empty where unset.
struct HubEnvironment {
  std::string hf_hub_cache;           // HF_HUB_CACHE
  std::string huggingface_hub_cache;  // HUGGINGFACE_HUB_CACHE, its old name
  std::string hf_home;                // HF_HOME
  std::string xdg_cache_home;         // XDG_CACHE_HOME
  std::string home;                   // HOME

  static HubEnvironment of_process();

  // HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub.
  std::string cache_directory() const;
};

struct ResolvedModel {
  std::string directory;  // or the path of a .gguf file (is_gguf_path)
  std::string repo_id;    // empty for a directory or a file
  std::string commit;   // of the snapshot, 40 hex digits; empty for a directory
};

// `revision` is that of --revision; empty: main, or what follows '@' in `model`.
ResolvedModel resolve_model(std::string_view model, std::string_view revision,
                            const HubEnvironment& environment);

// Whether `id` is a repository id: one or two parts of [A-Za-z0-9._-], at most 96 characters each, none
// beginning or ending with '.' or '-', without ".." or "--".
bool is_repo_id(std::string_view id);

}  // namespace sluice
