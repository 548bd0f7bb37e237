#include "config/config_wrapper.h"

#include <string_view>

#include "base/error.h"

namespace sluice {
namespace {

constexpr std::string_view kNested[] = {"text_config", "language_config", "llm_config"};

// Keys of the whole checkpoint that the language model's part inherits if it lacks them.
constexpr std::string_view kInherited[] = {
    "dtype",        "torch_dtype",  "quantization_config", "compression_config",
    "eos_token_id", "bos_token_id", "pad_token_id",        "auto_map"};

// Old files omit the type of the part.
struct Part {
  std::string_view wrapper;
  std::string_view model_type;
};
constexpr Part kParts[] = {{"Gemma3ForConditionalGeneration", "gemma3_text"},
                           {"Mistral3ForConditionalGeneration", "mistral"},
                           {"Llama4ForConditionalGeneration", "llama4_text"}};

}  // namespace

Json unwrap_config(const Json& json, const std::string& what, std::string& wrapper) {
  if (!json.is_object()) return json;
  for (const std::string_view key : kNested) {
    const auto nested = json.find(key);
    if (nested == json.end() || nested->is_null()) continue;
    require(nested->is_object(), "{}: {} must be an object", what, key);
    wrapper = json.value("model_type", Json("")).is_string() ? json.value("model_type", "") : "";
    if (const auto list = json.find("architectures");
        list != json.end() && list->is_array() && !list->empty() && list->front().is_string())
      wrapper = list->front().get<std::string>();
    Json text = *nested;
    // Both levels may say whether the head is tied, and contradict each other. The outer level is
    // about these files.
    if (json.contains("tie_word_embeddings"))
      text["tie_word_embeddings"] = json["tie_word_embeddings"];
    for (const std::string_view inherited : kInherited)
      if (json.contains(inherited) && (!text.contains(inherited) || text[inherited].is_null()))
        text[std::string(inherited)] = json[std::string(inherited)];
    if (json.contains("eos_token_id"))
      text["eos_token_id"] = ids_of_both(json["eos_token_id"], text["eos_token_id"]);
    if (!text.contains("model_type"))
      for (const Part& part : kParts)
        if (part.wrapper == wrapper) text["model_type"] = std::string(part.model_type);
    return text;
  }
  return json;
}

Json ids_of_both(const Json& outer, const Json& inner) {
  Json all = outer.is_array() ? outer : Json::array({outer});
  if (!inner.is_array()) all.push_back(inner);
  if (inner.is_array())
    for (const Json& id : inner) all.push_back(id);
  return all;
}

}  // namespace sluice
