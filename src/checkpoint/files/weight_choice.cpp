#include "checkpoint/files/weight_choice.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/files/weight_map.h"
#include "checkpoint/gguf/gguf_file.h"

namespace sluice {
namespace {

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return out;
}

// "model-00002-of-00007" -> its beginning, number and count.
struct ShardName {
  std::string_view stem;
  int number = 0, count = 0;
};
std::optional<ShardName> shard_name(std::string_view stem) {
  constexpr std::size_t kTail = 15;  // -00002-of-00007
  if (stem.size() <= kTail) return std::nullopt;
  const std::string_view tail = stem.substr(stem.size() - kTail);
  const auto number = [&](std::size_t at) -> int {
    int value = 0;
    for (const char c : tail.substr(at, 5)) {
      if (c < '0' || c > '9') return -1;
      value = value * 10 + (c - '0');
    }
    return value;
  };
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || number(1) < 1 || number(10) < number(1))
    return std::nullopt;
  return ShardName{stem.substr(0, stem.size() - kTail), number(1), number(10)};
}

// GGUF files that are the parts of one model, in order. An unsplit file is a group of its own.
struct GgufGroup {
  std::string stem;  // "Q4_K_M/model-Q4_K_M"
  std::vector<std::string> names;
};

// Groups by the name that messages use.
std::map<std::string, GgufGroup> gguf_groups(const std::vector<std::string>& names,
                                             std::string_view tag) {
  std::map<std::string, GgufGroup> groups;
  for (const std::string& name : names) {
    const std::string lower = lower_case(name);
    const std::string_view last = std::string_view(lower).substr(lower.rfind('/') + 1);
    // Vision towers and quantisation statistics are not models.
    if (!is_gguf_path(name) || !is_plain_path(name) || last.starts_with("mmproj") ||
        last.find("imatrix") != std::string_view::npos)
      continue;
    if (!tag.empty() && lower.find(lower_case(tag)) == std::string::npos) continue;
    const std::string_view stem = std::string_view(name).substr(0, name.size() - 5);
    const auto shard = shard_name(stem);
    GgufGroup& group =
        groups[shard ? fmt::format("{} in {} parts", shard->stem, shard->count) : name];
    group.stem = shard ? shard->stem : stem;
    group.names.push_back(name);
  }
  for (auto& [text, group] : groups) std::ranges::sort(group.names);
  return groups;
}

std::optional<WeightChoice> choose_gguf(const std::vector<std::string>& names,
                                        std::string_view tag) {
  auto groups = gguf_groups(names, tag);
  const auto all = gguf_groups(names, "");
  if (all.empty()) return std::nullopt;
  std::vector<std::string_view> shown;
  for (const auto& [text, group] : groups.empty() ? all : groups) shown.push_back(text);
  require(groups.size() != 0, "no GGUF file has \"{}\" in its name; there are: {}", tag,
          fmt::join(shown, ", "));
  if (groups.size() > 1 && !tag.empty()) {
    // "Q4_K" also matches Q4_K_M, so a name that ends with the tag has priority.
    for (const auto& [text, group] : groups)
      if (lower_case(group.stem).ends_with(lower_case(tag)))
        return WeightChoice{WeightFormat::kGguf, "", group.names};
  }
  require(groups.size() == 1,
          "there are {} GGUF files; name one by a part of its name, as in ORG/NAME:Q4_K_M: {}",
          groups.size(), fmt::join(shown, ", "));
  return WeightChoice{WeightFormat::kGguf, "", std::move(groups.begin()->second.names)};
}

// If the names of some shards state the count: all shards of a model without an index, missing
// shards included.
std::vector<std::string> shards_without_index(const std::vector<std::string>& names,
                                              std::string_view usual, std::string_view ending) {
  for (const std::string& name : names) {
    if (!name.ends_with(ending)) continue;
    const auto shard = shard_name(std::string_view(name).substr(0, name.size() - ending.size()));
    if (!shard || shard->stem != usual) continue;
    std::vector<std::string> all;
    for (int i = 1; i <= shard->count; ++i)
      all.push_back(fmt::format("{}-{:05}-of-{:05}{}", usual, i, shard->count, ending));
    return all;
  }
  return {};
}

std::optional<WeightChoice> choose_plain(const std::vector<std::string>& names,
                                         WeightFormat format) {
  const bool pickle = format == WeightFormat::kPickle;
  const std::string usual = pickle ? "pytorch_model" : "model",
                    ending = pickle ? ".bin" : ".safetensors", single = usual + ending;
  const auto has = [&](const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  const std::string index = has(single + ".index.json") ? single + ".index.json" : "";
  if (has(single)) return WeightChoice{format, index, {single}};
  if (!index.empty()) return WeightChoice{format, index, {}};
  if (auto shards = shards_without_index(names, usual, ending); !shards.empty())
    return WeightChoice{format, "", std::move(shards)};
  if (pickle) return std::nullopt;  // optimizers and training arguments are .bin files too
  // A single file may have any name, as in quantised models. Adapters are not models; Mistral's own
  // format has other names.
  std::vector<std::string> others;
  for (const std::string& name : names)
    if (name.ends_with(ending) && is_plain_file_name(name) && !name.starts_with("adapter") &&
        !name.starts_with("consolidated"))
      others.push_back(name);
  return others.size() == 1 ? std::optional(WeightChoice{format, "", std::move(others)})
                            : std::nullopt;
}

}  // namespace

std::vector<WeightFormat> formats_of(std::string_view load_format) {
  if (load_format == "auto")
    return {WeightFormat::kSafetensors, WeightFormat::kPickle, WeightFormat::kGguf};
  if (load_format == "safetensors") return {WeightFormat::kSafetensors};
  if (load_format == "pt") return {WeightFormat::kPickle};
  if (load_format == "gguf") return {WeightFormat::kGguf};
  require(load_format == "dummy",
          "--load-format is {}; allowed are auto, safetensors, pt, gguf, dummy", load_format);
  return {};
}

std::optional<WeightChoice> choose_weights(const std::vector<std::string>& names,
                                           const std::vector<WeightFormat>& formats,
                                           std::string_view tag) {
  for (const WeightFormat format : formats) {
    if (!tag.empty() && format != WeightFormat::kGguf) continue;  // a tag names a GGUF file
    std::optional<WeightChoice> choice =
        format == WeightFormat::kGguf ? choose_gguf(names, tag) : choose_plain(names, format);
    if (choice) return choice;
  }
  return std::nullopt;
}

SettledWeights settle_weights(const WeightChoice& choice, const std::string& directory,
                              const std::vector<std::string>& names) {
  if (choice.index.empty()) return {"", choice.names, ""};
  if (choice.names.empty()) return {choice.index, shards_beneath(directory, choice.index), ""};
  const auto ignored = [&](std::string why) {
    return SettledWeights{"", choice.names, std::move(why)};
  };
  std::vector<std::string> listed;
  try {
    listed = shards_beneath(directory, choice.index);
  } catch (const Error& error) {
    return ignored(error.what());
  }
  for (const std::string& name : choice.names)
    if (!std::ranges::binary_search(listed, name))
      return ignored(fmt::format("it does not list {}", name));
  for (const std::string& name : listed)
    if (std::ranges::find(names, name) == names.end())
      return ignored(fmt::format("it lists {}, which is not there", name));
  return {choice.index, std::move(listed), ""};
}

bool has_gguf(const std::vector<std::string>& names, std::string_view tag) {
  return !gguf_groups(names, tag).empty();
}

}  // namespace sluice
