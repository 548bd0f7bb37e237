#include "server/api/prompts.h"

#include <algorithm>
#include <unordered_set>

#include "base/hash.h"
#include "base/log.h"
#include "server/api/answer_captures.h"
#include "server/core/errors.h"
#include "server/core/grammars.h"

namespace sluice {
namespace {

Fault too_long(std::string_view param, std::string message) {
  return Fault{400, "context_length_exceeded", std::string(param), std::move(message)};
}

// Whether the outermost object of `text` has a key twice. Any text; of what is no JSON, any answer.
bool repeats_a_field(std::string_view text) {
  std::unordered_set<std::string_view> keys;
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{' || text[i] == '[') ++depth;
    if (text[i] == '}' || text[i] == ']') --depth;
    if (text[i] != '"') continue;
    const std::size_t start = i + 1;
    for (++i; i < text.size() && text[i] != '"'; ++i)
      if (text[i] == '\\') ++i;
    if (i >= text.size()) return false;
    const std::size_t next = text.find_first_not_of(" \t\r\n", i + 1);
    const bool is_key = depth == 1 && next != std::string_view::npos && text[next] == ':';
    if (is_key && !keys.insert(text.substr(start, i - start)).second) return true;
  }
  return false;
}

// How deep the arrays and objects of a text are nested.
std::size_t depth_of(std::string_view text) {
  std::size_t depth = 0, most = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i)
        if (text[i] == '\\') ++i;
    } else if (text[i] == '{' || text[i] == '[') {
      most = std::max(most, ++depth);
    } else if ((text[i] == '}' || text[i] == ']') && depth > 0) {
      --depth;
    }
  }
  return most;
}

// A schema is what a client may nest so deep with reason.
Fault too_deep(std::string_view body) {
  return Fault{
      400, "json_too_deep", "",
      fmt::format("The body is nested {} levels deep; at most {} are allowed. Nest it less, "
                  "or send a JSON Schema as its text, a string, where up to 512 are: in "
                  "`guided_json`, `json_schema`, `structured_outputs.json`, or as the "
                  "`schema` of a format.",
                  depth_of(body), kRequestJson.max_depth)};
}

Fault ends_never(const GrammarField& grammar) {
  static constexpr std::string_view kPrefix = "sampling_params.";
  const bool is_nested = grammar.param.starts_with(kPrefix);
  const std::string name = std::string(is_nested ? kPrefix : "") + "ignore_eos";
  return Fault{400, "no_end_token", name,
               fmt::format("`{}` and `{}` exclude each other: constrained output ends with an end "
                           "token of the model.",
                           name, grammar.param)};
}

// Others come from the server's state, or from the client that has left.
bool is_of_grammar(const Fault& fault) {
  return fault.status == 400 || fault.status == 500;
}

}  // namespace

Result<Json> parse_object(std::string_view body) {
  // Some editors and shells write a byte order mark, which RFC 8259 lets a reader ignore.
  if (body.starts_with("\xEF\xBB\xBF")) body.remove_prefix(3);
  if (body.starts_with("\xFF\xFE") || body.starts_with("\xFE\xFF"))
    return Fault{400, "invalid_json", "", "The body is UTF-16; send JSON in UTF-8."};
  const std::size_t first = body.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos)
    return Fault{400, "invalid_json", "", "The body is empty; send a JSON object."};
  // Seen before parsing, so that a large body of the wrong kind costs nothing; of a deep one, its
  // depth is named.
  if (body[first] == '[') {
    Result<Json> start = parse_json(body.substr(0, 4096));
    if (!start && start.fault().code == "json_too_deep") return too_deep(body);
    return Fault{400, "invalid_type", "", "The body must be a JSON object, not an array."};
  }
  Result<Json> json = parse_json(body, kRequestJson);
  if (!json && json.fault().code == "json_too_deep") return too_deep(body);
  // In messages and schemas of clients the last value counts, as in every parser that they use.
  if (!json && json.fault().code == "duplicate_key" && !repeats_a_field(body)) {
    log_warning("request: {}; its last value counts", json.fault().message);
    JsonLimits limits = kRequestJson;
    limits.last_key_wins = true;
    json = parse_json(body, limits);
    if (!json && json.fault().code == "json_too_deep") return too_deep(body);
  }
  if (json && !json->is_object())
    return Fault{400, "invalid_type", "",
                 fmt::format("The body must be a JSON object, not {}.", json_type_name(*json))};
  return json;
}

