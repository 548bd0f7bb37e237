#include "engine/speculation_choice.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <span>

#include "base/json.h"
#include "engine/options_parse.h"
#include "speculative/draft_tree.h"

namespace sluice {
namespace {

// vLLM's, where a configuration names neither length.
constexpr int kDefaultLookup = 5;
// Of tokens that a grammar forces, where no method says another number. Long keys have as many.
constexpr int kForcedDrafts = 15;
// Of a tree, where no other number is given and the tree can have them.
constexpr int kTreeDrafts = 15;

std::vector<std::string_view> served_names() {
  std::vector<std::string_view> names;
  for (const DraftMethodRow& row : draft_method_table())
    if (row.refusal.empty()) names.push_back(row.name);
  return names;
}

// The integer of a key; nothing where the key is absent or null.
std::optional<int> integer_of(const Json& config, const char* key, int low, int high) {
  if (!config.contains(key) || config[key].is_null()) return std::nullopt;
  const Json& value = config[key];
  const bool fits = value.is_number_integer() && value >= low && value <= high;
  require(fits, "{} is {}; it must be an integer of {} to {}", key, dump_json(value), low, high);
  return value.get<int>();
}

double number_of(const Json& config, const char* key, double low, double high, double otherwise) {
  if (!config.contains(key) || config[key].is_null()) return otherwise;
  const Json& value = config[key];
  const bool fits = value.is_number() && value >= low && value <= high;
  require(fits, "{} is {}; it must be a number of {} to {}", key, dump_json(value), low, high);
  return value.get<double>();
}

constexpr std::string_view kSuffixKeys[] = {
    "suffix_decoding_max_tree_depth", "suffix_decoding_max_cached_requests",
    "suffix_decoding_max_spec_factor", "suffix_decoding_min_token_prob"};

SuffixOptions suffix_of(const Json& config) {
  SuffixOptions out;
  out.max_tree_depth =
      integer_of(config, kSuffixKeys[0].data(), 2, kMaxSuffixDepth).value_or(out.max_tree_depth);
  out.max_cached_requests = integer_of(config, kSuffixKeys[1].data(), 0, kMaxSuffixAnswers)
                                .value_or(out.max_cached_requests);
  out.max_spec_factor =
      number_of(config, kSuffixKeys[2].data(), 0.05, kMaxSuffixDepth, out.max_spec_factor);
  out.min_token_prob = number_of(config, kSuffixKeys[3].data(), 0, 1, out.min_token_prob);
  return out;
}

bool names_method(const Json& config) {
  return config.contains("method") && !config["method"].is_null();
}

// vLLM takes `model` for the method where there is no other.
std::string method_name(const Json& config) {
  const std::string served = fmt::format("{}", fmt::join(served_names(), ", "));
  if (names_method(config)) {
    const Json& method = config["method"];
    require(method.is_string(), "the method is {}; it must be a string, one of {}",
            dump_json(method).substr(0, 80), served);
    return method;
  }
  const bool names_model = config.contains("model") && config["model"].is_string();
  const std::string model = names_model ? config["model"] : "";
  require(find_draft_method(model) != nullptr, "the key 'method' is missing{}; add one of {}",
          names_model ? fmt::format(", and the model '{}' names none", model.substr(0, 80)) : "",
          served);
  return model;
}

}  // namespace

const DraftMethodRow& served_draft_method(std::string_view name) {
  const DraftMethodRow* row = find_draft_method(name);
  require(row != nullptr, "the method '{}' is unknown; served are {}", name,
          fmt::join(served_names(), ", "));
  require(row->refusal.empty(), "{} is refused: {}", row->name, row->refusal);
  return *row;
}

SpeculationOptions read_speculative_config(std::string_view json) {
  SpeculationOptions out;
  if (json.empty()) return out;
  const Json config = parse_json_or_throw(std::string(json), "speculative-config");
  require(config.is_object(), "it is no JSON object: {}", json.substr(0, 80));
  constexpr std::string_view kKnown[] = {"method", "model", "num_speculative_tokens",
                                         "prompt_lookup_min", "prompt_lookup_max"};
  for (const auto& [key, value] : config.items())
    require(std::ranges::count(kKnown, key) > 0 || std::ranges::count(kSuffixKeys, key) > 0,
            "the key '{}' is refused: it has no effect here; "
            "known are {}, {}",
            key.substr(0, 80), fmt::join(kKnown, ", "), fmt::join(kSuffixKeys, ", "));
  const std::string name = method_name(config);
  const DraftMethodRow& row = served_draft_method(name);
  const bool names_model = names_method(config) && config.contains("model");
  require(row.has_model || !names_model || config["model"] == name,
          "the key 'model' is refused: {} needs no model of its own", name);
  out.method = row.method;
  for (const std::string_view suffix_key : kSuffixKeys)
    require(out.method == DraftMethod::kSuffix || !config.contains(suffix_key),
            "the key '{}' is refused: it has no effect with the method {}", suffix_key, name);
  for (const std::string_view window : {"prompt_lookup_min", "prompt_lookup_max"})
    require(out.method == DraftMethod::kNgram || !config.contains(window),
            "the key '{}' is refused: it has no effect with the method {}", window, name);
  const auto number = integer_of(config, "num_speculative_tokens", 1, kMaxDraftTokens - 1);
  out.is_default_number = !number;
  out.max_drafts = number.value_or(row.default_drafts);
  if (!out.has_method()) return out;
  if (row.has_model) {
    require(names_model && config["model"].is_string() && config["model"] != "",
            "{} needs the key 'model': the directory or repo id of a draft model", row.name);
    out.draft_model = config["model"];
  }
  if (out.method == DraftMethod::kSuffix) {
    out.suffix = suffix_of(config);
    if (!number) out.max_drafts = std::min(out.suffix.max_tree_depth, kMaxDraftTokens - 1);
  }
  const auto longest = integer_of(config, "prompt_lookup_max", 1, kMaxNgram);
  const auto shortest = integer_of(config, "prompt_lookup_min", 1, kMaxNgram);
  out.ngram.max_match = longest.value_or(shortest.value_or(kDefaultLookup));
  out.ngram.min_match = shortest.value_or(longest.value_or(kDefaultLookup));
  require(out.ngram.min_match <= out.ngram.max_match,
          "prompt_lookup_min is {} and prompt_lookup_max is {}; the first must not be larger",
          out.ngram.min_match, out.ngram.max_match);
  return out;
}

namespace {

Fault refuse(std::string option, std::string message) {
  return Fault{400, "invalid_value", std::move(option), std::move(message)};
}

// An option, and the key of --speculative-config that says the same.
struct ConfigKey {
  std::string_view option;
  std::string_view key;
};
constexpr ConfigKey kDraftModel[] = {{"speculative-draft-model-path", "model"}};
constexpr ConfigKey kCounts[] = {{"speculative-num-draft-tokens", "num_speculative_tokens"},
                                 {"speculative-num-steps", "num_speculative_tokens"}};
constexpr ConfigKey kWindows[] = {{"speculative-ngram-min-match-window-size", "prompt_lookup_min"},
                                  {"speculative-ngram-max-match-window-size", "prompt_lookup_max"}};
constexpr std::string_view kAlgorithm = "speculative-algorithm", kAdaptive = "speculative-adaptive",
                           kTopk = "speculative-eagle-topk",
                           kTreeMethods =
                               "--speculative-algorithm NEXTN, EAGLE, EAGLE3 or STANDALONE";

// The first that is given, its default included; null: none is.
const ConfigKey* first_given(const Options& options, std::span<const ConfigKey> keys) {
  const auto given = std::ranges::find_if(
      keys, [&](const ConfigKey& key) { return was_given(options, key.option); });
  return given == keys.end() ? nullptr : &*given;
}

// `why` ends with what to change.
Fault refuse_value(const Options& options, std::string_view name, std::string_view why) {
  const std::string value = option_text(*find_option(name), options);
  return refuse(std::string(name),
                fmt::format("--{} is {}, and {}", name,
                            value.empty() ? "empty" : std::string_view(value).substr(0, 80), why));
}

// Ok where nothing that the JSON decides is given besides, not even with its default.
Result<Ok> check_beside_config(const Options& options) {
  if (was_given(options, kAlgorithm))
    return refuse("speculative-config",
                  "--speculative-config and --speculative-algorithm are both given; give one: the "
                  "JSON has the key 'method'");
  if (options.speculative_eagle_topk > 1)
    return refuse_value(options, kTopk,
                        fmt::format("--speculative-config drafts chains; give {} instead, or leave "
                                    "it out",
                                    kTreeMethods));
  for (const std::span<const ConfigKey> keys :
       {std::span<const ConfigKey>(kDraftModel), std::span<const ConfigKey>(kCounts),
        std::span<const ConfigKey>(kWindows)})
    if (const ConfigKey* given = first_given(options, keys))
      return refuse(std::string(given->option),
                    fmt::format("--speculative-config and --{} are both given; give one: the JSON "
                                "has the key '{}'",
                                given->option, given->key));
  return Ok{};
}

// Ok where no option is given that is about drafts. `options` have none.
Result<Ok> check_without_drafts(const Options& options) {
  const auto refuse_given = [&](std::string_view name, std::string_view remedy) {
    return refuse_value(options, name,
                        options.runner == "pooling"
                            ? "a server with --runner pooling drafts nothing; leave it out"
                            : fmt::format("nothing drafts; give {}, or leave it out", remedy));
  };
  constexpr std::string_view kAnyMethod = "--speculative-algorithm or --draft-forced-tokens";
  if (const ConfigKey* count = first_given(options, kCounts))
    return refuse_given(count->option, kAnyMethod);
  if (was_given(options, kAdaptive)) return refuse_given(kAdaptive, kAnyMethod);
  if (was_given(options, kTopk)) return refuse_given(kTopk, kTreeMethods);
  if (const ConfigKey* window = first_given(options, kWindows))
    return refuse_given(window->option, "--speculative-algorithm NGRAM");
  return Ok{};
}

// Ok where each option that is given has an effect on what drafts. `chosen` has the method.
Result<Ok> check_effects(const Options& options, const SpeculationOptions& chosen,
                         const DraftMethodRow& row) {
  if (!chosen.is_on()) return check_without_drafts(options);
  const ConfigKey* window = first_given(options, kWindows);
  if (chosen.method == DraftMethod::kNgram || window == nullptr) return Ok{};
  return refuse_value(
      options, window->option,
      fmt::format("{}; give --speculative-algorithm NGRAM, or leave it out",
                  chosen.has_method() ? fmt::format("drafts of {} have no such window", row.name)
                                      : "nothing looks up matches"));
}

// Ok where a draft model is named just where the method loads one.
Result<Ok> check_draft_model(const Options& options, const DraftMethodRow& row) {
  const std::string_view option = kDraftModel[0].option;
  if (row.has_model && options.speculative_draft_model_path.empty())
    return refuse(std::string(option),
                  fmt::format("--speculative-algorithm {} needs a draft model; name its directory "
                              "or repo id with --{}",
                              row.name, option));
  if (row.has_model || !was_given(options, option)) return Ok{};
  return refuse_value(options, option,
                      fmt::format("--speculative-algorithm {} loads no draft model; give EAGLE, "
                                  "EAGLE3, DFLASH or STANDALONE, or leave the path out",
                                  row.name));
}

// The numbers of a tree. `rows`, `steps`: as given, 0 for none.
Result<Ok> set_tree(SpeculationOptions& out, const DraftMethodRow& row, int rows, int steps,
                    int topk) {
  const char* const option = "speculative-eagle-topk";
  if (out.reads_text() || out.method == DraftMethod::kDflash)
    return refuse(option,
                  fmt::format("--speculative-eagle-topk is {}, and drafts of {} are chains; leave "
                              "it out, or give NEXTN, EAGLE, EAGLE3 or STANDALONE",
                              topk, out.has_method() ? row.name : "grammars"));
  out.topk = topk;
  out.steps = steps > 0 ? steps : row.default_drafts;
  const std::int64_t most = max_tree_drafts(topk, out.steps);
  if (rows - 1 > most)
    return refuse("speculative-num-draft-tokens",
                  fmt::format("--speculative-num-draft-tokens is {}; a tree of {} steps with {} "
                              "drafts behind each token has at most {} tokens, the known one "
                              "counted. Give fewer, or more steps",
                              rows, out.steps, topk, most + 1));
  out.max_drafts =
      rows > 0 ? rows - 1 : static_cast<int>(std::min<std::int64_t>(most, kTreeDrafts));
  return Ok{};
}

// The numbers of chains.
Result<Ok> set_chain(SpeculationOptions& out, const DraftMethodRow& row, const Options& options) {
  const int rows = options.speculative_num_draft_tokens, steps = options.speculative_num_steps;
  if (rows > 0 && steps > 0 && rows != steps + 1)
    return refuse("speculative-num-draft-tokens",
                  fmt::format("--speculative-num-draft-tokens is {} and --speculative-num-steps is "
                              "{}; a chain of {} drafts has {} tokens. Give one of them",
                              rows, steps, steps, steps + 1));
  const int usual = out.has_method() ? row.default_drafts : kForcedDrafts;
  out.is_default_number = rows <= 0 && steps <= 0;
  out.max_drafts = rows > 0 ? rows - 1 : steps > 0 ? steps : usual;
  out.ngram = {options.speculative_ngram_min_match, options.speculative_ngram_max_match};
  if (out.ngram.min_match > out.ngram.max_match)
    return refuse("speculative-ngram-min-match-window-size",
                  fmt::format("--speculative-ngram-min-match-window-size is {} and "
                              "--speculative-ngram-max-match-window-size is {}; the first must not "
                              "be larger",
                              out.ngram.min_match, out.ngram.max_match));
  return Ok{};
}

Result<SpeculationOptions> choose_by_config(const Options& options) {
  SpeculationOptions out = read_speculative_config(options.speculative_config);
  out.forced_tokens = options.draft_forced_tokens;
  const Result<Ok> beside = check_beside_config(options);
  if (!beside.ok()) return beside.fault();
  const Result<Ok> effects = check_effects(options, out, draft_method_row(out.method));
  if (!effects.ok()) return effects.fault();
  if (!out.is_on() && !out.is_default_number)
    return refuse("speculative-config",
                  "the key 'num_speculative_tokens' has no effect: the method is none, and "
                  "nothing drafts; give a method or --draft-forced-tokens, or leave it out");
  if (!out.has_method() && out.is_on() && out.is_default_number) out.max_drafts = kForcedDrafts;
  return out;
}

Result<SpeculationOptions> choose_by_options(const Options& options) {
  SpeculationOptions out;
  out.forced_tokens = options.draft_forced_tokens;
  const DraftMethodRow& row = served_draft_method(options.speculative_algorithm);
  out.method = row.method;
  const Result<Ok> named = check_draft_model(options, row);
  if (!named.ok()) return named.fault();
  out.draft_model = options.speculative_draft_model_path;
  const Result<Ok> effects = check_effects(options, out, row);
  if (!effects.ok()) return effects.fault();
  if (!out.is_on()) return out;
  const int rows = options.speculative_num_draft_tokens, steps = options.speculative_num_steps;
  if (rows == 1)
    return refuse("speculative-num-draft-tokens",
                  "--speculative-num-draft-tokens is 1, which leaves no token to draft; give 2 or "
                  "more, or --speculative-algorithm NONE");
  const int topk = options.speculative_eagle_topk;
  const Result<Ok> set =
      topk > 1 ? set_tree(out, row, rows, steps, topk) : set_chain(out, row, options);
  if (!set.ok()) return set.fault();
  return out;
}

// What drafts, as the command line has it. `chosen` is on.
std::pair<std::string_view, std::string> option_of(const Options& options,
                                                   const SpeculationOptions& chosen) {
  if (!chosen.has_method()) return {"draft-forced-tokens", "--draft-forced-tokens"};
  if (!options.speculative_config.empty()) return {"speculative-config", "--speculative-config"};
  return {kAlgorithm, fmt::format("--{} {}", kAlgorithm, options.speculative_algorithm)};
}

}  // namespace

Result<SpeculationOptions> choose_speculation(const Options& options) {
  Result<SpeculationOptions> chosen =
      options.speculative_config.empty() ? choose_by_options(options) : choose_by_config(options);
  if (!chosen.ok() || !chosen->is_on() || options.runner != "pooling") return chosen;
  const auto [option, text] = option_of(options, *chosen);
  return refuse(std::string(option),
                fmt::format("{} has no effect with --runner pooling, with which nothing is "
                            "generated; leave one out",
                            text));
}

std::string tree_refusal(bool is_recurrent) {
  if (is_recurrent)
    return "the model has recurrent layers, whose states are kept behind the drafts of a chain; "
           "give 1";
  return "";
}

}  // namespace sluice
