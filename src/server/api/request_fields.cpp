#include "server/api/request_fields.h"

#include <array>
#include <atomic>
#include <cmath>
#include <variant>

#include "base/log.h"
#include "server/api/field_values.h"
#include "server/api/grammar_fields.h"
#include "server/api/unknown_fields.h"
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
  kGrammar,
  kToolChoice,
  kOnly,  // one value is taken: `target` has none, `max` is it
  kModalities,
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

constexpr std::string_view kLora = "adapters are not part of this version.";
constexpr std::string_view kMedia = "this server reads text only.";
constexpr std::string_view kTensors = "requests carry text and token ids only.";
constexpr std::string_view kDisagg =
    "separate prefill and decode servers are not part of this version.";

constexpr std::string_view kBudget = "thoughts have no limit of their own; use `max_tokens`.";
constexpr std::string_view kWatermark = "answers have no watermark.";
constexpr std::string_view kPart = "answers have no such part.";

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

// A flag of which only one value is what happens here.
constexpr Row only(std::string_view name, unsigned apis, bool taken, std::string_view why) {
  return Row{name, apis, Kind::kOnly, {}, 0, taken ? 1.0 : 0.0, false, why};
}
constexpr Row ignored(std::string_view name, unsigned apis) {
  return Row{name, apis, Kind::kIgnored, {}, 0, 0, false, {}};
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
    value("return_captures", kOpenAi | kNativeApi, &Fields::return_captures),
    value("skip_special_tokens", kSampled, &Fields::skip_special_tokens),
    value("separate_reasoning", kChatApi, &Fields::separate_reasoning),
    // The prompt and the model
    value("model", kOpenAi | kNativeApi, &Fields::model, 0, 512),
    value("cache_salt", kOpenAi | kNativeApi, &Fields::cache_salt, 0, 1024),
    value("rid", kOpenAi | kNativeApi, &Fields::rid, 0, 128),
    value("add_special_tokens", kOpenAi | kNativeApi, &Fields::add_special_tokens),
    value("request_id", kOpenAi, &Fields::request_id, 0, 128),
    value("reasoning_effort", kChatApi, &Fields::reasoning_effort, 0, 16),
    value("thinking_token_budget", kChatApi, &Fields::thinking_budget, 0, kMaxInt),
    value("add_generation_prompt", kChatApi, &Fields::add_generation_prompt),
    value("continue_final_message", kChatApi, &Fields::continue_final_message),
    value("parallel_tool_calls", kChatApi, &Fields::parallel_tool_calls),
    special("tool_choice", kChatApi, Kind::kToolChoice),
    special("response_format", kSampled, Kind::kGrammar),
    // Accepted without effect
    ignored("user", kOpenAi),
    ignored("metadata", kOpenAi),
    ignored("store", kOpenAi),
    ignored("service_tier", kOpenAi),
    ignored("safety_identifier", kOpenAi),
    ignored("prompt_cache_key", kOpenAi),
    ignored("verbosity", kOpenAi),
    special("modalities", kOpenAi, Kind::kModalities),
    ignored("spaces_between_special_tokens", kSampled),
    ignored("stream_reasoning", kChatApi),
    ignored("prompt_cache_retention", kOpenAi),
    ignored("prompt_cache_options", kOpenAi),
    ignored("moderation", kOpenAi),
    ignored("length_penalty", kOpenAi),  // of beam search, which is refused
    ignored("session_id", kOpenAi | kNativeApi),
    ignored("custom_labels", kOpenAi | kNativeApi),
    ignored("modalities", kNativeApi),
    ignored("log_metrics", kNativeApi),
    ignored("no_logs", kNativeApi),
    ignored("background", kNativeApi),
    ignored("routing_key", kNativeApi),
    ignored("conversation_id", kNativeApi),
    ignored("external_trace_header", kNativeApi),
    ignored("received_time", kNativeApi),
    ignored("kv_hints", kNativeApi),
    ignored("cache_prompt", kOpenAi),
    // Flags that may only say what happens here
    only("include_reasoning", kOpenAi, true,
         "thoughts are always part of the answer; ask the template for none with "
         "`chat_template_kwargs`."),
    // Known, and refused by name
    special("regex", kSampled, Kind::kGrammar),
    special("ebnf", kSampled, Kind::kGrammar),
    special("json_schema", kSampled, Kind::kGrammar),
    special("structural_tag", kSampled, Kind::kGrammar),
    special("structured_outputs", kSampled, Kind::kGrammar),
    special("guided_json", kSampled, Kind::kGrammar),
    special("guided_regex", kSampled, Kind::kGrammar),
    special("guided_choice", kSampled, Kind::kGrammar),
    special("guided_grammar", kSampled, Kind::kGrammar),
    refused("guided_whitespace_pattern", kSampled,
            "use `structured_outputs` with `disable_any_whitespace`."),
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
    refused("data_parallel_rank", kOpenAi | kNativeApi, "there is one data-parallel rank."),
    refused("disagg_prefill_dp_rank", kNativeApi, kDisagg),
    refused("bootstrap_pair_key", kNativeApi, kDisagg),
    refused("decode_tp_size", kNativeApi, kDisagg),
    refused("ec_transfer_params", kOpenAi, kDisagg),
    refused("extra_key", kOpenAi | kNativeApi, "use `cache_salt`."),
    refused("thinking", kChatApi, "use `chat_template_kwargs` or `reasoning_effort`."),
    refused("thinking_token_budget", kCompletionApi, kBudget),
    refused("max_thinking_tokens", kNativeApi, kBudget),
    refused("require_reasoning", kNativeApi, kBudget),
    special("grammar", kSampled, Kind::kGrammar),
    refused("n_predict", kOpenAi, "use `max_tokens`."),
    refused("best_of", kSamplingApi, "choosing among candidates is not part of this version."),
    refused("beam_width", kSamplingApi, "beam search is not part of this version."),
    refused("watermark", kSampled | kNativeApi, kWatermark),
    refused("watermarking", kOpenAi, kWatermark),
    refused("repetition_detection", kOpenAi, "use `frequency_penalty`."),
    refused("stream_interval", kSampled, "the server has one, --stream-interval."),
    refused("truncation_side", kOpenAi, "a prompt is never cut in silence; shorten it."),
    refused("vllm_xargs", kOpenAi, "there are no custom arguments."),
    refused("return_tokens_as_token_ids", kOpenAi, "use `return_token_ids`."),
    refused("logprob_token_ids", kOpenAi, "use `top_logprobs`, or `logprobs` of completions."),
    refused("token_indices_to_pool", kNativeApi, kPart),
    refused("multi_item_delimiter_indices", kNativeApi, kPart),
    refused("return_weight_versions", kOpenAi, kPart),
    refused("return_token_offsets", kOpenAi, kPart),
    refused("return_prompt_text", kOpenAi, kPart),
    refused("return_routed_experts", kOpenAi | kNativeApi, kPart),
    refused("routed_experts_prompt_start", kOpenAi, kPart),
    refused("routed_experts_start_len", kOpenAi | kNativeApi, kPart),
    refused("return_indexer_topk", kNativeApi, kPart),
    refused("return_cached_tokens_details", kOpenAi, kPart),
    refused("return_spec_tokens_details", kOpenAi, kPart),
    refused("return_prompt_token_ids", kOpenAi, "use `return_token_ids`."),
    refused("return_prompt_token_ids", kNativeApi, kPart),
    refused("return_input_ids_in_sglext", kOpenAi, "use `return_token_ids`."),
    refused("return_output_ids_in_sglext", kOpenAi, "use `return_token_ids`."),
    refused("return_sampling_mask", kOpenAi | kNativeApi, kPart),
    refused("sampling_logprobs_mode", kOpenAi | kNativeApi, kPart),
    refused("return_flat_raw_top_logprobs", kNativeApi, kPart),
    refused("return_flat_raw_output_top_logprobs", kOpenAi | kNativeApi, kPart),
    refused("return_flat_raw_top_logprobs_b64", kOpenAi | kNativeApi, kPart),
    refused("return_bytes", kNativeApi, kPart),
    refused("return_entropy", kNativeApi, kPart),
    refused("positional_embed_overrides", kNativeApi, kTensors),
    refused("media_io_kwargs", kOpenAi, kMedia),
    refused("mm_processor_kwargs", kOpenAi | kNativeApi, kMedia),
    refused("mm_payload", kOpenAi, kMedia),
    refused("return_mm_kwargs", kOpenAi, kMedia),
    refused("mm_hashes", kNativeApi, kMedia),
    refused("mm_content_hashes", kNativeApi, kMedia),
    refused("images_config", kOpenAi | kNativeApi, kMedia),
    refused("video_config", kOpenAi | kNativeApi, kMedia),
    refused("use_audio_in_video", kOpenAi | kNativeApi, kMedia),
    refused("encoder_urls", kNativeApi, kMedia),
    refused("allowed_token_ids", kOpenAi, "use `logit_bias`."),
    refused("bad_words", kOpenAi, "use `logit_bias`."),
};

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
        path, fmt::format("`{}` must be {}, not {}.", path, range_text(row), shown_value(json)));
  if (!json.is_number())
    return wrong_type(path, integer ? "an integer" : "a number", json_type_name(json));
  const double number = json.get<double>();
  // JSON has one type of number: 10.0, which some languages write, is an integer.
  if (integer && !json.is_number_integer() && number != std::floor(number))
    return wrong_type(path, "an integer", shown_value(json));
  if (!(row.above_min ? number > row.min : number >= row.min) || !(number <= row.max))
    return invalid_value(
        path, fmt::format("`{}` must be {}, not {}.", path, range_text(row), shown_value(json)));
  if (integer)
    out.*std::get<std::optional<std::int64_t> Fields::*>(row.target) =
        static_cast<std::int64_t>(number);  // in range, and below 2^53
  else
    out.*std::get<std::optional<double> Fields::*>(row.target) = number;
  return std::nullopt;
}