std::optional<Fault> check_model(const ServedModel& model, const std::optional<std::string>& name) {
  if (!name || name->empty() || model.serves(*name)) return std::nullopt;
  const std::size_t colon = name->rfind(':');
  if (colon != std::string::npos && model.serves(name->substr(0, colon)))
    return unsupported("model", "adapters (`base:adapter`) are not part of this version.");
  return Fault{404, "model_not_found", "model",
               fmt::format("The model {} is not served here; {} is.", shown_text(*name, 96),
                           shown_text(model.names[0], 96))};
}

Result<std::vector<std::int32_t>> encode_prompt(const ServedModel& model, std::string_view text,
                                                std::string_view param, bool add_special_tokens) {
  const std::size_t context = static_cast<std::size_t>(model.engine->context_length());
  if (text.size() / model.tokenizer->max_bytes_per_token() > context)
    return too_long(param, fmt::format("The prompt has {} bytes, which is more than the context of "
                                       "{} tokens can hold. Shorten it.",
                                       text.size(), context));
  EncodeOptions options;
  options.add_special_tokens = add_special_tokens;
  try {
    const TraceSpan span(model.trace.get(), TraceLane::kText, "tokenize");
    std::vector<std::int32_t> ids = model.tokenizer->encode(text, options);
    if (ids.empty())
      return Fault{400, "empty_prompt", std::string(param),
                   "The prompt has no tokens; give at least one."};
    return ids;
  } catch (const Error& e) {
    log_warning("tokenizing failed: {}", e.message());
    return invalid_value(
        std::string(param),
        "This text cannot be tokenized within the time that one request may take.");
  }
}

