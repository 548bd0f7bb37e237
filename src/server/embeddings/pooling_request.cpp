#include "server/embeddings/pooling_request.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <variant>

#include "base/log.h"
#include "server/api/prompts.h"
#include "server/api/request_fields.h"
#include "server/api/unknown_fields.h"

namespace sluice {
namespace {

using Fields = PoolingFields;
constexpr double kMaxInt = 2147483647;

// Every plain field of these routes, with its range (R7).
struct Row {
  std::string_view name;
  std::variant<std::optional<std::string> Fields::*, std::optional<bool> Fields::*,
               std::optional<std::int64_t> Fields::*, std::optional<double> Fields::*>
      target;
  double min = 0, max = 0;  // numbers; for texts the longest, in bytes
};
constexpr Row kRows[] = {
    {"model", &Fields::model, 0, 512},
    {"prompt_name", &Fields::prompt_name, 0, 128},
    {"cache_salt", &Fields::cache_salt, 0, 1024},
    {"task", &Fields::task, 0, 64},
    {"normalize", &Fields::normalize},
    {"use_activation", &Fields::normalize},
    {"add_special_tokens", &Fields::add_special_tokens},
    {"truncate", &Fields::truncate},
    {"return_documents", &Fields::return_documents},
    {"return_text", &Fields::return_text},
    {"raw_scores", &Fields::raw_scores},
    {"dimensions", &Fields::dimensions, 1, 1 << 20},
    {"truncate_prompt_tokens", &Fields::truncate_tokens, -1, 1 << 24},
    {"priority", &Fields::priority, -kMaxInt, kMaxInt},
    {"top_n", &Fields::top_n, 0, kMaxInt},
    {"top_k", &Fields::top_n, 0, kMaxInt},
    {"timeout", &Fields::timeout, 0, 86400},
};

std::optional<Fault> read_number(const Row& row, const std::string& path, const Json& json,
                                 Fields& out) {
  const bool is_integer = std::holds_alternative<std::optional<std::int64_t> Fields::*>(row.target);
  if (!json.is_number() && !is_big_integer(json))
    return wrong_type(path, is_integer ? "an integer" : "a number", json_type_name(json));
  const double number = is_big_integer(json) ? HUGE_VAL : json.get<double>();
  if (!(number >= row.min && number <= row.max) || (is_integer && number != std::floor(number)))
    return invalid_value(path, fmt::format("`{}` must be {} from {} to {}, not {}.", path,
                                           is_integer ? "an integer" : "a number", row.min, row.max,
                                           shown_text(dump_json(json))));
  if (is_integer)
    out.*std::get<std::optional<std::int64_t> Fields::*>(row.target) =
        static_cast<std::int64_t>(number);
  else
    out.*std::get<std::optional<double> Fields::*>(row.target) = number;
  return std::nullopt;
}

std::optional<Fault> read_row(const Row& row, const Json& body, Fields& out) {
  const std::string path(row.name);
  if (const auto* flag = std::get_if<std::optional<bool> Fields::*>(&row.target))
    return read_member(body, row.name, path, out.**flag);
  if (const auto* text = std::get_if<std::optional<std::string> Fields::*>(&row.target)) {
    if (auto fault = read_member(body, row.name, path, out.**text)) return fault;
    const auto& value = out.**text;
    if (value && static_cast<double>(value->size()) > row.max)
      return invalid_value(path, fmt::format("`{}` has {} bytes; at most {} are allowed.", path,
                                             value->size(), row.max));
    return std::nullopt;
  }
  const Json& value = member_or_null(body, row.name);
  return value.is_null() ? std::nullopt : read_number(row, path, value, out);
}

std::optional<Fault> read_format(const Json& body, Fields& out) {
  const Json& format = member_or_null(body, "encoding_format");
  if (format.is_null()) return std::nullopt;
  if (format != "float" && format != "base64")
    return invalid_value("encoding_format", "`encoding_format` must be `float` or `base64`.");
  out.base64 = format == "base64";
  return std::nullopt;
}

// The text of the prompt that stands before texts.
Result<std::string> prompt_of(const PoolingModel& model, const Fields& fields) {
  if (!fields.prompt_name)
    return model.default_prompt.empty() ? std::string() : *model.prompt(model.default_prompt);
  if (const std::string* text = model.prompt(*fields.prompt_name)) return *text;
  std::string known;
  for (const auto& [name, text] : model.prompts)
    known += (known.empty() ? "" : ", ") + shown_text(name, 64);
  return invalid_value("prompt_name", fmt::format("The model has no prompt {}; it has {}.",
                                                  shown_text(*fields.prompt_name, 64),
                                                  known.empty() ? "none" : known));
}

// Cuts the text's own tokens, and keeps those that stand around every text.
Result<std::size_t> cut(const ServedModel& model, std::string_view text, const std::string& param,
                        bool add_special_tokens, std::size_t kept, std::vector<std::int32_t>& ids) {
  if (ids.size() <= kept) return std::size_t{0};
  const std::size_t dropped = ids.size() - kept;
  if (!add_special_tokens) {
    ids.resize(kept);
    return dropped;
  }
  auto plain = encode_text(model, text, param, false, true);
  if (!plain) return plain.fault();
  const auto begin = std::ranges::search(ids, *plain).begin();
  const std::size_t around = ids.size() - std::min(ids.size(), plain->size());
  if (begin == ids.end() || around >= kept)
    return invalid_value("truncate_prompt_tokens",
                         fmt::format("{} tokens leave no room for the text beside the {} that "
                                     "stand around it.",
                                     kept, around));
  const auto end = begin + static_cast<std::ptrdiff_t>(plain->size());
  ids.erase(end - static_cast<std::ptrdiff_t>(dropped), end);
  return dropped;
}

// The number of tokens at the start that are the prompt's, as sentence-transformers counts them.
Result<int> prompt_length(const ServedModel& model, const std::string& prompt,
                          const std::string& param, bool add_special_tokens) {
  if (prompt.empty() || model.pooling->includes_prompt) return 0;
  auto ids = encode_text(model, prompt, param, add_special_tokens, false);
  if (!ids) return ids.fault();
  const bool has_end = add_special_tokens && model.tokenizer->is_special(ids->back());
  return static_cast<int>(ids->size()) - (has_end ? 1 : 0);
}

}  // namespace

std::int64_t PoolingFields::kept_tokens(const PoolingModel& model) const {
  if (truncate_tokens && *truncate_tokens > 0) return *truncate_tokens;
  return truncate_tokens || truncate.value_or(false) ? model.max_tokens : 0;
}

std::optional<Fault> read_pooling_fields(const ServedModel& model, const Json& body,
                                         std::span<const ProtocolField> rows, PoolingFields& out) {
  Json unused;
  FieldNames names;
  if (auto fault = translate_fields(body, rows, "", unused, names, out.ignored)) return fault;
  const auto is_own = [&](std::string_view name) {
    return std::ranges::any_of(rows, [&](const ProtocolField& row) {
      return row.name == name && row.use == FieldUse::kOwn;
    });
  };
  for (const Row& row : kRows)
    if (is_own(row.name))
      if (auto fault = read_row(row, body, out)) return fault;
  if (is_own("encoding_format"))
    if (auto fault = read_format(body, out)) return fault;
  if (out.truncate_tokens == 0)
    return invalid_value("truncate_prompt_tokens",
                         "`truncate_prompt_tokens` must be -1 (as many as the model takes) or at "
                         "least 1.");
  if (out.truncate_tokens && *out.truncate_tokens > model.pooling->max_tokens)
    return invalid_value("truncate_prompt_tokens",
                         fmt::format("`truncate_prompt_tokens` is {}; the model takes {} tokens.",
                                     *out.truncate_tokens, model.pooling->max_tokens));
  return check_model(model, out.model);
}

Result<const ServedModel*> serving_vectors(const ServerState& state) {
  auto serving = state.serving();
  if (!serving) return serving;
  const std::string& refusal = (*serving)->pooling->refusal;
  if (!refusal.empty())
    return Fault{400, "unsupported_task", "", fmt::format("No embeddings here: {}.", refusal)};
  return serving;
}

std::optional<Fault> check_total(const ServerState& state, std::int64_t tokens,
                                 const std::string& param) {
  if (tokens <= state.options.max_queued_tokens) return std::nullopt;
  return Fault{400, "too_many_prompts", param,
               fmt::format("The texts have more than {} tokens together (--max-queued-tokens). "
                           "Send fewer at once.",
                           state.options.max_queued_tokens)};
}

Fault too_many_tokens(const std::string& param, std::size_t tokens, std::int64_t most) {
  return Fault{400, "context_length_exceeded", param,
               fmt::format("The text has {} tokens; the model takes {}. Shorten it, or ask for the "
                           "cut with `truncate_prompt_tokens`.",
                           tokens, most)};
}

Result<std::vector<std::int32_t>> encode_text(const ServedModel& model, std::string_view text,
                                              const std::string& param, bool add_special_tokens,
                                              bool is_cut) {
  if (!is_cut) return encode_prompt(model, text, param, add_special_tokens);
  EncodeOptions options;
  options.add_special_tokens = add_special_tokens;
  try {
    std::vector<std::int32_t> ids = model.tokenizer->encode(text, options);
    if (!ids.empty()) return ids;
  } catch (const Error& e) {
    log_warning("tokenizing failed: {}", e.message());
    return invalid_value(
        param, "This text cannot be tokenized within the time that one request may take.");
  }
  return Fault{400, "empty_prompt", param, "The text has no tokens; give at least one."};
}

std::optional<Fault> read_pooling_inputs(const ServerState& state, const ServedModel& model,
                                         const PoolingFields& fields, const Json& input,
                                         const std::string& param, PoolingInputs& out) {
  if (input.is_null()) return missing_field(param);
  if (!input.is_string() && !input.is_array())
    return wrong_type(param, "a text, a list of texts, token ids or a list of such lists",
                      json_type_name(input));
  if (input.is_array() && input.empty())
    return Fault{400, "empty_prompt", param, fmt::format("`{}` is empty; give a text.", param)};
  const bool is_list = input.is_array() && (input[0].is_string() || input[0].is_array());
  const std::size_t count = is_list ? input.size() : 1;
  if (count > kMaxPoolingInputs)
    return Fault{400, "too_many_prompts", param,
                 fmt::format("`{}` has {} texts; at most {} are taken at once.", param, count,
                             kMaxPoolingInputs)};
  const std::int64_t kept = fields.kept_tokens(*model.pooling);
  const bool special = fields.add_special_tokens.value_or(true);
  Result<std::string> prompt = prompt_of(*model.pooling, fields);
  if (!prompt) return prompt.fault();
  Result<int> pooled_from = prompt_length(model, *prompt, param, special);
  if (!pooled_from) return pooled_from.fault();
  for (std::size_t i = 0; i < count; ++i) {
    const Json& one = is_list ? input[i] : input;
    const std::string path = is_list ? fmt::format("{}.{}", param, i) : param;
    PoolingJob::Input read;
    if (one.is_string()) {
      const std::string text = *prompt + one.get_ref<const std::string&>();
      auto ids = encode_text(model, text, path, special, kept > 0);
      if (!ids) return ids.fault();
      read.ids = std::move(*ids);
      read.pooled_from = *pooled_from;
      if (kept > 0) {
        auto dropped = cut(model, text, path, special, static_cast<std::size_t>(kept), read.ids);
        if (!dropped) return dropped.fault();
        out.num_cut += static_cast<std::int64_t>(*dropped);
      }
    } else {
      auto ids = read_token_ids(model, one, path);
      if (!ids) return ids.fault();
      read.ids = std::move(*ids);
      if (kept > 0 && std::cmp_greater(read.ids.size(), kept)) {
        out.num_cut += static_cast<std::int64_t>(read.ids.size()) - kept;
        read.ids.resize(static_cast<std::size_t>(kept));
      }
    }
    if (std::cmp_greater(read.ids.size(), model.pooling->max_tokens))
      return too_many_tokens(path, read.ids.size(), model.pooling->max_tokens);
    if (std::cmp_greater_equal(read.pooled_from, read.ids.size()))
      return Fault{400, "empty_prompt", path, "The text has no tokens beside its prompt."};
    out.num_tokens += static_cast<std::int64_t>(read.ids.size());
    if (auto fault = check_total(state, out.num_tokens, param)) return fault;
    out.list.push_back(std::move(read));
  }
  return std::nullopt;
}

Request pooling_request(const HttpRequest& request, const PoolingFields& fields, Pooling pooling) {
  Request out;
  out.pooling = pooling;
  out.max_new_tokens = 0;
  out.cache_namespace = cache_namespace(request.key_id, fields.cache_salt);
  out.priority = static_cast<int>(fields.priority.value_or(0));
  out.timeout_s = fields.timeout.value_or(0.0);
  return out;
}

void tell_pooling(Responder& responder, const PoolingFields& fields, const PoolingInputs& inputs) {
  tell_ignored(responder, fields.ignored);
  if (inputs.num_cut > 0)
    responder.add_header("X-Truncated-Tokens", std::to_string(inputs.num_cut));
}

Result<std::int64_t> read_dimensions(const PoolingModel& model, const PoolingFields& fields) {
  if (!fields.dimensions) return std::int64_t{0};
  const std::int64_t wanted = *fields.dimensions;
  if (wanted > model.dimension)
    return invalid_value(
        "dimensions",
        fmt::format("`dimensions` is {}; the model's vectors have {}.", wanted, model.dimension));
  if (!model.can_be_cut && wanted != model.dimension)
    return unsupported("dimensions",
                       "the model's configuration says that its vectors cannot be "
                       "cut (is_matryoshka).");
  if (!model.cut_dimensions.empty() && wanted != model.dimension &&
      std::ranges::count(model.cut_dimensions, wanted) == 0) {
    std::string list;
    for (const std::int64_t one : model.cut_dimensions)
      list += fmt::format("{}{}", list.empty() ? "" : ", ", one);
    return invalid_value(
        "dimensions",
        fmt::format("`dimensions` is {}; the model's vectors can be cut to {}.", wanted, list));
  }
  return wanted;
}

void append_vector(std::string& out, std::span<const float> vector, bool base64) {
  if (!base64) {
    char text[32];
    out += '[';
    for (std::size_t i = 0; i < vector.size(); ++i) {
      if (i > 0) out += ',';
      const auto end = std::to_chars(text, text + sizeof text, vector[i]).ptr;
      out.append(text, static_cast<std::size_t>(end - text));
    }
    out += ']';
    return;
  }
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto* bytes = reinterpret_cast<const unsigned char*>(vector.data());
  const std::size_t size = vector.size_bytes();
  out += '"';
  for (std::size_t i = 0; i < size; i += 3) {
    const std::size_t left = std::min<std::size_t>(3, size - i);
    unsigned group = static_cast<unsigned>(bytes[i]) << 16;
    if (left > 1) group |= static_cast<unsigned>(bytes[i + 1]) << 8;
    if (left > 2) group |= bytes[i + 2];
    for (std::size_t k = 0; k < 4; ++k)
      out += k <= left ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
  out += '"';
}

}  // namespace sluice
