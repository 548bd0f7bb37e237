#include "hub/checkpoint.h"

#include <fmt/ranges.h>

#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "hub/weight_map.h"

namespace sluice {
namespace {

// The safetensors file of a directory that has exactly one. Adapters are no models.
std::optional<std::string> only_safetensors_file(const std::string& directory) {
  std::optional<std::string> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    std::string name = entry.path().filename().string();
    if (!name.ends_with(".safetensors") || name.starts_with("adapter") || !is_plain_file_name(name) || !entry.is_regular_file(error))
      continue;
    if (found) return std::nullopt;
    found = std::move(name);
  }
  return found;
}

}  // namespace

Checkpoint::Checkpoint(const std::string& directory, LoadFormat format) {
  std::vector<std::string_view> wanted;
  for (const CheckpointFiles& files : kCheckpointFiles) {
    if (format != LoadFormat::kAuto && format != files.format) continue;
    if (std::optional<File> file = open_beneath(directory, files.single)) {
      open(files.format, std::move(*file), std::string(files.single));
      for (const TensorInfo& info : tensors_of(files_.front())) by_name_.emplace(info.name, &info);
      return;
    }
    if (const auto index = read_index(directory, files.index)) {
      open_shards(directory, files, *index);
      return;
    }
    if (const auto name = files.format == LoadFormat::kSafetensors ? only_safetensors_file(directory) : std::nullopt) {
      open(files.format, open_beneath(directory, *name).value(), *name);
      for (const TensorInfo& info : tensors_of(files_.front())) by_name_.emplace(info.name, &info);
      return;
    }
    wanted.insert(wanted.end(), {files.single, files.index});
  }
  fail(ErrorKind::kBadInput,
       "{} has no weights: none of {} is there. --load-format says which are looked for; a .gguf file is named itself, and "
       "--load-format dummy needs no weights",
       directory, fmt::join(wanted, ", "));
}

void Checkpoint::open(LoadFormat format, File file, std::string name) {
  const int number = static_cast<int>(files_.size());
  if (format == LoadFormat::kPt)
    files_.emplace_back(std::in_place_type<PtFile>, std::move(file), std::move(name), number);
  else
    files_.emplace_back(std::in_place_type<SafetensorsFile>, std::move(file), std::move(name), number);
}

const std::vector<TensorInfo>& Checkpoint::tensors_of(const TensorFile& file) {
  return std::visit([](const auto& one) -> const std::vector<TensorInfo>& { return one.tensors(); }, file);
}

std::string_view Checkpoint::format() const {
  return std::holds_alternative<PtFile>(files_.front()) ? "pt" : "safetensors";
}

void Checkpoint::open_shards(const std::string& directory, const CheckpointFiles& files, std::string_view index) {
  const auto weight_map = read_weight_map(index, files.index);
  std::map<std::string, int, std::less<>> shards;
  for (const std::string& shard : shards_of(weight_map, files.index)) {
    shards.emplace(shard, static_cast<int>(files_.size()));
    std::optional<File> file = open_beneath(directory, shard);
    require(file.has_value(), "{} lists {}, which is not in {}; the download may be incomplete", files.index,
            shard, directory);
    open(files.format, std::move(*file), shard);
  }

  std::vector<std::unordered_map<std::string_view, const TensorInfo*>> by_shard(files_.size());
  std::size_t num_stored = 0;
  for (const TensorFile& file : files_) {
    num_stored += tensors_of(file).size();
    for (const TensorInfo& info : tensors_of(file)) by_shard[info.file].emplace(info.name, &info);
  }
  for (const auto& [name, shard] : weight_map) {
    const auto& held = by_shard[shards.at(shard)];
    const auto it = held.find(name);
    require(it != held.end(), "{} says that the tensor {} is in {}, which does not hold it", files.index,
            name.substr(0, 200), shard);
    require(by_name_.emplace(it->second->name, it->second).second, "{} lists the tensor {} twice", files.index,
            name.substr(0, 200));
  }
  if (num_stored > by_name_.size())
    log_warning("{} tensors of the shards are not in {} and are ignored", num_stored - by_name_.size(),
                files.index);
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  names.reserve(by_name_.size());
  for (const TensorFile& file : files_)
    for (const TensorInfo& info : tensors_of(file))
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

void Checkpoint::check_storages() const {
  for (const TensorFile& file : files_)
    if (const auto* archive = std::get_if<PtFile>(&file)) archive->check_storages();
}

void Checkpoint::read(const TensorInfo& info, std::uint64_t begin, std::span<std::byte> out) const {
  std::visit([&](const auto& file) { file.read(info, begin, out); }, files_[static_cast<std::size_t>(info.file)]);
}

}  // namespace sluice
