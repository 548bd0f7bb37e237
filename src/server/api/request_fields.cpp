#include "server/api/request_fields.h"

#include <array>
#include <atomic>
#include <charconv>
#include <cmath>
#include <variant>

#include "base/log.h"
#include "server/core/errors.h"
#include "server/http/request_id.h"

namespace sluice {
namespace {

using Fields = GenerationFields;
using Target = std::variant<std::monostate, std::optional<double> Fields::*,
                            std::optional<std::int64_t> Fields::*, std::optional<bool> Fields::*,
                            std::optional<std::string> Fields::*>;

enum class Kind {
  kValue,
  kSeed,
  kStop,
  kStopTokens,
  kLogitBias,
  kStreamOptions,
  kTextFormat,
  kToolChoice,
  kIgnored,
  kUnsupported
};

struct Row {
  std::string_view name;
  unsigned apis;
  Kind kind;
  Target target = {};
  double min = 0, max = 0;    // numbers; for strings the longest, in bytes
  bool above_min = false;     // min itself is refused
  std::string_view why = {};  // kUnsupported
};

constexpr unsigned kOpenAi = kChatApi | kCompletionApi;
constexpr unsigned kSampled = kOpenAi | kSamplingApi;
constexpr unsigned kAll = kOpenAi | kNativeApi | kSamplingApi;
constexpr double kMaxInt = 2147483647;
constexpr std::size_t kMaxStops = 16, kMaxStopBytes = 256, kMaxBiases = 1024;

constexpr std::string_view kGrammar = "constrained output is not part of this version.";
constexpr std::string_view kLora = "adapters are not part of this version.";
constexpr std::string_view kMedia = "this server reads text only.";
constexpr std::string_view kTensors = "requests carry text and token ids only.";
constexpr std::string_view kDisagg =
    "separate prefill and decode servers are not part of this version.";

constexpr Row value(std::string_view name, unsigned apis, Target target, double min = 0,
                    double max = 0, bool above_min = false) {
  return Row{name, apis, Kind::kValue, target, min, max, above_min, {}};
}
constexpr Row special(std::string_view name, unsigned apis, Kind kind) {
  return Row{name, apis, kind, {}, 0, 0, false, {}};
}
constexpr Row refused(std::string_view name, unsigned apis, std::string_view why) {
  return Row{name, apis, Kind::kUnsupported, {}, 0, 0, false, why};
}

constexpr Row kRows[] = {
    // Sampling
    value("temperature", kSampled, &Fields::temperature, 0, 100),
    value("top_p", kSampled, &Fields::top_p, 0, 1, true),
    value("top_k", kSampled, &Fields::top_k, -1, kMaxInt),
    value("min_p", kSampled, &Fields::min_p, 0, 1),
    value("frequency_penalty", kSampled, &Fields::frequency_penalty, -2, 2),
    value("presence_penalty", kSampled, &Fields::presence_penalty, -2, 2),
    value("repetition_penalty", kSampled, &Fields::repetition_penalty, 1e-3, 2),
    special("seed", kOpenAi, Kind::kSeed),
    special("sampling_seed", kSamplingApi, Kind::kSeed),
    special("seed", kSamplingApi, Kind::kSeed),
    special("logit_bias", kSampled, Kind::kLogitBias),
    // Length and stopping
    value("n", kSampled, &Fields::n, 1, 128),
    value("best_of", kOpenAi, &Fields::best_of, 1, 128),
    value("max_tokens", kChatApi, &Fields::max_tokens, 1, kMaxInt),
    value("max_tokens", kCompletionApi, &Fields::max_tokens, 0, kMaxInt),
    value("max_completion_tokens", kChatApi, &Fields::max_completion_tokens, 1, kMaxInt),
    value("max_new_tokens", kSamplingApi, &Fields::max_tokens, 0, kMaxInt),
    value("min_tokens", kOpenAi, &Fields::min_tokens, 0, kMaxInt),
    value("min_new_tokens", kSamplingApi, &Fields::min_tokens, 0, kMaxInt),
    special("stop", kSampled, Kind::kStop),
    special("stop_token_ids", kSampled, Kind::kStopTokens),
    value("ignore_eos", kSampled, &Fields::ignore_eos),
    value("include_stop_str_in_output", kOpenAi, &Fields::keep_stop),
    value("no_stop_trim", kSampled, &Fields::keep_stop),
    value("deterministic", kOpenAi | kNativeApi, &Fields::deterministic),
    value("timeout", kOpenAi | kNativeApi, &Fields::timeout, 0, 86400, true),
    value("priority", kOpenAi | kNativeApi, &Fields::priority, -kMaxInt, kMaxInt),
    // What comes back
    value("stream", kOpenAi | kNativeApi, &Fields::stream),
    special("stream_options", kOpenAi, Kind::kStreamOptions),
    value("logprobs", kChatApi, &Fields::want_logprobs),
    value("top_logprobs", kChatApi, &Fields::num_logprobs, 0, 20),
    value("logprobs", kCompletionApi, &Fields::num_logprobs, 0, 20),
    value("return_logprob", kNativeApi, &Fields::want_logprobs),
    value("top_logprobs_num", kNativeApi, &Fields::num_logprobs, 0, 20),
    value("logprob_start_len", kNativeApi, &Fields::logprob_start_len, -1, kMaxInt),
    value("return_text_in_logprobs", kNativeApi, &Fields::return_text_in_logprobs),
    value("echo", kCompletionApi, &Fields::echo),
    value("return_token_ids", kOpenAi, &Fields::return_token_ids),
    value("skip_special_tokens", kSampled, &Fields::skip_special_tokens),
    value("separate_reasoning", kChatApi, &Fields::separate_reasoning),
    // The prompt and the model
    value("model", kOpenAi | kNativeApi, &Fields::model, 0, 512),
    value("cache_salt", kOpenAi | kNativeApi, &Fields::cache_salt, 0, 1024),
    value("rid", kOpenAi | kNativeApi, &Fields::rid, 0, 128),
    value("add_special_tokens", kOpenAi | kNativeApi, &Fields::add_special_tokens),
    value("reasoning_effort", kChatApi, &Fields::reasoning_effort, 0, 16),
    value("add_generation_prompt", kChatApi, &Fields::add_generation_prompt),
    value("continue_final_message", kChatApi, &Fields::continue_final_message),
    value("parallel_tool_calls", kChatApi, &Fields::parallel_tool_calls),
    special("tool_choice", kChatApi, Kind::kToolChoice),
    special("response_format", kOpenAi, Kind::kTextFormat),
    // Accepted without effect
    special("user", kOpenAi, Kind::kIgnored),
    special("metadata", kOpenAi, Kind::kIgnored),
    special("store", kOpenAi, Kind::kIgnored),
    special("service_tier", kOpenAi, Kind::kIgnored),
    special("safety_identifier", kOpenAi, Kind::kIgnored),
    special("prompt_cache_key", kOpenAi, Kind::kIgnored),
    special("verbosity", kOpenAi, Kind::kIgnored),
    special("modalities", kOpenAi, Kind::kIgnored),
    special("spaces_between_special_tokens", kSampled, Kind::kIgnored),
    special("stream_reasoning", kChatApi, Kind::kIgnored),
    // Known, and refused by name
    refused("regex", kSampled, kGrammar),
    refused("ebnf", kSampled, kGrammar),
    refused("json_schema", kSampled, kGrammar),
    refused("structural_tag", kSampled, kGrammar),
    refused("structured_outputs", kOpenAi, kGrammar),
    refused("guided_json", kOpenAi, kGrammar),
    refused("guided_regex", kOpenAi, kGrammar),
    refused("guided_choice", kOpenAi, kGrammar),
    refused("guided_grammar", kOpenAi, kGrammar),
    refused("stop_regex", kSampled, "stop strings are plain text here; use `stop`."),
    refused("functions", kChatApi, "use `tools`."),
    refused("function_call", kChatApi, "use `tools`."),
    refused("lora_path", kOpenAi | kNativeApi, kLora),
    refused("session_params", kOpenAi | kNativeApi,
            "sessions are not part of this version; the prefix cache finds a shared history by "
            "itself."),
    refused("return_hidden_states", kOpenAi | kNativeApi, "hidden states are not returned."),
    refused("return_meta_info", kOpenAi, "use /generate, which always returns it."),
    refused("custom_logit_processor", kAll, "no endpoint takes code."),
    refused("custom_params", kSamplingApi, "no endpoint takes code."),
    refused("logits_processors", kOpenAi, "no endpoint takes code."),
    refused("input_ids", kChatApi, "send token ids to /v1/completions or /generate."),
    refused("input_embeds", kAll, kTensors),
    refused("prompt_embeds", kAll, kTensors),
    refused("image_data", kNativeApi, kMedia),
    refused("audio_data", kNativeApi, kMedia),
    refused("video_data", kNativeApi, kMedia),
    refused("audio", kChatApi, kMedia),
    refused("prediction", kChatApi, "predicted outputs are not part of this version."),
    refused("web_search_options", kChatApi, "the server makes no outbound connection."),
    refused("suffix", kOpenAi, "filling in the middle is not part of this version."),
    refused("echo", kChatApi, "use /v1/completions, or `continue_final_message`."),
    refused("max_new_tokens", kOpenAi, "use `max_tokens`."),
    refused("min_new_tokens", kOpenAi, "use `min_tokens`."),
    refused("use_beam_search", kOpenAi, "beam search is not part of this version."),
    refused(
        "prompt_logprobs", kOpenAi,
        "use `echo` with `logprobs` on /v1/completions, or /generate with `logprob_start_len`."),
    refused("token_ids_logprob", kNativeApi, "use `top_logprobs_num`."),
    refused("truncate_prompt_tokens", kOpenAi, "a prompt is never cut in silence; shorten it."),
    refused("chat_template", kOpenAi,
            "templates come from the model or from --chat-template, never from a request."),
    refused("kv_transfer_params", kOpenAi, kDisagg),
    refused("bootstrap_host", kOpenAi | kNativeApi, kDisagg),
    refused("bootstrap_port", kOpenAi | kNativeApi, kDisagg),
    refused("bootstrap_room", kOpenAi | kNativeApi, kDisagg),
    refused("routed_dp_rank", kOpenAi | kNativeApi, "there is one data-parallel rank."),
    refused("allowed_token_ids", kOpenAi, "use `logit_bias`."),
    refused("bad_words", kOpenAi, "use `logit_bias`."),
};

// A number as a client would read it.
std::string shown(const Json& json) {
  if (json.is_number() || is_big_integer(json)) return dump_json(json).substr(0, 64);
  return std::string(json_type_name(json));
}

bool asks_for_nothing(const Json& json) {
  return json.is_null() || (json.is_boolean() && !json.get<bool>()) ||
         ((json.is_string() || json.is_array() || json.is_object()) &&
          (json.is_string() ? json.get_ref<const std::string&>().empty() : json.empty()));
}

std::string range_text(const Row& row) {
  if (row.above_min) return fmt::format("above {} and at most {}", row.min, row.max);
  if (row.max == kMaxInt) return fmt::format("an integer from {:.0f} to {:.0f}", row.min, row.max);
  return fmt::format("from {} to {}", row.min, row.max);
}

std::optional<Fault> read_value(const Row& row, const std::string& path, const Json& json,
                                Fields& out) {
  if (const auto* target = std::get_if<std::optional<bool> Fields::*>(&row.target)) {
    if (!json.is_boolean()) return wrong_type(path, "true or false", json_type_name(json));
    out.*(*target) = json.get<bool>();
    return std::nullopt;
  }
  if (const auto* target = std::get_if<std::optional<std::string> Fields::*>(&row.target)) {
    if (!json.is_string()) return wrong_type(path, "a string", json_type_name(json));
    const auto& text = json.get_ref<const std::string&>();
    if (text.size() > static_cast<std::size_t>(row.max))
      return invalid_value(path, fmt::format("`{}` has {} bytes; at most {} are allowed.", path,
                                             text.size(), row.max));
    out.*(*target) = text;
    return std::nullopt;
  }
  const bool integer = std::holds_alternative<std::optional<std::int64_t> Fields::*>(row.target);
  if (is_big_integer(json))
    return invalid_value(
        path, fmt::format("`{}` must be {}, not {}.", path, range_text(row), shown(json)));
  if (!json.is_number())
    return wrong_type(path, integer ? "an integer" : "a number", json_type_name(json));
  if (integer && !json.is_number_integer()) return wrong_type(path, "an integer", shown(json));
  const double number = json.get<double>();
  if (!(row.above_min ? number > row.min : number >= row.min) || !(number <= row.max))
    return invalid_value(
        path, fmt::format("`{}` must be {}, not {}.", path, range_text(row), shown(json)));
  if (integer)
    out.*std::get<std::optional<std::int64_t> Fields::*>(row.target) = json.get<std::int64_t>();
  else
    out.*std::get<std::optional<double> Fields::*>(row.target) = number;
  return std::nullopt;
}

std::optional<Fault> read_seed(const std::string& path, const Json& json, Fields& out) {
  if (json.is_number_unsigned())
    out.seed = static_cast<std::int64_t>(json.get<std::uint64_t>());
  else if (json.is_number_integer())
    out.seed = json.get<std::int64_t>();
  else if (json.is_number() || is_big_integer(json))
    return invalid_value(path,
                         fmt::format("`{}` must be a 64-bit integer, not {}.", path, shown(json)));
  else
    return wrong_type(path, "an integer", json_type_name(json));
  return std::nullopt;
}

std::optional<Fault> read_stop(const std::string& path, const Json& json, Fields& out) {
  const Json list = json.is_string() ? Json::array({json}) : json;
  if (!list.is_array())
    return wrong_type(path, "a string or an array of strings", json_type_name(json));
  if (list.size() > kMaxStops)
    return invalid_value(path, fmt::format("`{}` has {} strings; at most {} are allowed.", path,
                                           list.size(), kMaxStops));
  for (const Json& item : list) {
    if (!item.is_string())
      return wrong_type(path, "a string or an array of strings", json_type_name(item));
    const auto& text = item.get_ref<const std::string&>();
    if (text.empty() || text.size() > kMaxStopBytes)
      return invalid_value(path, fmt::format("A string of `{}` has {} bytes; 1 to {} are allowed.",
                                             path, text.size(), kMaxStopBytes));
    out.stop.push_back(text);
  }
  return std::nullopt;
}

std::optional<Fault> check_token(const std::string& path, std::string_view shown_id,
                                 std::int64_t id, std::int64_t vocab_size) {
  if (id >= 0 && id < vocab_size) return std::nullopt;
  return invalid_value(path, fmt::format("`{}` holds token id {}; ids go from 0 to {}.", path,
                                         shown_id, vocab_size - 1));
}

std::optional<Fault> read_stop_tokens(const std::string& path, const Json& json,
                                      std::int64_t vocab_size, Fields& out) {
  if (!json.is_array()) return wrong_type(path, "an array of token ids", json_type_name(json));
  if (json.size() > kMaxBiases)
    return invalid_value(path, fmt::format("`{}` has {} entries; at most {} are allowed.", path,
                                           json.size(), kMaxBiases));
  for (const Json& item : json) {
    if (!item.is_number_integer() && !is_big_integer(item))
      return wrong_type(path, "an array of token ids", shown(item));
    const bool huge = is_big_integer(item) ||
                      (item.is_number_unsigned() && item.get<std::uint64_t>() > kMaxInt);
    const std::int64_t id = huge ? -1 : item.get<std::int64_t>();
    if (auto fault = check_token(path, shown(item), id, vocab_size)) return fault;
    out.stop_token_ids.push_back(static_cast<std::int32_t>(id));
  }
  return std::nullopt;
}

std::optional<Fault> read_logit_bias(const std::string& path, const Json& json,
                                     std::int64_t vocab_size, Fields& out) {
  if (!json.is_object())
    return wrong_type(path, "an object from token ids to numbers", json_type_name(json));
  if (json.size() > kMaxBiases)
    return invalid_value(path, fmt::format("`{}` has {} entries; at most {} are allowed.", path,
                                           json.size(), kMaxBiases));
  for (const auto& [key, bias] : json.items()) {
    std::int64_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    // "05" would be a second bias of 5.
    if (error != std::errc() || end != key.data() + key.size() || key != std::to_string(id))
      return invalid_value(
          path, fmt::format("The keys of `{}` must be token ids, not {}.", path, shown_text(key)));
    if (auto fault = check_token(path, key, id, vocab_size)) return fault;
    if (!bias.is_number() && !is_big_integer(bias))
      return wrong_type(path + "." + key, "a number", json_type_name(bias));
    const double number = is_big_integer(bias) ? 1e300 : bias.get<double>();
    if (!(number >= -100 && number <= 100))
      return invalid_value(path + "." + key,
                           fmt::format("A bias must be from -100 to 100, not {}.", shown(bias)));
    out.logit_bias.emplace_back(static_cast<std::int32_t>(id), static_cast<float>(number));
  }
  return std::nullopt;
}

std::optional<Fault> read_stream_options(const std::string& path, const Json& json, Fields& out) {
  if (!json.is_object()) return wrong_type(path, "an object", json_type_name(json));
  for (const auto& [name, flag] :
       {std::pair<const char*, bool*>{"include_usage", &out.include_usage},
        {"continuous_usage_stats", &out.continuous_usage}}) {
    const auto found = json.find(name);
    if (found == json.end() || found->is_null()) continue;
    if (!found->is_boolean())
      return wrong_type(path + "." + name, "true or false", json_type_name(*found));
    *flag = found->get<bool>();
  }
  return std::nullopt;
}

std::optional<Fault> read_tool_choice(const std::string& path, const Json& json) {
  if (json.is_string() && (json == "none" || json == "auto")) return std::nullopt;
  if (json.is_object() || (json.is_string() && json == "required"))
    return unsupported(path,
                       "forcing a tool call needs constrained output, which is not part of this "
                       "version; `auto` and `none` are.");
  return invalid_value(path, fmt::format("`{}` must be `none` or `auto`.", path));
}

std::optional<Fault> read_text_format(const std::string& path, const Json& json) {
  if (!json.is_object()) return wrong_type(path, "an object", json_type_name(json));
  const auto type = json.find("type");
  if (type == json.end() || !type->is_string()) return missing_field(path + ".type");
  if (*type == "text") return std::nullopt;
  return unsupported(path, kGrammar);
}

void note_ignored(std::size_t row) {
  static std::array<std::atomic<bool>, std::size(kRows)> noted{};
  if (!noted[row].exchange(true))
    log_info("request field `{}` is accepted and has no effect here", kRows[row].name);
}

}  // namespace

std::string_view json_type_name(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::object:
      return "an object";
    default:
      return "a number";
  }
}

