#include "server/core/pooling_model.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/ranges.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMaxFileBytes = 16 << 20;

struct PoolingMode {
  std::string_view name;    // of `pooling_mode`
  std::string_view flag;    // of older files
  std::string_view option;  // of --pooling
  Pooling pooling;
};
constexpr PoolingMode kModes[] = {
    {"cls", "pooling_mode_cls_token", "cls", Pooling::kFirst},
    {"max", "pooling_mode_max_tokens", "max", Pooling::kMax},
    {"mean", "pooling_mode_mean_tokens", "mean", Pooling::kMean},
    {"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", "mean-sqrt", Pooling::kMeanSqrt},
    {"weightedmean", "pooling_mode_weightedmean_tokens", "weighted-mean", Pooling::kWeightedMean},
    {"lasttoken", "pooling_mode_lasttoken", "last", Pooling::kLast},
};

// A file of the model as an object; null where there is none. Error{kBadInput}.
Json read_object(const std::string& directory, std::string_view folder, std::string_view name) {
  const std::string place = folder.empty() ? directory : fmt::format("{}/{}", directory, folder);
  const std::optional<std::string> text = read_text_beneath(place, name, kMaxFileBytes);
  if (!text) return nullptr;
  const std::string what = folder.empty() ? std::string(name) : fmt::format("{}/{}", folder, name);
  Json json = parse_json_or_throw(*text, what);
  require(json.is_object(), "{} must be a JSON object", what);
  return json;
}

void read_max_tokens(const Json& config, PoolingModel& out) {
  const auto found = config.find("max_seq_length");
  if (found == config.end() || found->is_null()) return;
  require(found->is_number_integer() && *found > 0, "max_seq_length must be a positive integer");
  // Some files hold a number that stands for no limit.
  if (*found < out.max_tokens) out.max_tokens = found->get<int>();
}

// What the chat template of a reranker that is a decoder is given.
void read_template_kwargs(const Json& config, PoolingModel& out) {
  const auto all = config.find("processing_kwargs");
  if (all == config.end() || !all->is_object()) return;
  const auto own = all->find("chat_template");
  if (own == all->end() || !own->is_object()) return;
  for (const auto& [key, value] : own->items()) {
    if (key == "add_generation_prompt")
      out.adds_generation_prompt = value == true;
    else if (key != "restore_suffix")
      out.template_kwargs[key] = value;
  }
}

bool lowers_texts(const Json& config) {
  const auto lower = config.find("do_lower_case");
  return lower != config.end() && *lower == true;
}

void read_transformer(const Json& config, bool is_encoder, PoolingModel& out) {
  if (config.is_null()) return;
  read_max_tokens(config, out);
  read_template_kwargs(config, out);
  // A decoder's tokenizer serves its texts, too.
  require(is_encoder || !lowers_texts(config),
          "sentence_bert_config.json wants texts in lower case, which a decoder's are not");
}

void read_pooling(const Json& config, std::string_view file, PoolingModel& out) {
  require(!config.is_null(), "modules.json names {}, which is not there", file);
  std::vector<std::string> names;
  const auto mode = config.find("pooling_mode");
  if (mode != config.end()) {
    const Json list = mode->is_array() ? *mode : Json::array({*mode});
    for (const Json& name : list) {
      require(name.is_string(), "{}: pooling_mode must be a name or a list of names", file);
      names.push_back(name.get<std::string>());
    }
  } else {
    for (const PoolingMode& one : kModes) {
      const auto flag = config.find(one.flag);
      if (flag != config.end() && flag->is_boolean() && flag->get<bool>())
        names.emplace_back(one.name);
    }
    if (names.empty()) names.emplace_back("mean");
  }
  require(names.size() == 1, "{} joins the poolings {}; one is supported", file,
          fmt::join(names, ", "));
  const auto* found = std::ranges::find(kModes, names[0], &PoolingMode::name);
  require(found != std::end(kModes), "{}: the pooling '{}' is not supported", file, names[0]);
  out.pooling = found->pooling;
  const auto include = config.find("include_prompt");
  out.includes_prompt = include == config.end() || include->is_null() || *include != false;
}

// The module of rerankers that are decoders.
void read_logit_score(const Json& config, std::string_view file, PoolingModel& out) {
  require(!config.is_null(), "modules.json names {}, which is not there", file);
  for (const auto& [key, place] :
       {std::pair<const char*, std::int32_t*>{"true_token_id", &out.yes_token},
        {"false_token_id", &out.no_token}}) {
    const auto id = config.find(key);
    require(id != config.end() && id->is_number_integer() && *id >= 0 && *id < INT32_MAX,
            "{}: {} must be a token id", file, key);
    *place = id->get<std::int32_t>();
  }
}

