#include "config/generation_config.h"

#include <algorithm>

#include "base/file.h"
#include "config/config_reader.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMaxFileBytes = 16 << 20;

// Keys that are read, and keys that only say which program wrote the file.
constexpr std::string_view kReadKeys[] = {"temperature",
                                          "top_p",
                                          "top_k",
                                          "min_p",
                                          "repetition_penalty",
                                          "max_new_tokens",
                                          "do_sample",
                                          "eos_token_id",
                                          "bos_token_id",
                                          "pad_token_id",
                                          "_from_model_config",
                                          "transformers_version"};

// Objects of config.json that hold the language model's part.
constexpr const char* kNested[] = {"text_config", "language_config", "llm_config"};

void add_ends_of_config(const Json& config, EndTokens& ends) {
  if (!config.is_object()) return;
  const auto add = [&](const Json& level, const std::string& place) {
    const auto found = level.find("eos_token_id");
    if (found != level.end()) ends.add_json(*found, place);
  };
  add(config, "config.json: eos_token_id");
  for (const char* nested : kNested)
    if (const auto part = config.find(nested); part != config.end() && part->is_object())
      add(*part, fmt::format("config.json: {}.eos_token_id", nested));
}

}  // namespace

void GenerationConfig::add_end(const EndToken& token) {
  ends.add(token.id, token.place);
  eos_token_ids = ends.ids();
}

GenerationConfig parse_generation_config(std::string_view text, std::string_view what,
                                         const ModelConfig& model, const Json& config_json) {
  const Json json = parse_config_text(text, what);
  const ConfigReader config(json, std::string(what));
  GenerationConfig out;
  out.temperature = config.find_number("temperature");
  out.top_p = config.find_number("top_p");
  out.top_k = config.find_int("top_k");
  out.min_p = config.find_number("min_p");
  out.repetition_penalty = config.find_number("repetition_penalty");
  out.max_new_tokens = config.find_int("max_new_tokens");
  if (config.find("do_sample") != nullptr) out.do_sample = config.bool_or("do_sample", false);

  out.ends = EndTokens(model.vocab_size);
  if (const Json* ids = config.find("eos_token_id"))
    out.ends.add_json(*ids, "generation_config.json: eos_token_id");
  add_ends_of_config(config_json, out.ends);
  for (const int id : model.eos_token_ids)  // overrides too, which config_json may lack
    if (!out.ends.places().contains(id)) out.ends.add(id, "config.json: eos_token_id");
  out.eos_token_ids = out.ends.ids();
  out.bos_token_id = read_token_id(config, "bos_token_id");
  if (!out.bos_token_id) out.bos_token_id = model.bos_token_id;
  out.pad_token_id = read_token_id(config, "pad_token_id");
  if (!out.pad_token_id) out.pad_token_id = model.pad_token_id;
  for (const auto& [key, value] : json.items())
    if (!value.is_null() &&
        std::find(std::begin(kReadKeys), std::end(kReadKeys), key) == std::end(kReadKeys))
      out.ignored_keys.push_back(key);
  return out;
}

GenerationConfig load_generation_config_json(const std::string& directory,
                                             const ModelConfig& model) {
  const auto text = read_text_beneath(directory, "generation_config.json", kMaxFileBytes);
  const auto config = read_text_beneath(directory, "config.json", kMaxFileBytes);
  Json config_json = parse_config_text(config.value_or("{}"), directory + "/config.json");
  if (!model.override_args.empty())
    merge_json(config_json, parse_config_text(model.override_args, kOverrideArgs));
  return parse_generation_config(text.value_or("{}"), directory + "/generation_config.json", model,
                                 config_json);
}

}  // namespace sluice
