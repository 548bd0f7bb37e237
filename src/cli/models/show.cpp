// `sluice show`: what is understood of a model's files, and what is not.
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/log.h"
#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/load_config.h"
#include "cli/download_bars.h"
#include "cli/files.h"
#include "cli/models/model_files.h"
#include "cli/models/model_size.h"
#include "cli/verbs.h"
#include "config/deepseek_config.h"
#include "engine/model_choice.h"
#include "engine/model_request.h"
#include "runtime/memory_plan.h"
#include "server/core/model_text.h"

namespace sluice {
namespace {

std::string_view rope_name(RopeType type) {
  switch (type) {
    case RopeType::kDefault:
      return "default";
    case RopeType::kLinear:
      return "linear";
    case RopeType::kDynamic:
      return "dynamic";
    case RopeType::kLlama3:
      return "llama3";
    case RopeType::kYarn:
      return "yarn";
    case RopeType::kLongRope:
      return "longrope";
  }
  return "";
}

Json config_rows(const ModelConfig& c) {
  if (c.fallback)  // the class of transformers reads the rest
    return {{"architecture", c.architecture}, {"model_type", c.model_type},
            {"layers", c.num_layers},         {"hidden_size", c.hidden_size},
            {"vocab_size", c.vocab_size},     {"context", c.max_position_embeddings},
            {"dtype", dtype_name(c.dtype)}};
  Json json = {{"architecture", c.architecture},
               {"model_type", c.model_type},
               {"layers", c.num_layers},
               {"hidden_size", c.hidden_size},
               {"vocab_size", c.vocab_size},
               {"heads", c.num_heads},
               {"kv_heads", c.num_kv_heads},
               {"head_dim", c.head_dim},
               {"intermediate_size", c.intermediate_size},
               {"context", c.max_position_embeddings},
               {"dtype", dtype_name(c.dtype)},
               {"tied_embeddings", c.tie_word_embeddings},
               {"rope",
                {{"type", rope_name(c.rope.type)},
                 {"theta", c.rope.theta},
                 {"dims", c.rope.rotary_dim},
                 {"interleaved", c.rope.interleaved},
                 {"factor", c.rope.factor}}}};
  if (c.quantization) json["quantization"] = c.quantization->describe();
  if (c.mla)
    json["mla"] = {{"q_lora_rank", c.mla->q_lora_rank},
                   {"kv_lora_rank", c.mla->kv_lora_rank},
                   {"nope", c.mla->qk_nope_head_dim},
                   {"rope", c.mla->qk_rope_head_dim},
                   {"v", c.mla->v_head_dim}};
  if (c.moe)
    json["experts"] = {{"routed", c.moe->num_experts},
                       {"chosen", c.moe->top_k},
                       {"shared", c.moe->num_shared_experts},
                       {"intermediate_size", c.moe->moe_intermediate_size},
                       {"moe_layers", model_size(c).num_moe_layers}};
  int windows = 0, chunks = 0, indexers = 0;
  for (const LayerConfig& layer : c.layers) {
    windows += layer.window > 0;
    chunks += layer.chunk > 0;
    indexers += layer.indexer == IndexerRole::kFull;
  }
  if (windows > 0) json["window_layers"] = windows;
  if (chunks > 0) json["chunk_layers"] = chunks;
  if (c.indexer)
    json["sparse_attention"] = {{"heads", c.indexer->num_heads},
                                {"head_dim", c.indexer->head_dim},
                                {"keys", c.indexer->topk},
                                {"indexers", indexers}};
  if (!c.wrapper.empty()) json["language_model_of"] = c.wrapper;
  if (is_deepseek_mla(c)) json["is_deepseek_mla"] = true;
  if (is_deepseek_nsa(c)) json["is_deepseek_nsa"] = true;
  if (const auto draft = draft_override(c))
    json["draft"] = {{"model_type", draft->model_type}, {"architecture", draft->architecture}};
  if (c.num_nextn_predict_layers > 0) json["next_token_layers_unused"] = c.num_nextn_predict_layers;
  return json;
}

Json sampling_rows(const GenerationConfig& g) {
  Json json = Json::object();
  if (g.temperature) json["temperature"] = *g.temperature;
  if (g.top_p) json["top_p"] = *g.top_p;
  if (g.top_k) json["top_k"] = *g.top_k;
  if (g.min_p) json["min_p"] = *g.min_p;
  if (g.repetition_penalty) json["repetition_penalty"] = *g.repetition_penalty;
  if (g.do_sample) json["do_sample"] = *g.do_sample;
  if (g.max_new_tokens) json["max_new_tokens"] = *g.max_new_tokens;
  return json;
}

// Each end token with its text and the places that name it.
Json end_rows(const EndTokens& ends, const Tokenizer* tokenizer) {
  Json json = Json::object();
  for (const auto& [id, places] : ends.places()) {
    const std::string text = tokenizer == nullptr ? "" : tokenizer->token_text(id);
    json[text.empty() ? std::to_string(id) : fmt::format("{} {}", id, text)] =
        fmt::format("{}", fmt::join(places, "; "));
  }
  return json;
}

// What `read` says, or {"error": why not}: a part that is wrong does not hide the others.
template <class Read>
Json part(Read&& read) {
  try {
    return read();
  } catch (const Error& error) {
    return {{"error", error.message()}};
  }
}

Json tokenizer_rows(const Tokenizer& tokenizer, const std::string& directory,
                    const Options& options) {
  Json json = {{"tokens", tokenizer.size()}};
  if (const std::string file = Tokenizer::file_of(directory, tokenizer_mode(options));
      !file.empty())
    json["file"] = std::filesystem::path(file).filename().string();
  if (tokenizer.bos_id())
    json["bos"] = fmt::format("{} {}", *tokenizer.bos_id(), tokenizer.bos_token());
  if (tokenizer.eos_id())
    json["eos"] = fmt::format("{} {}", *tokenizer.eos_id(), tokenizer.eos_token());
  return json;
}

std::string_view content_name(ContentFormat format) {
  switch (format) {
    case ContentFormat::kString:
      return "text";
    case ContentFormat::kParts:
      return "text or parts";
    case ContentFormat::kPartsOnly:
      return "parts";
    case ContentFormat::kOnePart:
      return "one part";
  }
  return "";
}

Json template_rows(const std::string& directory, const Options& options) {
  const auto chat = load_chat_template(directory, options.chat_template);
  if (!chat) return "none";
  const auto parser = [](const std::string& option, const std::string& detected) {
    return !option.empty() ? option : detected.empty() ? std::string("none") : detected;
  };
  return {{"bytes", chat->source().size()},
          {"content", content_name(chat->content_formats().user)},
          {"reasoning_parser", parser(options.reasoning_parser, chat->reasoning_parser())},
          {"tool_call_parser", parser(options.tool_call_parser, chat->tool_parser())},
          {"has_place_for_tools", chat->has_place_for_tools()}};
}

// How a CPU computes the quantised matrices.
std::string forms_in_words(const std::vector<MatrixForm>& forms) {
  if (forms.empty()) return "no matrix is quantised";
  const std::string stored = computed_as_stored(forms), widened = widened_when_read(forms);
  const std::string rest =
      widened.empty() ? "nothing is widened" : "widened when it is read: " + widened;
  return stored.empty() ? rest : fmt::format("computed as stored: {}; {}", stored, rest);
}

Json info(const Options& options) {
  const ResolvedModel model = obtain_model(options, false);
  Json json = {{"model", options.model}, {"directory", model.directory}};
  if (!model.repo_id.empty()) json["commit"] = model.commit;
  std::optional<ModelConfig> config;
  std::optional<GenerationConfig> generation;
  json["config"] = part([&] {
    config = read_model_config(options, model.directory);
    return config_rows(*config);
  });
  json["native"] = config.has_value() && !config->fallback;
  if (!config)
    json["reason"] = json["config"]["error"].get<std::string>();
  else if (config->fallback)
    json["reason"] = options.model_impl == "transformers"
                         ? "--model-impl transformers: the Transformers plugin runs it"
                     : !config->fallback->native_refusal.empty()
                         ? fmt::format(
                               "the Transformers plugin runs it, because the class that is "
                               "built in does not: {}",
                               config->fallback->native_refusal)
                         : fmt::format("{} is not built in: the Transformers plugin runs it",
                                       config->architecture);
  else
    json["reason"] =
        fmt::format("{} is one of the architectures that are built in", config->architecture);
  if (config) {
    if (!config->fallback) json["parameters"] = model_size(*config).parameters();
    json["sampling"] = part([&] {
      generation = load_generation_config(model.directory, *config);
      return sampling_rows(*generation);
    });
  }
  json["weights"] = part([&] {
    Json weights = Json::array();
    for (const StoredType& type : stored_types(model.directory, !model.repo_id.empty()))
      weights.push_back(
          {{"dtype", type.dtype}, {"tensors", type.num_tensors}, {"bytes", type.bytes}});
    return weights;
  });
  // Of a repository of the hub the weights may not be there yet.
  const bool has_weights = json["weights"].is_array() && !json["weights"].empty();
  if (config && !config->fallback && has_weights) {
    Json forms =
        part([&] { return Json(forms_in_words(forms_on_cpu(options, *config, model.directory))); });
    if (config->quantization || is_gguf_path(model.directory) || forms.is_object())
      json["on_a_cpu"] = std::move(forms);
  }
  const std::string text_directory =
      has_own_tokenizer(options) ? model.directory : obtain_tokenizer(options).directory;
  std::unique_ptr<Tokenizer> tokenizer;
  json["tokenizer"] = part([&] {
    tokenizer = load_tokenizer(text_directory, tokenizer_mode(options));
    return tokenizer_rows(*tokenizer, text_directory, options);
  });
  if (generation) {
    if (tokenizer != nullptr)
      for (const EndToken& token : tokenizer_ends(*tokenizer)) generation->add_end(token);
    json["end_tokens"] = end_rows(generation->ends, tokenizer.get());
    if (!generation->ends.ignored().empty())
      json["ignored_end_tokens"] = generation->ends.ignored();
  }
  json["chat_template"] = part([&] { return template_rows(text_directory, options); });
  json["ignored_keys"] = part([&] {
    Json rows = Json::object();
    for (const auto& [file, keys] :
         ignored_keys(options, config ? config->override_args : "", model.directory,
                      generation.value_or(GenerationConfig{}), text_directory, false))
      rows[file] = keys;
    return rows;
  });
  return json;
}

std::string in_words(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_array()) {
    std::vector<std::string> parts;
    for (const Json& entry : value) parts.push_back(in_words(entry));
    return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, ", "));
  }
  if (value.is_object()) {
    std::vector<std::string> parts;
    for (const auto& [key, entry] : value.items())
      parts.push_back(fmt::format("{} {}", key, in_words(entry)));
    return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, ", "));
  }
  return dump_json(value);
}

