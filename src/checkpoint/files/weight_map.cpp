#include "checkpoint/files/weight_map.h"

#include <simdjson.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"

namespace sluice {

std::optional<std::string> read_index(const std::string& directory,
                                      std::string_view name_of_index) {
  return read_text_beneath(directory, name_of_index, 256 << 20);
}

WeightMap read_weight_map(std::string_view text, std::string_view name_of_index) {
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  const auto error = parser.parse(text.data(), text.size())["weight_map"].get(object);
  require(!error, "{}: there is no weight_map that can be read: {}", name_of_index,
          simdjson::error_message(error));
  WeightMap map;
  map.reserve(object.size());
  for (const auto& [name, value] : object) {
    std::string_view shard;
    require(!value.get(shard), "{}: the tensor {} has no shard name", name_of_index,
            name.substr(0, 200));
    require(is_plain_file_name(shard),
            "{}: the tensor {} is in \"{}\", which is not a plain file name", name_of_index,
            name.substr(0, 200), shard.substr(0, 80));
    map.emplace_back(name, shard);
  }
  require(!map.empty(), "{}: the weight_map is empty", name_of_index);
  return map;
}

std::vector<std::string> shards_of(const WeightMap& map, std::string_view name_of_index) {
  constexpr std::size_t kMaxShards = 16384;
  std::vector<std::string> shards;
  for (const auto& [tensor, shard] : map)
    if (shards.empty() || shards.back() != shard)
      shards.push_back(shard);  // adjacent entries mostly have the same shard
  std::ranges::sort(shards);
  shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
  require(shards.size() <= kMaxShards, "{}: {} shards; at most {} are allowed", name_of_index,
          shards.size(), kMaxShards);
  return shards;
}

std::vector<std::string> shards_beneath(const std::string& directory,
                                        std::string_view name_of_index) {
  return shards_of(
      read_weight_map(read_index(directory, name_of_index).value_or(""), name_of_index),
      name_of_index);
}

}  // namespace sluice
