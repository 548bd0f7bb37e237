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
  // vLLM takes `model` for the method where there is no other.
  const char* key = config.contains("method") ? "method" : "model";
  require(config.contains(key) && config[key].is_string(), "it has no `method`; served are {}",
          fmt::join(served_names(), ", "));
  const std::string name = config[key];
  const DraftMethodRow& row = served_draft_method(name);
  const bool names_model = config.contains("method") && config.contains("model");
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

// Options of one number, and the key of --speculative-config that says the same.
struct NumberOption {
  std::string_view name;
  int Options::* field;
  std::string_view key;
};
constexpr NumberOption kCounts[] = {
    {"speculative-num-draft-tokens", &Options::speculative_num_draft_tokens,
     "num_speculative_tokens"},
    {"speculative-num-steps", &Options::speculative_num_steps, "num_speculative_tokens"}};
constexpr NumberOption kWindows[] = {{"speculative-ngram-min-match-window-size",
                                      &Options::speculative_ngram_min_match, "prompt_lookup_min"},
                                     {"speculative-ngram-max-match-window-size",
                                      &Options::speculative_ngram_max_match, "prompt_lookup_max"}};

// The first that is not at its default; null: all are.
const NumberOption* first_given(const Options& options, std::span<const NumberOption> numbers) {
  const Options defaults;
  for (const NumberOption& number : numbers)
    if (options.*number.field != defaults.*number.field) return &number;
  return nullptr;
}

// Ok where nothing that the JSON decides is given besides.
Result<Ok> check_beside_config(const Options& options, const DraftMethodRow& row) {
  if (!options.speculative_draft_model_path.empty())
    return refuse("speculative-draft-model-path",
                  "--speculative-config and --speculative-draft-model-path are both given; name "
                  "the draft model with the key 'model'");
  if (row.method != DraftMethod::kNone)
    return refuse("speculative-config",
                  "--speculative-config and --speculative-algorithm are both given; give one");
  for (const std::span<const NumberOption> numbers : {std::span(kCounts), std::span(kWindows)})
    if (const NumberOption* given = first_given(options, numbers))
      return refuse(std::string(given->name),
                    fmt::format("--speculative-config and --{} are both given; give one: the JSON "
                                "has the key '{}'",
                                given->name, given->key));
  return Ok{};
}

// Ok where each option that is given has an effect on what drafts. `chosen` has the method.
Result<Ok> check_effects(const Options& options, const SpeculationOptions& chosen,
                         const DraftMethodRow& row) {
  constexpr std::string_view kAdvice =
      "nothing drafts; give --speculative-algorithm or --draft-forced-tokens, or leave it out";
  if (!chosen.is_on()) {
    if (const NumberOption* given = first_given(options, kCounts))
      return refuse(std::string(given->name),
                    fmt::format("--{} is {}, and {}", given->name, options.*given->field, kAdvice));
    if (!options.speculative_adaptive)
      return refuse("speculative-adaptive",
                    fmt::format("--speculative-adaptive is false, and {}", kAdvice));
  }
  const NumberOption* window = first_given(options, kWindows);
  if (chosen.method == DraftMethod::kNgram || window == nullptr) return Ok{};
  return refuse(
      std::string(window->name),
      fmt::format("--{} is {}, and {}; give --speculative-algorithm NGRAM, or leave it out",
                  window->name, options.*window->field,
                  chosen.has_method() ? fmt::format("drafts of {} have no such window", row.name)
                                      : "nothing looks up matches"));
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

}  // namespace

Result<SpeculationOptions> choose_speculation(const Options& options) {
  SpeculationOptions out = read_speculative_config(options.speculative_config);
  out.forced_tokens = options.draft_forced_tokens;
  const DraftMethodRow& row = served_draft_method(options.speculative_algorithm);
  const int topk = options.speculative_eagle_topk;
  if (topk > 1 && (!options.speculative_config.empty() || !out.is_on()) &&
      row.method == DraftMethod::kNone)
    return refuse(
        "speculative-eagle-topk",
        fmt::format("--speculative-eagle-topk is {}, and {}; give --speculative-algorithm "
                    "NEXTN, EAGLE, EAGLE3 or STANDALONE, or leave it out",
                    topk,
                    options.speculative_config.empty() ? "nothing drafts"
                                                       : "--speculative-config drafts chains"));
  if (!options.speculative_config.empty()) {
    const Result<Ok> beside = check_beside_config(options, row);
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
  out.method = row.method;
  const std::string& path = options.speculative_draft_model_path;
  if (row.has_model == path.empty())
    return refuse("speculative-draft-model-path",
                  row.has_model
                      ? fmt::format("--speculative-algorithm {} needs a draft model; name its "
                                    "directory or repo id with --speculative-draft-model-path",
                                    row.name)
                      : fmt::format("--speculative-draft-model-path is {}, and "
                                    "--speculative-algorithm {} loads no draft model; give EAGLE, "
                                    "EAGLE3, DFLASH or STANDALONE, or leave the path out",
                                    path.substr(0, 80), row.name));
  out.draft_model = path;
  const Result<Ok> effects = check_effects(options, out, row);
  if (!effects.ok()) return effects.fault();
  if (!out.is_on()) return out;
  const int rows = options.speculative_num_draft_tokens, steps = options.speculative_num_steps;
  if (rows == 1)
    return refuse("speculative-num-draft-tokens",
                  "--speculative-num-draft-tokens is 1, which leaves no token to draft; give 2 or "
                  "more, or --speculative-algorithm NONE");
  if (topk > 1) {
    Result<Ok> tree = set_tree(out, row, rows, steps, topk);
    if (!tree.ok()) return tree.fault();
    return out;
  }
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
  return out;
}

std::string tree_refusal(bool is_recurrent) {
  if (is_recurrent)
    return "the model has recurrent layers, whose states are kept behind the drafts of a chain; "
           "give 1";
  return "";
}

}  // namespace sluice