// What reads and writes anything but the vector of a text is not supported.
void check_vector_module(const Json& config, std::string_view file) {
  if (config.is_null()) return;
  for (const char* key : {"module_input_name", "module_output_name"}) {
    const auto name = config.find(key);
    require(name == config.end() || name->is_null() || *name == "sentence_embedding",
            "{}: {} is {}; only sentence_embedding, the vector of a text, is supported", file, key,
            dump_json(*name).substr(0, 64));
  }
}

// A module behind the pooling.
void read_vector_module(std::string_view type, const std::string& directory,
                        const std::string& folder, PoolingModel& out) {
  const std::string file = fmt::format("{}/config.json", folder);
  const Json config = read_object(directory, folder, "config.json");
  check_vector_module(config, file);
  if (type == "Normalize") {
    out.modules.push_back({});
    return;
  }
  require(!folder.empty(), "modules.json has a Dense without a folder");
  out.modules.push_back({std::make_shared<const DenseModule>(
      DenseModule::load(directory, folder, config, out.dimension))});
  out.dimension = out.modules.back().dense->width();
}

std::string_view class_of(const Json& module) {
  const auto type = module.find("type");
  if (type == module.end() || !type->is_string()) return {};
  const std::string_view name = type->get_ref<const std::string&>();
  return name.substr(name.rfind('.') + 1);
}

// The modules of sentence-transformers.
void read_modules(const Json& modules, const std::string& directory, bool is_encoder,
                  PoolingModel& out) {
  require(modules.is_array() && modules.size() <= 64, "modules.json must be a list of modules");
  out.normalizes = false;
  bool is_pooled = false;
  for (const Json& module : modules) {
    require(module.is_object(), "modules.json must be a list of objects");
    const auto path = module.find("path");
    const std::string folder =
        path != module.end() && path->is_string() ? path->get<std::string>() : std::string();
    require(folder.empty() || is_plain_path(folder), "modules.json names a path that is not plain");
    const std::string_view type = class_of(module);
    if (type == "Transformer") {
      read_transformer(read_object(directory, folder, "sentence_bert_config.json"), is_encoder,
                       out);
    } else if (type == "Pooling") {
      const std::string file = fmt::format("{}/config.json", folder);
      read_pooling(read_object(directory, folder, "config.json"), file, out);
      is_pooled = true;
    } else if (type == "LogitScore") {
      const std::string file = fmt::format("{}/config.json", folder);
      read_logit_score(read_object(directory, folder, "config.json"), file, out);
    } else if (type == "Normalize" || type == "Dense") {
      require(is_pooled, "modules.json has a {} before its Pooling, which is not supported", type);
      read_vector_module(type, directory, folder, out);
    } else {
      require(type == "Dropout", "modules.json has the module '{}', which is not supported",
              type.substr(0, 64));
    }
  }
  require(is_pooled || out.yes_token >= 0,
          "modules.json has no Pooling, so it gives no vector of a text");
  out.normalizes = !out.modules.empty() && out.modules.back().dense == nullptr;
  if (out.normalizes) out.modules.pop_back();
}

void read_prompts(const Json& config, PoolingModel& out) {
  if (config.is_null()) return;
  if (const auto prompts = config.find("prompts"); prompts != config.end() && prompts->is_object())
    for (const auto& [name, text] : prompts->items()) {
      require(text.is_string() || text.is_null(),
              "config_sentence_transformers.json: the prompt '{}' is no text", name);
      out.prompts.emplace_back(name, text.is_null() ? std::string() : text.get<std::string>());
    }
  const auto name = config.find("default_prompt_name");
  if (name == config.end() || name->is_null()) return;
  require(name->is_string() && out.prompt(name->get<std::string>()) != nullptr,
          "config_sentence_transformers.json: default_prompt_name names no prompt");
  out.default_prompt = name->get<std::string>();
}

void read_cuts(const Json& config, bool is_encoder, PoolingModel& out) {
  if (config.is_null()) return;
  const auto causal = config.find("is_causal");
  const auto both_ways = config.find("use_bidirectional_attention");
  const bool is_causal = (causal == config.end() || *causal != false) &&
                         (both_ways == config.end() || both_ways->is_null() || *both_ways == false);
  require(is_encoder || is_causal,
          "config.json wants attention in both directions, which this decoder has not");
  if (const auto st = config.find("sentence_transformers"); st != config.end() && st->is_object()) {
    const auto activation = st->find("activation_fn");
    out.has_sigmoid = activation == st->end() || !activation->is_string() ||
                      !activation->get_ref<const std::string&>().ends_with("Identity");
  }
  const auto flag = config.find("is_matryoshka");
  out.can_be_cut = flag == config.end() || *flag != false;
  const auto list = config.find("matryoshka_dimensions");
  if (list == config.end() || !list->is_array()) return;
  for (const Json& one : *list)
    if (one.is_number_integer() && one > 0) out.cut_dimensions.push_back(one.get<std::int64_t>());
}

