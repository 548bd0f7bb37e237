// Which files of a model hold its weights, by --load-format.
//
// Weights: of the formats in the order
// safetensors, PyTorch's .bin, GGUF the first that is there (auto), or the one that was named:
// model.safetensors (pytorch_model.bin), else the shards that its index lists, else all of
// model-0000K-of-0000N, else the only safetensors file, which may have any name
// (gptq_model-4bit-128g.safetensors). Copies in other formats and folders (onnx/, original/,
// consolidated*.safetensors) stay where they are.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

enum class WeightFormat { kSafetensors, kPickle, kGguf };

// "auto", "safetensors", "pt", "gguf" in the order in which they are tried; nothing for "dummy",
// which needs no weights. Error{kBadInput} for another word.
std::vector<WeightFormat> formats_of(std::string_view load_format);

// Where weights are: files of one format, or the index that lists them and must be read first.
struct WeightChoice {
  WeightFormat format = WeightFormat::kSafetensors;
  std::string index;  // "model.safetensors.index.json"; empty: `names` are all
  std::vector<std::string> names;
};
// From the paths of a repository or a snapshot; GGUF files may lie in folders, others only at the
// root. Nothing when there are none of these formats. `tag` is a part of a GGUF file's path
// ("Q4_K_M"; case does not count), or empty. Error{kBadInput}: several GGUF files, and the tag
// chooses none or more than one of them.
std::optional<WeightChoice> choose_weights(const std::vector<std::string>& names,
                                           const std::vector<WeightFormat>& formats,
                                           std::string_view tag);

// Whether one of them is a model in GGUF whose path has the tag in it.
bool has_gguf(const std::vector<std::string>& names, std::string_view tag);

}  // namespace sluice