std::optional<Fault> read_fields(const Json& object, FieldApi api, std::string_view prefix,
                                 const FieldContext& context, GenerationFields& out) {
  for (std::size_t i = 0; i < std::size(kRows); ++i) {
    const Row& row = kRows[i];
    if ((row.apis & api) == 0) continue;
    const auto found = object.find(row.name);
    if (found == object.end() || found->is_null()) continue;
    if (row.kind == Kind::kUnsupported && *found == false) continue;  // asks for nothing
    const std::string path = std::string(prefix) + std::string(row.name);
    std::optional<Fault> fault;
    switch (row.kind) {
      case Kind::kValue:
        fault = read_value(row, path, *found, out);
        break;
      case Kind::kSeed:
        fault = read_seed(path, *found, out);
        break;
      case Kind::kStop:
        fault = read_stop(path, *found, out);
        break;
      case Kind::kStopTokens:
        fault = read_stop_tokens(path, *found, context.vocab_size, out);
        break;
      case Kind::kLogitBias:
        fault = read_logit_bias(path, *found, context.vocab_size, out);
        break;
      case Kind::kStreamOptions:
        fault = read_stream_options(path, *found, out);
        break;
      case Kind::kToolChoice:
        fault = read_tool_choice(path, *found);
        break;
      case Kind::kTextFormat:
        fault = read_text_format(path, *found);
        break;
      case Kind::kIgnored:
        note_ignored(i);
        break;
      case Kind::kUnsupported:
        if (!asks_for_nothing(*found)) fault = unsupported(path, row.why);
        break;
    }
    if (fault) return fault;
  }
  // What two fields must agree on.
  const auto name = [&](std::string_view field) {
    return std::string(prefix) + std::string(field);
  };
  if (out.best_of && *out.best_of != out.n.value_or(1))
    return unsupported(name("best_of"),
                       "choosing among more candidates than `n` is not part of this version.");
  if ((out.include_usage || out.continuous_usage) && !out.stream.value_or(false))
    return invalid_value(name("stream_options"),
                         "`stream_options` is only allowed with `stream`: true.");
  if (api == kChatApi && out.num_logprobs && !out.want_logprobs.value_or(false))
    return invalid_value(name("top_logprobs"), "`top_logprobs` needs `logprobs`: true.");
  if (api == kCompletionApi && out.max_tokens == 0 && !out.echo.value_or(false))
    return invalid_value(name("max_tokens"),
                         "`max_tokens` must be an integer of at least 1 (0 only with `echo`).");
  const std::int64_t most =
      out.max_completion_tokens.value_or(out.max_tokens.value_or(std::int64_t{1} << 32));
  if (out.min_tokens.value_or(0) > most)
    return invalid_value(
        name(api == kSamplingApi ? "min_new_tokens" : "min_tokens"),
        fmt::format("At least {} tokens were asked for, but at most {}.", *out.min_tokens, most));
  return std::nullopt;
}

