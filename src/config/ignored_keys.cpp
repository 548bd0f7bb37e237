#include "config/ignored_keys.h"

#include <optional>

#include "base/error.h"
#include "base/log_mute.h"
#include "config/config_reader.h"
#include "config/model_config.h"

namespace sluice {
namespace {

constexpr int kMaxDepth = 5;            // quantization_config.config_groups.group_0.weights.type
constexpr std::size_t kMaxTries = 400;  // each reads the whole configuration once

std::optional<ModelConfig> read_config(const Json& json) {
  try {
    return parse_model_config(dump_json(json), "config.json");
  } catch (const Error&) {
    return std::nullopt;
  }
}

class Prober {
 public:
  explicit Prober(Json file) : file_(std::move(file)), whole_(read_config(file_)) {}

  std::vector<std::string> run() {
    if (whole_) probe(file_, "", 1);
    return std::move(ignored_);
  }

 private:
  // `object` is file_ or a part of it; it is as before when this returns.
  void probe(Json& object, const std::string& path, int depth) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : object.items()) keys.push_back(key);
    for (const std::string& key : keys) {
      if (++tries_ > kMaxTries) return;
      Json kept = std::move(object[key]);
      object[key] = kept.is_string() ? Json(-7.5) : Json("no such value");
      const bool is_ignored = read_config(file_) == whole_;
      object[key] = std::move(kept);
      if (is_ignored)
        ignored_.push_back(path + key);
      else if (object[key].is_object() && depth < kMaxDepth)
        probe(object[key], path + key + ".", depth + 1);
    }
  }

  Json file_;
  std::optional<ModelConfig> whole_;
  std::vector<std::string> ignored_;
  std::size_t tries_ = 0;
};

}  // namespace

std::vector<std::string> ignored_config_keys(const std::string& config_text,
                                             std::string_view override_args) {
  Result<Json> file = parse_json(config_text);
  if (!file.ok() || !file->is_object()) return {};
  const Result<Json> patch = parse_json(override_args.empty() ? "{}" : override_args);
  if (patch.ok() && patch->is_object()) merge_json(*file, *patch);
  const LogMute mute;  // each try would repeat the warnings
  return Prober(std::move(*file)).run();
}

}  // namespace sluice
