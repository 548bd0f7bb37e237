#include "hub/checkpoint.h"

#include <simdjson.h>

#include <map>

#include "base/error.h"
#include "base/log.h"

namespace sluice {
namespace {

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";
constexpr std::uint64_t kMaxIndexBytes = 256 << 20;
constexpr std::size_t kMaxShards = 16384;

// Tensor name and shard name of each entry of the index.
std::vector<std::pair<std::string, std::string>> read_weight_map(std::string_view text) {
  simdjson::dom::parser parser;
  simdjson::dom::object map;
  const auto error = parser.parse(text.data(), text.size())["weight_map"].get(map);
  require(!error, "{}: there is no weight_map that can be read: {}", kIndexFile,
          simdjson::error_message(error));
  std::vector<std::pair<std::string, std::string>> entries;
  entries.reserve(map.size());
  for (const auto& [name, value] : map) {
    std::string_view shard;
    require(!value.get(shard), "{}: the tensor {} has no shard name", kIndexFile, name.substr(0, 200));
    require(is_plain_file_name(shard), "{}: the tensor {} is in \"{}\", which is not a plain file name",
            kIndexFile, name.substr(0, 200), shard.substr(0, 80));
    entries.emplace_back(name, shard);
  }
  require(!entries.empty(), "{}: the weight_map is empty", kIndexFile);
  return entries;
}

}  // namespace

Checkpoint::Checkpoint(const std::string& directory) {
  if (std::optional<File> file = open_beneath(directory, kSingleFile)) {
    files_.emplace_back(std::move(*file), std::string(kSingleFile));
    for (const TensorInfo& info : files_.front().tensors()) by_name_.emplace(info.name, &info);
    return;
  }
  const auto index = read_text_beneath(directory, kIndexFile, kMaxIndexBytes);
  require(index.has_value(),
          "{} has neither {} nor {}; weights are read from safetensors or GGUF files (--load-format dummy needs "
          "none)",
          directory, kSingleFile, kIndexFile);
  open_shards(directory, *index);
}

void Checkpoint::open_shards(const std::string& directory, std::string_view index) {
  const auto weight_map = read_weight_map(index);
  std::map<std::string_view, int> shards;
  for (const auto& [name, shard] : weight_map) shards.emplace(shard, 0);
  require(shards.size() <= kMaxShards, "{}: {} shards; at most {} are allowed", kIndexFile, shards.size(),
          kMaxShards);
  for (auto& [shard, number] : shards) {
    number = static_cast<int>(files_.size());
    std::optional<File> file = open_beneath(directory, shard);
    require(file.has_value(), "{} lists {}, which is not in {}; the download may be incomplete", kIndexFile,
            shard, directory);
    files_.emplace_back(std::move(*file), std::string(shard), number);
  }

  std::vector<std::unordered_map<std::string_view, const TensorInfo*>> by_shard(files_.size());
  std::size_t num_stored = 0;
  for (const SafetensorsFile& file : files_) {
    num_stored += file.tensors().size();
    for (const TensorInfo& info : file.tensors()) by_shard[info.file].emplace(info.name, &info);
  }
  for (const auto& [name, shard] : weight_map) {
    const auto& held = by_shard[shards.at(shard)];
    const auto it = held.find(name);
    require(it != held.end(), "{} says that the tensor {} is in {}, which does not hold it", kIndexFile,
            name.substr(0, 200), shard);
    require(by_name_.emplace(it->second->name, it->second).second, "{} lists the tensor {} twice", kIndexFile,
            name.substr(0, 200));
  }
  if (num_stored > by_name_.size())
    log_warning("{} tensors of the shards are not in {} and are ignored", num_stored - by_name_.size(),
                kIndexFile);
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  names.reserve(by_name_.size());
  for (const SafetensorsFile& file : files_)
    for (const TensorInfo& info : file.tensors())
      if (find(info.name) == &info) names.push_back(info.name);
  return names;
}

const TensorInfo* Checkpoint::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

std::uint64_t Checkpoint::total_bytes() const {
  std::uint64_t total = 0;  // each part lies in a file, so the sum cannot overflow
  for (const auto& [name, info] : by_name_) total += info->bytes;
  return total;
}

void Checkpoint::read(const TensorInfo& info, std::uint64_t begin, std::span<std::byte> out) const {
  files_[static_cast<std::size_t>(info.file)].read(info, begin, out);
}

}  // namespace sluice
