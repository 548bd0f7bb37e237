#include "config/eagle3_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "config/config_reader.h"

namespace sluice {
namespace {

constexpr std::string_view kLatentArchitecture = "Eagle3DeepseekV2ForCausalLM";
constexpr std::array<std::string_view, 3> kArchitectures = {
    "LlamaForCausalLMEagle3", "Eagle3DraftModel", kLatentArchitecture};
constexpr std::string_view kEagleArchitecture = "LlamaForCausalLMEagle";
constexpr int kMaxTargetLayers = 16;

std::string architecture_of(const Json& config) {
  const auto found = config.find("architectures");
  const bool names = found != config.end() && found->is_array() && !found->empty();
  return names && found->front().is_string() ? found->front().get<std::string>() : std::string();
}

// The layers alone, as a model that has a class.
ModelConfig read_layers(const Json& config, std::string_view what) {
  const bool nested = config.contains("transformer_layer_config");
  Json layers = nested ? config["transformer_layer_config"] : config;
  require(layers.is_object(), "{}: transformer_layer_config is no JSON object", what);
  if (architecture_of(config) == kLatentArchitecture) {
    layers["architectures"] = {"DeepseekV3ForCausalLM"};
    layers["model_type"] = "deepseek_v3";
    // Such heads have dense MLPs and no indexer, whatever they copied from their target.
    layers["n_routed_experts"] = 0;
    layers.erase("index_topk");
  } else {
    const std::string type =
        ConfigReader(layers, std::string(what)).find_string("model_type").value_or("llama");
    require(type == "llama" || type == "qwen3",
            "{}: model_type is {}; heads of llama and qwen3 layers are computed", what, type);
    layers["architectures"] = {type == "llama" ? "LlamaForCausalLM" : "Qwen3ForCausalLM"};
    layers["model_type"] = type;
  }
  if (nested && config.contains("torch_dtype")) layers["torch_dtype"] = config["torch_dtype"];
  for (const char* key : {"eagle_config", "draft_vocab_size", "target_hidden_size"})
    layers.erase(key);
  return parse_model_config(dump_json(layers), what);
}

// Public programs disagree about these numbers; docs/speculation.md says what is taken.
std::vector<int> target_layers_of(const ConfigReader& top, const ConfigReader& nested,
                                  int num_layers) {
  constexpr std::string_view kIds = "eagle_aux_hidden_state_layer_ids";
  std::vector<int> ids = nested.ints(kIds, 0, num_layers, kMaxTargetLayers);
  if (!ids.empty()) {
    // The outputs of layers, which enter the next ones.
    const bool are_outputs = ids.front() == 1 && std::ranges::count(ids, num_layers) == 0;
    if (are_outputs)
      for (int& id : ids) ++id;
  } else {
    ids = top.ints(kIds, 0, num_layers, kMaxTargetLayers);
  }
  if (ids.empty()) ids = {2, num_layers / 2, num_layers - 3};
  const bool ascend = std::ranges::adjacent_find(ids, std::greater_equal()) == ids.end();
  require(ascend && ids.front() >= 1 && ids.back() <= num_layers,
          "{}: the states of layers {} are read; they must ascend from 1 to {}, the layers of the "
          "target",
          top.what(), fmt::join(ids, ", "), num_layers);
  return ids;
}

}  // namespace

bool is_eagle3_config(std::string_view text) {
  const Json config = parse_json_or_throw(std::string(text), "config.json");
  return config.is_object() && architecture_of(config).find("agle3") != std::string::npos;
}

Eagle3Config parse_eagle3_config(std::string_view text, std::string_view what,
                                 const ModelConfig& target) {
  const Json config = parse_json_or_throw(std::string(text), std::string(what));
  require(config.is_object(), "{}: it is no JSON object", what);
  const std::string architecture = architecture_of(config);
  require(std::ranges::count(kArchitectures, architecture) > 0,
          "{}: the architecture {} is no EAGLE-3 head that is computed here; those are {}", what,
          architecture, fmt::join(kArchitectures, ", "));
  const Json none = Json::object();
  const bool has_nested = config.contains("eagle_config") && !config["eagle_config"].is_null();
  require(!has_nested || config["eagle_config"].is_object(),
          "{}: eagle_config is no JSON object; leave it out, or give the layers in it", what);
  const ConfigReader top(config, std::string(what)),
      nested(has_nested ? config["eagle_config"] : none, std::string(what), "eagle_config.");

  Eagle3Config out;
  out.layers = read_layers(config, what);
  require(!out.layers.recurrent && !out.layers.moe,
          "{}: the head has other layers than those of attention and dense MLPs", what);
  require(
      out.layers.vocab_size == target.vocab_size,
      "{}: vocab_size is {}, and that of the target {}; a head drafts for the model that it was "
      "trained with",
      what, out.layers.vocab_size, target.vocab_size);
  const int width = top.int_or("target_hidden_size", out.layers.hidden_size);
  require(
      width == target.hidden_size,
      "{}: the head reads states of {} elements (target_hidden_size, or hidden_size), and those "
      "of the target have {}",
      what, width, target.hidden_size);
  out.draft_vocab_size = top.int_or("draft_vocab_size", 0);
  require(out.draft_vocab_size >= 0 && out.draft_vocab_size <= target.vocab_size,
          "{}: draft_vocab_size is {}; it must be at most the vocab_size, {}", what,
          out.draft_vocab_size, target.vocab_size);
  if (nested.bool_or("use_aux_hidden_state", true))
    out.target_layers = target_layers_of(top, nested, target.num_layers);
  const auto flag = [&](std::string_view key, bool otherwise) {
    return top.bool_or(key, nested.bool_or(key, otherwise));
  };
  out.norm_before_fc = flag("norm_before_fc", false);
  out.fc_norm = flag("fc_norm", false);
  out.norm_before_residual =
      flag("norm_before_residual", config.contains("speculators_model_type"));
  out.norm_output = flag("norm_output", false);
  return out;
}

bool is_eagle_config(std::string_view text) {
  const Json config = parse_json_or_throw(std::string(text), "config.json");
  return config.is_object() && architecture_of(config) == kEagleArchitecture;
}

ModelConfig parse_eagle_config(std::string_view text, std::string_view what,
                               const ModelConfig& target) {
  const Json config = parse_json_or_throw(std::string(text), std::string(what));
  require(config.is_object(), "{}: it is no JSON object", what);
  const std::string architecture = architecture_of(config);
  require(architecture == kEagleArchitecture || architecture == "LlamaForCausalLM",
          "{}: the architecture {} is no EAGLE head that is computed here; those are {} and "
          "LlamaForCausalLM",
          what, architecture, kEagleArchitecture);
  ModelConfig layers = read_layers(config, what);
  require(!layers.recurrent && !layers.mla && !layers.moe,
          "{}: the head has other layers than those of heads and dense MLPs", what);
  require(layers.vocab_size == target.vocab_size && layers.hidden_size == target.hidden_size,
          "{}: vocab_size and hidden_size are {} and {}, and those of the target {} and {}; a head "
          "drafts for the model that it was trained with",
          what, layers.vocab_size, layers.hidden_size, target.vocab_size, target.hidden_size);
  return layers;
}

}  // namespace sluice
