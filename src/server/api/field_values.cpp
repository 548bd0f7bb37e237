#include "server/api/field_values.h"

#include <charconv>
#include <cmath>

#include "server/api/unknown_fields.h"
#include "server/core/errors.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxStops = 16, kMaxStopBytes = 256, kMaxBiases = 1024;

}  // namespace

std::string shown_value(const Json& json) {
  if (json.is_number() || is_big_integer(json)) return dump_json(json).substr(0, 64);
  return std::string(json_type_name(json));
}

std::optional<Fault> read_seed(const std::string& path, const Json& json, GenerationFields& out) {
  if (json.is_number_unsigned())
    out.seed = static_cast<std::int64_t>(json.get<std::uint64_t>());
  else if (json.is_number_integer())
    out.seed = json.get<std::int64_t>();
  else if (json.is_number_float() && std::abs(json.get<double>()) < 0x1p63 &&
           json.get<double>() == std::floor(json.get<double>()))
    out.seed = static_cast<std::int64_t>(json.get<double>());
  else if (json.is_number() || is_big_integer(json))
    return invalid_value(
        path, fmt::format("`{}` must be a 64-bit integer, not {}.", path, shown_value(json)));
  else
    return wrong_type(path, "an integer", json_type_name(json));
  return std::nullopt;
}

std::optional<Fault> read_stop(const std::string& path, const Json& json, GenerationFields& out) {
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

static std::optional<Fault> check_token(const std::string& path, std::string_view shown_id,
                                        std::int64_t id, std::int64_t vocab_size) {
  if (id >= 0 && id < vocab_size) return std::nullopt;
  return invalid_value(path, fmt::format("`{}` holds token id {}; ids go from 0 to {}.", path,
                                         shown_id, vocab_size - 1));
}

std::optional<Fault> read_stop_tokens(const std::string& path, const Json& json,
                                      std::int64_t vocab_size, GenerationFields& out) {
  if (!json.is_array()) return wrong_type(path, "an array of token ids", json_type_name(json));
  if (json.size() > kMaxBiases)
    return invalid_value(path, fmt::format("`{}` has {} entries; at most {} are allowed.", path,
                                           json.size(), kMaxBiases));
  for (const Json& item : json) {
    if (!item.is_number_integer() && !is_big_integer(item))
      return wrong_type(path, "an array of token ids", shown_value(item));
    const bool is_huge = is_big_integer(item) ||
                         (item.is_number_unsigned() && item.get<std::uint64_t>() > INT32_MAX);
    const std::int64_t id = is_huge ? -1 : item.get<std::int64_t>();
    if (auto fault = check_token(path, shown_value(item), id, vocab_size)) return fault;
    out.stop_token_ids.push_back(static_cast<std::int32_t>(id));
  }
  return std::nullopt;
}

std::optional<Fault> read_logit_bias(const std::string& path, const Json& json,
                                     std::int64_t vocab_size, GenerationFields& out) {
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
    const bool is_huge = is_big_integer(bias);
    if (!bias.is_number() && !is_huge)
      return wrong_type(path + "." + key, "a number", json_type_name(bias));
    const double number = is_huge ? HUGE_VAL : bias.get<double>();
    if (!(number >= -100 && number <= 100))
      return invalid_value(
          path + "." + key,
          fmt::format("`{}.{}` must be from -100 to 100, not {}.", path, key, shown_value(bias)));
    out.logit_bias.emplace_back(static_cast<std::int32_t>(id), static_cast<float>(number));
  }
  return std::nullopt;
}

std::optional<Fault> read_stream_options(const std::string& path, const Json& json,
                                         GenerationFields& out) {
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
  static constexpr std::string_view kKnown[] = {"include_usage", "continuous_usage_stats"};
  note_unknown(json, kKnown, path + ".", out.ignored);
  return std::nullopt;
}

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

Fault bad_word(const std::string& path, std::string_view allowed, const Json& seen) {
  const std::string shown =
      seen.is_string() ? shown_text(seen.get_ref<const std::string&>(), 64) : shown_value(seen);
  return invalid_value(path, fmt::format("`{}` must be {}, not {}.", path, allowed, shown));
}

}  // namespace sluice
