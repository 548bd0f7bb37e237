// Selects the files that hold a model's weights, by load format.
//
// auto takes the first format that exists, in the order safetensors, PyTorch's .bin, GGUF; another
// value takes the named format. Within a format the order is:
// 1. model.safetensors (pytorch_model.bin); with all files of the index, where that lists it;
// 2. the shards that the index lists;
// 3. all of model-0000K-of-0000N;
// 4. the only safetensors file, which may have any name (gptq_model-4bit-128g.safetensors).
//
// Copies in other formats and folders (onnx/, original/, consolidated*.safetensors) are ignored.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

enum class WeightFormat { kSafetensors, kPickle, kGguf };

// "auto", "safetensors", "pt", "gguf" -> the formats in the order of attempts; none for "dummy",
// which needs no weights. Error{kBadInput} for another word.
std::vector<WeightFormat> formats_of(std::string_view load_format);

// The selected weights: files of one format, or the index that lists the files and must be read
// first (settle_weights).
struct WeightChoice {
  WeightFormat format = WeightFormat::kSafetensors;
  std::string index;  // "model.safetensors.index.json"; empty: `names` is complete
  // With an index: those that are taken without it unless it lists them; empty: it counts anyway.
  std::vector<std::string> names;
};
// Selects from the paths of a repository or a snapshot. GGUF files may be in folders, other files
// only at the root. Nothing if none of the formats exists. `tag` is a part of a GGUF file's path
// ("Q4_K_M"; case is ignored), or empty. Error{kBadInput}: several GGUF files, and the tag selects
// none or more than one of them.
std::optional<WeightChoice> choose_weights(const std::vector<std::string>& names,
                                           const std::vector<WeightFormat>& formats,
                                           std::string_view tag);

// A choice with all its files.
struct SettledWeights {
  std::string index;               // empty: there is none that counts
  std::vector<std::string> names;  // with an index those that it lists, sorted; some may be missing
  std::string why_ignored;         // what is wrong with an index that does not count
};
// Reads the index, if there is one, from `directory`. `names`: the paths of the repository or
// snapshot. An index beside model.safetensors counts where it lists that file, and none that is
// missing. Error{kBadInput}: an index without model.safetensors cannot be read.
SettledWeights settle_weights(const WeightChoice& choice, const std::string& directory,
                              const std::vector<std::string>& names);

// Whether one of the names is a GGUF model whose path contains the tag.
bool has_gguf(const std::vector<std::string>& names, std::string_view tag);

}  // namespace sluice