void read_files(const std::string& directory, bool is_encoder, PoolingModel& out) {
  const std::optional<std::string> modules =
      read_text_beneath(directory, "modules.json", kMaxFileBytes);
  if (modules) {
    out.source = "modules.json";
    read_modules(parse_json_or_throw(*modules, "modules.json"), directory, is_encoder, out);
  }
  read_prompts(read_object(directory, "", "config_sentence_transformers.json"), out);
  read_cuts(read_object(directory, "", "config.json"), is_encoder, out);
}

void normalize(std::vector<float>& vector) {
  double squares = 0;
  for (const float value : vector) squares += static_cast<double>(value) * value;
  const double length = std::sqrt(squares);
  if (length == 0) return;
  for (float& value : vector) value = static_cast<float>(value / length);
}

// Which scores there are, after the files are read.
void set_scores(const Options& options, const std::string& text_directory,
                const EncoderConfig* encoder, PoolingModel& out) {
  if (out.yes_token >= 0 && out.refusal.empty()) {
    out.score = ScoreKind::kTokens;
    out.refusal = "the model is a reranker; its scores are at /v1/rerank and /v1/score";
    return;
  }
  if (encoder == nullptr || encoder->head == EncoderHead::kNone) {
    const bool is_embedder = out.source == "modules.json" || options.runner == "pooling";
    out.score = out.refusal.empty() && is_embedder ? ScoreKind::kCosine : ScoreKind::kNone;
    out.score_refusal = !out.refusal.empty() ? out.refusal
                        : !is_embedder
                            ? "the model's files say nothing of vectors; --runner pooling compares "
                              "them all the same"
                            : std::string();
    return;
  }
  out.score = ScoreKind::kHead;
  out.labels = encoder->labels;
  out.is_multi_label = encoder->is_multi_label;
  out.has_sigmoid = encoder->score_activation != "identity";
  out.pair = PairTemplate::load(text_directory);
  if (out.source != "modules.json" && options.pooling == "auto")
    out.refusal = "the model classifies texts; --pooling gives the vectors of its states";
}

}  // namespace

const std::string* PoolingModel::prompt(std::string_view name) const {
  for (const auto& [known, text] : prompts)
    if (known == name) return &text;
  return nullptr;
}

PoolingModel load_pooling_model(const Options& options, const std::string& directory,
                                const std::string& text_directory, const Engine& engine,
                                const EncoderConfig* encoder) {
  PoolingModel out;
  out.max_tokens = engine.context_length();
  out.state_dimension = engine.model_config().hidden_size;
  out.dimension = out.state_dimension;
  out.source = "the defaults of decoders";
  if (encoder != nullptr) {
    out.pooling = Pooling::kMean;
    out.normalizes = false;
    out.source = "the defaults of sentence-transformers";
  }
  if (options.runner == "generate") {
    out.refusal = "this server generates text only (--runner generate)";
    return out;
  }
  try {
    if (!directory.ends_with(".gguf")) read_files(directory, encoder != nullptr, out);
  } catch (const Error& error) {
    require(options.runner != "pooling" && encoder == nullptr, "{}", error.message());
    log_warning("no embeddings: {}", error.message());
    out.refusal = error.message();
  }
  const auto* chosen = std::ranges::find(kModes, options.pooling, &PoolingMode::option);
  if (chosen != std::end(kModes)) {
    out.pooling = chosen->pooling;
    out.source = "--pooling";
  }
  set_scores(options, text_directory, encoder, out);
  return out;
}

bool wants_lower_case(const std::string& directory) {
  try {
    const std::optional<std::string> text =
        read_text_beneath(directory, "modules.json", kMaxFileBytes);
    if (!text) return false;
    for (const Json& module : parse_json_or_throw(*text, "modules.json")) {
      if (!module.is_object() || class_of(module) != "Transformer") continue;
      const auto path = module.find("path");
      const std::string folder =
          path != module.end() && path->is_string() ? path->get<std::string>() : std::string();
      if (!folder.empty() && !is_plain_path(folder)) return false;
      const Json config = read_object(directory, folder, "sentence_bert_config.json");
      return !config.is_null() && lowers_texts(config);
    }
  } catch (const Error&) {  // load_pooling_model() says what is wrong
  }
  return false;
}

void finish_vectors(const PoolingModel& model, std::int64_t dimensions, bool normalizes,
                    std::span<std::vector<float>> rows) {
  for (const VectorModule& module : model.modules)
    if (module.dense == nullptr)
      for (std::vector<float>& row : rows) normalize(row);
    else
      module.dense->apply(rows);
  for (std::vector<float>& row : rows) {
    if (dimensions > 0) row.resize(static_cast<std::size_t>(dimensions));
    if (normalizes) normalize(row);
  }
}

std::string_view pooling_name(Pooling pooling) {
  const auto* found = std::ranges::find(kModes, pooling, &PoolingMode::pooling);
  return found == std::end(kModes) ? "all" : found->option;
}

}  // namespace sluice
