#include "config/generation_config.h"

#include <algorithm>

#include "base/file.h"
#include "config/config_reader.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMaxFileBytes = 16 << 20;

}  // namespace

GenerationConfig parse_generation_config(std::string_view text, std::string_view what,
                                         const ModelConfig& model) {
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

  out.eos_token_ids = read_token_ids(config, "eos_token_id");
  out.eos_token_ids.insert(out.eos_token_ids.end(), model.eos_token_ids.begin(),
                           model.eos_token_ids.end());
  std::sort(out.eos_token_ids.begin(), out.eos_token_ids.end());
  out.eos_token_ids.erase(std::unique(out.eos_token_ids.begin(), out.eos_token_ids.end()),
                          out.eos_token_ids.end());
  out.bos_token_id = read_token_id(config, "bos_token_id");
  if (!out.bos_token_id) out.bos_token_id = model.bos_token_id;
  out.pad_token_id = read_token_id(config, "pad_token_id");
  if (!out.pad_token_id) out.pad_token_id = model.pad_token_id;
  return out;
}

GenerationConfig load_generation_config_json(const std::string& directory,
                                             const ModelConfig& model) {
  const auto text = read_text_beneath(directory, "generation_config.json", kMaxFileBytes);
  return parse_generation_config(text.value_or("{}"), directory + "/generation_config.json", model);
}

}  // namespace sluice