void print(const Json& json, int indent) {
  for (const auto& [key, value] : json.items()) {
    std::string name = key;
    std::ranges::replace(name, '_', ' ');
    if (value == "") continue;  // a GGUF file has no model_type
    if (value.is_object() && indent == 0 && value.size() > 3) {
      fmt::print("{}\n", name);
      print(value, 2);
    } else if (key == "parameters") {
      const double count = value.get<double>();
      fmt::print("{:<28}{} ({:.3g} {})\n", name, dump_json(value),
                 count / (count < 1e9 ? 1e6 : 1e9), count < 1e9 ? "million" : "billion");
    } else if (key == "weights" && value.is_array()) {
      if (value.empty()) fmt::print("{:<28}none\n", name);
      for (const Json& type : value)
        fmt::print("{:<28}{} in {} tensors of {}\n", name,
                   format_bytes(type["bytes"].get<std::int64_t>()), dump_json(type["tensors"]),
                   in_words(type["dtype"]));
    } else {
      fmt::print("{:{}}{:<{}}{}\n", "", indent, name, 28 - indent, in_words(value));
    }
  }
}

}  // namespace

int run_show(const Arguments& arguments) {
  const Options options = model_options(arguments);
  if (!arguments.log_level_was_given()) set_log_level(LogLevel::kError);
  const Json json = info(options);
  if (arguments.has("json"))
    fmt::print("{}\n", dump_json(json));
  else
    print(json, 0);
  const bool whole = json["native"].get<bool>() && !json["weights"].contains("error") &&
                     !(json.contains("on_a_cpu") && json["on_a_cpu"].contains("error"));
  return whole ? 0 : exit_code(ErrorKind::kBadInput);
}

}  // namespace sluice