Request engine_request(const GenerationFields& fields, const GenerationConfig* model_defaults) {
  static const GenerationConfig kNone;
  const GenerationConfig& model = model_defaults ? *model_defaults : kNone;
  const double default_temperature =
      model.do_sample == false ? 0.0 : model.temperature.value_or(1.0);
  Request request;
  SamplingParams& params = request.params;
  params.temperature = static_cast<float>(fields.temperature.value_or(default_temperature));
  params.top_p = static_cast<float>(fields.top_p.value_or(model.top_p.value_or(1.0)));
  params.top_k = static_cast<int>(fields.top_k.value_or(model.top_k.value_or(-1)));
  if (params.top_k == 0) params.top_k = -1;
  params.min_p = static_cast<float>(fields.min_p.value_or(model.min_p.value_or(0.0)));
  params.frequency_penalty = static_cast<float>(fields.frequency_penalty.value_or(0.0));
  params.presence_penalty = static_cast<float>(fields.presence_penalty.value_or(0.0));
  params.repetition_penalty = static_cast<float>(
      fields.repetition_penalty.value_or(model.repetition_penalty.value_or(1.0)));
  params.logit_bias = fields.logit_bias;
  params.seed = static_cast<std::uint64_t>(
      fields.seed.value_or(0));  // make_plan draws one where there is none
  params.min_new_tokens = static_cast<int>(fields.min_tokens.value_or(0));
  params.stop_token_ids = fields.stop_token_ids;
  request.num_choices = static_cast<int>(fields.n.value_or(1));
  const std::optional<std::int64_t> most =
      fields.max_completion_tokens ? fields.max_completion_tokens : fields.max_tokens;
  request.max_new_tokens = static_cast<int>(most.value_or(model.max_new_tokens.value_or(-1)));
  request.ignore_eos = fields.ignore_eos.value_or(false);
  request.deterministic = fields.deterministic.value_or(false);
  request.stop = fields.stop;
  request.priority = static_cast<int>(fields.priority.value_or(0));
  request.timeout_s = fields.timeout.value_or(0.0);
  return request;
}

std::vector<FieldSummary> field_summaries() {
  std::vector<FieldSummary> out;
  for (const Row& row : kRows) {
    std::string_view kind = "special";
    if (row.kind == Kind::kIgnored) kind = "ignored";
    if (row.kind == Kind::kUnsupported) kind = "unsupported";
    if (row.kind == Kind::kValue) {
      static constexpr std::string_view kNames[] = {"", "number", "integer", "boolean", "string"};
      kind = kNames[row.target.index()];
    }
    out.push_back({row.name, row.apis, kind, row.min, row.max});
  }
  return out;
}

}  // namespace sluice
