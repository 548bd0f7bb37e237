// The keys of a model under the Transformers plugin that the program itself needs: its sizes and
// its end tokens. The class of transformers reads all other keys.
#include <algorithm>
#include <array>
#include <optional>

#include "base/log.h"
#include "config/config_families.h"
#include "config/config_parts.h"
#include "config/config_wrapper.h"

namespace sluice {
namespace {

// Names of a size in configuration classes of transformers (their `attribute_map`), the usual name
// first.
constexpr std::array<std::string_view, 8> kSynonyms[] = {
    {"hidden_size", "n_embd", "d_model", "dim", "model_dim", "emb_dim"},
    {"num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers",
     "decoder_layers", "num_decoder_layers"},
    {"num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads",
     "num_decoder_attention_heads"},
    {"max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length",
     "seq_length", "max_target_positions", "max_context_length"},
};

// The object under usual names; for a multimodal configuration that of the language model.
Json with_usual_names(const Json& file) {
  Json json = file;
  for (const char* nested : {"text_config", "llm_config", "language_config"})
    if (file.contains(nested) && file[nested].is_object()) {
      merge_json(json, file[nested]);
      if (file.contains("eos_token_id"))
        json["eos_token_id"] = ids_of_both(file["eos_token_id"], json["eos_token_id"]);
    }
  for (const auto& names : kSynonyms)
    for (const std::string_view name : names) {
      const std::string usual(names.front()), other(name);
      if (!other.empty() && !json.contains(usual) && json.contains(other))
        json[usual] = json[other];
    }
  return json;
}

// Longest sequence of a model whose configuration names none.
constexpr int kUnknownLength = 2048;

// Classes without a language model head: the plugin would silently ignore their head.
bool generates_text(std::string_view architecture) {
  const std::size_t at = architecture.rfind("For");
  if (at == std::string_view::npos) return true;
  const std::string_view what = architecture.substr(at);
  return what.starts_with("ForCausal") || what == "ForConditionalGeneration";
}

}  // namespace

bool has_native_class(std::string_view architecture, std::string_view model_type) {
  return native_family(architecture, model_type) != nullptr;
}

ModelConfig read_fallback_config(const Json& file, std::string_view what) {
  const Json json = with_usual_names(file);
  const ConfigReader config(json, std::string(what));
  ModelConfig model;
  model.architecture = read_architecture(config);
  model.model_type = config.find_string("model_type").value_or("");
  if (model.architecture.empty()) model.architecture = model.model_type;
  require(generates_text(model.architecture),
          "{}: {} is no class that generates text, as ...ForCausalLM and "
          "...ForConditionalGeneration are; the nearest architecture "
          "that is built in is {}, and --hf-overrides '{{\"architectures\": "
          "[\"...ForCausalLM\"]}}' names another class for these files",
          what, model.architecture, nearest_architecture(model.architecture));
  model.vocab_size = config.required_int("vocab_size");
  model.hidden_size = config.required_int("hidden_size");
  model.num_layers = config.required_int("num_hidden_layers");
  model.num_heads = model.num_kv_heads = config.int_or("num_attention_heads", 1);
  model.head_dim = config.int_or("head_dim", std::max(1, model.hidden_size / model.num_heads));
  const std::optional<int> longest = config.find_int("max_position_embeddings");
  if (!longest)  // positions without a table: ALiBi, states
    log_warning(
        "{}: no key says how long sequences may be, so it is {} tokens; --context-length "
        "with --allow-longer changes it",
        what, kUnknownLength);
  model.max_position_embeddings = longest.value_or(kUnknownLength);
  model.tie_word_embeddings = config.bool_or("tie_word_embeddings", false);
  model.dtype = read_dtype(config);
  model.quantization = read_quantization(config);
  model.bos_token_id = read_token_id(config, "bos_token_id");
  model.pad_token_id = read_token_id(config, "pad_token_id");
  model.eos_token_ids = read_token_ids(config, "eos_token_id");
  model.layers.resize(static_cast<std::size_t>(model.num_layers));
  return model;
}

}  // namespace sluice
