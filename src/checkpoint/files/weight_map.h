// The index of a checkpoint in shards (model.safetensors.index.json): which file holds which
// tensor.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice {

// Tensor name and shard name of each entry, in the order of the index.
using WeightMap = std::vector<std::pair<std::string, std::string>>;

// The text of a directory's index; nothing if there is none. Error{kBadInput}: it is longer than
// 256 MiB.
std::optional<std::string> read_index(const std::string& directory, std::string_view name_of_index);

// `name_of_index` is for messages. Error{kBadInput} when the text is no index, or a shard is not a
// plain file name.
WeightMap read_weight_map(std::string_view text, std::string_view name_of_index);

// The shards that the map lists, each once, sorted. Error{kBadInput}: more than 16,384 of them.
std::vector<std::string> shards_of(const WeightMap& map, std::string_view name_of_index);

// shards_of() for the index of a directory.
std::vector<std::string> shards_beneath(const std::string& directory,
                                        std::string_view name_of_index);

}  // namespace sluice
