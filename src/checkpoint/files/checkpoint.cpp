#include "checkpoint/files/checkpoint.h"

#include <fmt/ranges.h>

#include <map>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/files/weight_map.h"

namespace sluice {

Checkpoint::Checkpoint(const std::string& directory, LoadFormat format) {
  std::vector<WeightFormat> formats;
  if (format != LoadFormat::kPt) formats.push_back(WeightFormat::kSafetensors);
  if (format != LoadFormat::kSafetensors) formats.push_back(WeightFormat::kPickle);
  const std::vector<std::string> there = names_in(directory);
  const std::optional<WeightChoice> choice = choose_weights(there, formats, "");
  if (!choice) {
    std::vector<std::string_view> wanted;
    if (format != LoadFormat::kPt)
      wanted.insert(wanted.end(), {"model.safetensors", "model.safetensors.index.json"});
    if (format != LoadFormat::kSafetensors)
      wanted.insert(wanted.end(), {"pytorch_model.bin", "pytorch_model.bin.index.json"});
    fail(ErrorKind::kBadInput,
         "{} has no weights: none of {} is there. --load-format says which are looked for; a .gguf "
         "file is named itself, and "
         "--load-format dummy needs no weights",
         directory, fmt::join(wanted, ", "));
  }
  const SettledWeights files = settle_weights(*choice, directory, there);
  if (!files.why_ignored.empty())
    log_info("{}/{} is ignored: {}", directory, choice->index, files.why_ignored);
  for (const std::string& name : files.names)
    open(directory, choice->format, name,
         files.index.empty() ? "the name of another shard" : files.index);
  set_apart_unreadable();
  if (files.index.empty())
    take_all();
  else
    take_listed(directory, files);
}

void Checkpoint::open(const std::string& directory, WeightFormat format, const std::string& name,
                      std::string_view listed_by) {
  const int number = static_cast<int>(files_.size());
  std::optional<File> file = open_beneath(directory, name);
  require(file.has_value(), "{} lists {}, which is not in {}; the download may be incomplete",
          listed_by, name, directory);
  if (format == WeightFormat::kPickle)
    files_.emplace_back(std::in_place_type<PtFile>, std::move(*file), name, number);
  else
    files_.emplace_back(std::in_place_type<SafetensorsFile>, std::move(*file), name, number);
}

void Checkpoint::set_apart_unreadable() {
  std::map<std::string_view, std::size_t> by_type;
  for (const TensorFile& file : files_)
    if (const auto* one = std::get_if<SafetensorsFile>(&file))
      for (const UnreadableTensor& tensor : one->unreadable())
        if (unreadable_.emplace(tensor.name, Unreadable{one->name(), tensor.dtype}).second)
          ++by_type[tensor.dtype];
  for (const auto& [dtype, count] : by_type)
    log_warning("{} tensors have the dtype {}, which cannot be read: the model must not need them",
                count, dtype);
}

void Checkpoint::take_all() {
  for (const TensorFile& file : files_)
    for (const TensorInfo& info : tensors_of(file))
      require(by_name_.emplace(info.name, &info).second,
              "the tensor {} is in two of the shards, and no index says which counts", info.name);
}

const std::vector<TensorInfo>& Checkpoint::tensors_of(const TensorFile& file) {
  return std::visit([](const auto& one) -> const std::vector<TensorInfo>& { return one.tensors(); },
                    file);
}

std::string_view Checkpoint::format() const {
  return std::holds_alternative<PtFile>(files_.front()) ? "pt" : "safetensors";
}

void Checkpoint::take_listed(const std::string& directory, const SettledWeights& files) {
  const auto weight_map =
      read_weight_map(read_index(directory, files.index).value_or(""), files.index);
  std::map<std::string_view, std::size_t> shards;
  for (const std::string& name : files.names) shards.emplace(name, shards.size());

  std::vector<std::unordered_map<std::string_view, const TensorInfo*>> by_shard(files_.size());
  std::size_t num_stored = 0;
  for (const TensorFile& file : files_) {
    num_stored += tensors_of(file).size();
    for (const TensorInfo& info : tensors_of(file)) by_shard[info.file].emplace(info.name, &info);
  }
  for (const auto& [name, shard] : weight_map) {
    const auto& held = by_shard[shards.at(shard)];
    const auto it = held.find(name);
    if (it == held.end() && unreadable_.contains(name)) continue;
    require(it != held.end(), "{} says that the tensor {} is in {}, which does not hold it",
            files.index, name.substr(0, 200), shard);
    require(by_name_.emplace(it->second->name, it->second).second, "{} lists the tensor {} twice",
            files.index, name.substr(0, 200));
  }
  if (num_stored > by_name_.size())
    log_warning("{} tensors of the shards are not in {} and are ignored",
                num_stored - by_name_.size(), files.index);
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  names.reserve(by_name_.size());
  for (const TensorFile& file : files_)
    for (const TensorInfo& info : tensors_of(file))
      if (find(info.name) == &info) names.push_back(info.name);
  return names;
}

std::vector<std::string> Checkpoint::unreadable_names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : unreadable_) names.emplace_back(name);
  return names;
}

const TensorInfo* Checkpoint::find(std::string_view name) const {
  const auto it = by_name_.find(name);
  if (it != by_name_.end()) return it->second;
  const auto apart = unreadable_.find(name);
  require(
      apart == unreadable_.end(),
      "{}: the tensor {} has the dtype {}, which cannot be read; readable are F64, F32, F16, BF16, "
      "I64, I32, I16, I8, U8, BOOL, F8_E4M3 and F8_E5M2: take weights of one of these",
      apart == unreadable_.end() ? "" : apart->second.file, name,
      apart == unreadable_.end() ? "" : apart->second.dtype);
  return nullptr;
}

std::uint64_t Checkpoint::total_bytes() const {
  std::uint64_t total = 0;  // each part is within a file, so the sum cannot overflow
  for (const auto& [name, info] : by_name_) total += info->bytes;
  return total;
}

void Checkpoint::check_storages() const {
  for (const TensorFile& file : files_)
    if (const auto* archive = std::get_if<PtFile>(&file)) archive->check_storages();
}

std::optional<MappedBytes> Checkpoint::map(const TensorInfo& info, std::uint64_t begin,
                                           std::uint64_t bytes) const {
  return std::visit([&](const auto& file) { return file.map(info, begin, bytes); },
                    files_[static_cast<std::size_t>(info.file)]);
}

void Checkpoint::read(const TensorInfo& info, std::uint64_t begin, std::span<std::byte> out) const {
  std::visit([&](const auto& file) { file.read(info, begin, out); },
             files_[static_cast<std::size_t>(info.file)]);
}

}  // namespace sluice