void note_ignored(std::size_t row, std::string path, Fields& out) {
  static std::array<std::atomic<bool>, std::size(kRows)> noted{};
  if (!noted[row].exchange(true))
    log_info("request field `{}` is accepted and has no effect here", kRows[row].name);
  out.ignored.push_back(std::move(path));
}

// Audio would be another kind of answer.
std::optional<Fault> read_modalities(const std::string& path, const Json& json) {
  if (!json.is_array()) return wrong_type(path, "an array of strings", json_type_name(json));
  for (const Json& item : json)
    if (item != "text") return unsupported(path, "answers are text.");
  return std::nullopt;
}

// The fields of an interface that other code reads.
std::vector<std::string_view> known_names(FieldApi api) {
  std::vector<std::string_view> names;
  if (api == kChatApi) names = {"messages", "tools", "chat_template_kwargs", "documents"};
  if (api == kCompletionApi) names = {"prompt"};
  if (api == kNativeApi) names = {"text", "input_ids", "sampling_params"};
  for (const Row& row : kRows)
    if ((row.apis & api) != 0) names.push_back(row.name);
  return names;
}

}  // namespace

std::optional<Fault> check_minimum(const std::string& name, const GenerationFields& fields) {
  const std::int64_t least = fields.min_tokens.value_or(0);
  const std::optional<std::int64_t> most =
      fields.max_completion_tokens ? fields.max_completion_tokens : fields.max_tokens;
  if (!most || least <= *most) return std::nullopt;
  return invalid_value(
      name, fmt::format("`{}` asks for at least {} tokens, but at most {} may come.", name, least,
                        *most));
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
        break;  // tool_choice.h reads it beside the tools
      case Kind::kGrammar:
        fault = read_grammar_field(row.name, path, *found, out);
        break;
      case Kind::kOnly:
        if (!found->is_boolean())
          fault = wrong_type(path, "true or false", json_type_name(*found));
        else if (found->get<bool>() != (row.max != 0))
          fault = unsupported(path, row.why);
        break;
      case Kind::kModalities:
        fault = read_modalities(path, *found);
        break;
      case Kind::kIgnored:
        note_ignored(i, path, out);
        break;
      case Kind::kUnsupported:
        if (!asks_for_nothing(*found) && !(row.name == "function_call" && *found == "none"))
          fault = unsupported(path, row.why);
        break;
    }
    if (fault) return fault;
  }
  note_unknown(object, known_names(api), prefix, out.ignored);
  const auto name = [&](std::string_view field) {
    return std::string(prefix) + std::string(field);
  };
  if (out.max_completion_tokens && out.max_tokens)
    note_without_effect(name("max_tokens"), out.ignored);
  // What two fields must agree on.
  if (out.best_of && *out.best_of != out.n.value_or(1))
    return unsupported(name("best_of"),
                       "choosing among more candidates than `n` is not part of this version.");
  if ((out.include_usage || out.continuous_usage) && !out.stream.value_or(false))
    return invalid_value(name("stream_options"),
                         "`stream_options` is only allowed with `stream`: true.");
  if (api == kChatApi && out.num_logprobs.value_or(0) > 0 && !out.want_logprobs.value_or(false))
    return invalid_value(name("top_logprobs"), "`top_logprobs` needs `logprobs`: true.");
  if (api == kCompletionApi && out.max_tokens == 0 && !out.echo.value_or(false))
    return invalid_value(name("max_tokens"),
                         "`max_tokens` must be an integer of at least 1 (0 only with `echo`).");
  return check_minimum(name(api == kSamplingApi ? "min_new_tokens" : "min_tokens"), out);
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
