#include "config/dflash_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "config/config_reader.h"

namespace sluice {
namespace {

constexpr std::string_view kArchitecture = "DFlashDraftModel";
constexpr int kMaxTargetLayers = 16;

std::string architecture_of(const Json& config) {
  const auto found = config.find("architectures");
  const bool names = found != config.end() && found->is_array() && !found->empty();
  return names && found->front().is_string() ? found->front().get<std::string>() : std::string();
}

// The layers alone, as a model that has a class.
ModelConfig read_layers(const Json& config, std::string_view what) {
  Json layers = config;
  const ConfigReader top(config, std::string(what));
  const std::string type = top.find_string("model_type").value_or("qwen3");
  require(type == "qwen3", "{}: model_type is {}; DFlash drafts of qwen3 layers are computed", what,
          type);
  layers["architectures"] = {"Qwen3ForCausalLM"};
  layers["model_type"] = type;
  for (const char* key : {"dflash_config", "block_size", "num_target_layers", "auto_map"})
    layers.erase(key);
  ModelConfig out = parse_model_config(dump_json(layers), what);
  for (int i = 0; i < out.num_layers; ++i)
    require(out.layer(i).window == 0,
            "{}: layer {} attends to a window of {} tokens; DFlash layers that see the whole text "
            "are computed, so give a draft without sliding windows",
            what, i, out.layer(i).window);
  return out;
}

}  // namespace

bool is_dflash_config(std::string_view text) {
  const Json config = parse_json_or_throw(std::string(text), "config.json");
  return config.is_object() && architecture_of(config) == kArchitecture;
}

DflashConfig parse_dflash_config(std::string_view text, std::string_view what,
                                 const ModelConfig& target) {
  const Json config = parse_json_or_throw(std::string(text), std::string(what));
  require(config.is_object(), "{}: it is no JSON object", what);
  const std::string architecture = architecture_of(config);
  require(architecture == kArchitecture,
          "{}: the architecture {} is no DFlash draft that is computed here; that is {}", what,
          architecture, kArchitecture);
  const Json none = Json::object();
  const bool has_nested = config.contains("dflash_config") && !config["dflash_config"].is_null();
  require(!has_nested || config["dflash_config"].is_object(), "{}: dflash_config is no JSON object",
          what);
  const ConfigReader top(config, std::string(what)),
      nested(has_nested ? config["dflash_config"] : none, std::string(what), "dflash_config.");

  DflashConfig out;
  out.layers = read_layers(config, what);
  require(
      out.layers.vocab_size == target.vocab_size && out.layers.hidden_size == target.hidden_size,
      "{}: vocab_size and hidden_size are {} and {}, and those of the target {} and {}; a draft "
      "reads the embedding of the model that it was trained with",
      what, out.layers.vocab_size, out.layers.hidden_size, target.vocab_size, target.hidden_size);
  const int num_layers = top.int_or("num_target_layers", target.num_layers);
  require(num_layers == target.num_layers,
          "{}: num_target_layers is {}, and the target has {} layers; a draft reads the states of "
          "the model that it was trained with",
          what, num_layers, target.num_layers);
  out.block_size = top.required_int("block_size");
  out.mask_token = nested.required_int("mask_token_id");
  require(out.mask_token < target.vocab_size,
          "{}: dflash_config.mask_token_id is {}, which is no token of the target's {}", what,
          out.mask_token, target.vocab_size);
  // The outputs of layers, which enter the next ones.
  constexpr std::string_view kIds = "target_layer_ids";
  out.target_layers = nested.ints(kIds, 0, target.num_layers - 1, kMaxTargetLayers);
  if (out.target_layers.empty()) nested.reject(kIds, "it must list the layers that are read");
  const bool ascend = std::ranges::adjacent_find(out.target_layers, std::greater_equal()) ==
                      out.target_layers.end();
  require(ascend, "{}: dflash_config.{} are {}; they must ascend", what, kIds,
          fmt::join(out.target_layers, ", "));
  for (int& layer : out.target_layers) ++layer;
  return out;
}

}  // namespace sluice
