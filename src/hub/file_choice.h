// Which files of a repository a model needs, by --load-format, and which of them a snapshot already has.
//
// The files beside the weights: config.json, what tokenizers and chat templates are made of, and the indexes of shards;
// Python modules too, which only the Transformers plugin runs and only when asked. Weights: of the formats in the order
// safetensors, PyTorch's .bin, GGUF the first that is there (auto), or the one that was named: model.safetensors
// (pytorch_model.bin), else the shards that its index lists, else all of model-0000K-of-0000N, else the only safetensors file,
// which may have any name (gptq_model-4bit-128g.safetensors). Copies in other formats and folders (onnx/, original/, consolidated*.safetensors) stay where they are.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/repo_files.h"

namespace sluice {

enum class WeightFormat { kSafetensors, kPickle, kGguf };

// "auto", "safetensors", "pt", "gguf" in the order in which they are tried; nothing for "dummy", which needs no weights.
// Error{kBadInput} for another word.
std::vector<WeightFormat> formats_of(std::string_view load_format);

// The names that are looked for beside the weights (not config.json). A repository that lacks one is marked so in the cache.
std::vector<std::string_view> wanted_names();

// The files beside the weights, config.json last: a snapshot that has it has them all.
std::vector<RepoFile> choose_text_files(const std::vector<RepoFile>& files);

// Whether a tokenizer can be read from a file of this name, alone or with others.
bool is_tokenizer_file(std::string_view name);

// Where weights are: files of one format, or the index that lists them and must be read first.
struct WeightChoice {
  WeightFormat format = WeightFormat::kSafetensors;
  std::string index;                    // "model.safetensors.index.json"; empty: `names` are all
  std::vector<std::string> names;
};
// From the paths of a repository or a snapshot; GGUF files may lie in folders, others only at the root. Nothing when there are
// none of these formats. `tag` is a part of a GGUF file's path ("Q4_K_M"; case does not count), or empty. Error{kBadInput}:
// several GGUF files, and the tag chooses none or more than one of them.
std::optional<WeightChoice> choose_weights(const std::vector<std::string>& names, const std::vector<WeightFormat>& formats,
                                           std::string_view tag);

// Whether one of them is a model in GGUF whose path has the tag in it.
bool has_gguf(const std::vector<std::string>& names, std::string_view tag);

// For --include and --exclude: '*' any characters ('/' too), '?' one, [abc] one of them, as Python's fnmatch; a pattern
// that ends with '/' means all beneath.
bool matches_glob(std::string_view path, std::string_view pattern);

}  // namespace sluice