Result<std::vector<std::int32_t>> read_token_ids(const ServedModel& model, const Json& json,
                                                 const std::string& param) {
  if (!json.is_array()) return wrong_type(param, "an array of token ids", json_type_name(json));
  if (json.empty())
    return Fault{400, "empty_prompt", param, "The prompt has no tokens; give at least one."};
  std::vector<std::int32_t> ids;
  ids.reserve(json.size());
  for (const Json& item : json) {
    if (!item.is_number_integer() && !is_big_integer(item))
      return wrong_type(param, "an array of token ids", json_type_name(item));
    const bool huge = is_big_integer(item) ||
                      (item.is_number_unsigned() && item.get<std::uint64_t>() > INT32_MAX);
    const std::int64_t id = huge ? -1 : item.get<std::int64_t>();
    if (id < 0 || id >= model.vocab_size)
      return Fault{400, "token_id_out_of_range", param,
                   fmt::format("Token id {} is not in the vocabulary: ids go from 0 to {}.",
                               dump_json(item), model.vocab_size - 1)};
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

std::optional<Fault> check_context(const ServedModel& model, std::size_t num_prompt_tokens,
                                   std::int64_t max_new_tokens, std::string_view param) {
  const std::int64_t context = model.engine->context_length();
  const std::int64_t prompt = static_cast<std::int64_t>(num_prompt_tokens);
  if (max_new_tokens == 0 && prompt > context)
    return too_long(param, fmt::format("The prompt has {} tokens; the context holds {}. "
                                       "Shorten the prompt.",
                                       prompt, context));
  if (max_new_tokens != 0 && prompt >= context)
    return too_long(param, fmt::format("The prompt has {} tokens; the context of {} must also hold "
                                       "the answer. Shorten the prompt.",
                                       prompt, context));
  if (max_new_tokens >= 0 && prompt + max_new_tokens > context)
    return too_long(param, fmt::format("The prompt has {} tokens and the answer may have {}, "
                                       "together {}; the context holds {}. "
                                       "Shorten the prompt or ask for fewer tokens.",
                                       prompt, max_new_tokens, prompt + max_new_tokens, context));
  return std::nullopt;
}

std::optional<Fault> fit_context(const ServedModel& model, GenerationPlan& plan, bool asked,
                                 std::string_view param) {
  for (const auto& ids : plan.prompts) {
    if (auto fault =
            check_context(model, ids.size(), asked ? plan.request.max_new_tokens : -1, param))
      return fault;
    if (!asked)
      plan.request.max_new_tokens =
          std::min(plan.request.max_new_tokens,
                   model.engine->context_length() - static_cast<int>(ids.size()));
  }
  return std::nullopt;
}

std::optional<Fault> check_least(const ServedModel& model, const GenerationPlan& plan,
                                 std::string_view param) {
  const int least = plan.request.params.min_new_tokens, asked = plan.request.max_new_tokens;
  for (const auto& ids : plan.prompts) {
    const int left = model.engine->context_length() - static_cast<int>(ids.size()),
              most = asked < 0 ? left : std::min(asked, left);
    if (least > most)
      return invalid_value(std::string(param),
                           fmt::format("`{}` asks for at least {} tokens, but at most {} may come.",
                                       param, least, most));
  }
  return std::nullopt;
}

std::uint64_t cache_namespace(std::uint64_t key_id, const std::optional<std::string>& salt) {
  if (!salt || salt->empty()) return key_id;
  return hash_combine(key_id, hash_bytes(*salt, 1));
}

GenerationPlan make_plan(const ServerState& state, const ServedModel& model,
                         const HttpRequest& request, const GenerationFields& fields) {
  GenerationPlan plan;
  const bool model_defaults = state.options.sampling_defaults == "model";
  plan.request =
      engine_request(fields, model_defaults ? &model.engine->generation_config() : nullptr);
  plan.request.cache_namespace = cache_namespace(request.key_id, fields.cache_salt);
  plan.stream = fields.stream.value_or(false);
  plan.skip_special_tokens = fields.skip_special_tokens.value_or(true);
  plan.keep_stop = fields.keep_stop.value_or(false);
  plan.same_seed = fields.seed.has_value();
  if (!fields.seed) plan.request.params.seed = state.draw_seed();
  plan.rid = fields.rid.value_or(request.request_id);
  // Only the prompt is scored: all choices would be the same.
  if (plan.request.max_new_tokens == 0) plan.request.num_choices = 1;
  return plan;
}

std::optional<Fault> add_grammar(const ServedModel& model, const HttpRequest& request,
                                 GenerationFields& fields, GenerationPlan& plan) {
  if (auto fault = add_captures(model, request, fields, plan)) return fault;
  if (!fields.grammar) return std::nullopt;
  std::vector<std::int32_t> ends = plan.request.params.stop_token_ids;
  if (!plan.request.ignore_eos) {
    const auto& eos = model.engine->generation_config().eos_token_ids;
    ends.insert(ends.end(), eos.begin(), eos.end());
  }
  std::vector<grammar::Unenforced> unenforced;
  Result<ConstraintMaker> maker = model.grammars->maker(
      fields.grammar->source, ends, fields.grammar->is_optional, &unenforced, request.why_unwanted);
  for (const auto& [tool, pointer] : unenforced) {
    const std::string schema =
        tool.empty() ? fields.grammar->param : fmt::format("tools.{}.function.parameters", tool);
    fields.ignored.push_back(pointer.empty() ? schema : schema + "#" + pointer);
  }
  if (!maker && !is_of_grammar(maker.fault())) return maker.fault();
  if (!maker && fields.grammar->is_optional) {
    log_warning("calls of a request are not constrained: {}", maker.fault().message);
    return std::nullopt;
  }
  if (!maker) {
    Fault fault = maker.fault();
    if (fault.code == "no_end_token" && plan.request.ignore_eos) return ends_never(*fields.grammar);
    fault.param = fields.grammar->param;
    if (fault.message.find("`" + fault.param + "`") == std::string::npos)
      fault.message = fmt::format("`{}`: {}", fault.param, fault.message);
    return fault;
  }
  plan.request.make_constraint = std::move(*maker);
  return std::nullopt;
}

void start_generation(ServerState& state, const ServedModel* model, const HttpRequest& request,
                      std::shared_ptr<Responder> responder, GenerationPlan plan) {
  std::make_shared<Generation>(state, model, request, std::move(responder), std::move(plan))
      ->start();
}

}  // namespace sluice
