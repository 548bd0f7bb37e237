#include "cli/verify/verify_golden.h"

#include "base/error.h"
#include "base/json.h"
#include "cli/files.h"

namespace sluice {
namespace {

// Reference files are trusted less than code and more than requests: a wrong shape is an error that
// names the key.
const Json& field(const Json& object, const char* key, std::string_view what) {
  require(object.is_object() && object.contains(key), "{}: '{}' is missing", what, key);
  return object.at(key);
}

template <class T>
std::vector<T> numbers(const Json& object, const char* key, std::string_view what) {
  const Json& list = field(object, key, what);
  require(list.is_array(), "{}: '{}' is no list", what, key);
  std::vector<T> out;
  for (const Json& x : list) {
    require(x.is_number(), "{}: '{}' holds something that is no number", what, key);
    out.push_back(x.get<T>());
  }
  return out;
}

// [n] rows of {id, log-probability} from two lists of lists.
std::vector<std::vector<TokenLogprob>> best_rows(const Json& object, std::size_t n,
                                                 std::string_view what) {
  const Json& ids = field(object, "top5_ids", what);
  const Json& logprobs = field(object, "top5_logprobs", what);
  require(ids.is_array() && logprobs.is_array() && ids.size() == n && logprobs.size() == n,
          "{}: 'top5_ids' and 'top5_logprobs' must have {} rows", what, n);
  std::vector<std::vector<TokenLogprob>> rows(n);
  for (std::size_t i = 0; i < n; ++i) {
    require(ids[i].is_array() && logprobs[i].is_array() && ids[i].size() == logprobs[i].size() &&
                !ids[i].empty(),
            "{}: row {} of 'top5_ids' does not match 'top5_logprobs'", what, i);
    for (std::size_t j = 0; j < ids[i].size(); ++j) {
      require(ids[i][j].is_number_integer() && logprobs[i][j].is_number(),
              "{}: row {} of 'top5_ids'", what, i);
      rows[i].push_back({ids[i][j].get<std::int32_t>(), logprobs[i][j].get<float>()});
    }
  }
  return rows;
}

GoldenFile parse_model_golden(const Json& json, std::string_view what) {
  GoldenFile file;
  const Json& checks = field(json, "checks", what);
  if (checks.contains("bfloat16") && checks.at("bfloat16").contains("mean_abs_dlogprob_top5")) {
    file.bfloat16_mean = field(checks.at("bfloat16"), "mean_abs_dlogprob_top5", what).get<double>();
    file.bfloat16_max = field(checks.at("bfloat16"), "max_abs_dlogprob_top5", what).get<double>();
  }
  if (checks.contains("quantised_activations")) {
    const Json& rounded = checks.at("quantised_activations");
    file.rounded_rows_mean = field(rounded, "mean_abs_dlogprob_top5", what).get<double>();
    file.rounded_rows_max = field(rounded, "max_abs_dlogprob_top5", what).get<double>();
  }
  const Json& prompts = field(json, "prompts", what);
  require(prompts.is_array() && !prompts.empty(), "{}: 'prompts' is empty", what);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const Json& p = prompts[i];
    GoldenCase c;
    c.prompt = numbers<std::int32_t>(p, "ids", what);
    require(!c.prompt.empty(), "{}: prompt {} has no tokens", what, i);
    c.label = fmt::format("prompt {} ({} tokens)", i, c.prompt.size());
    c.prompt_best = best_rows(p, c.prompt.size(), what);
    c.output = numbers<std::int32_t>(p, "greedy", what);
    const std::vector<float> logprobs = numbers<float>(p, "greedy_logprobs", what);
    require(logprobs.size() == c.output.size(),
            "{}: prompt {}: 'greedy_logprobs' has {} entries, 'greedy' {}", what, i,
            logprobs.size(), c.output.size());
    for (std::size_t j = 0; j < logprobs.size(); ++j)
      c.output_best.push_back({{c.output[j], logprobs[j]}});
    if (p.contains("min_margin") && p.at("min_margin").is_number())
      c.min_margin = p.at("min_margin").get<double>();
    if (p.contains("min_topk_gap") && p.at("min_topk_gap").is_number())
      file.has_discrete_choices = true;
    file.cases.push_back(std::move(c));
  }
  return file;
}

GoldenFile parse_chat_records(const Json& json, std::string_view what) {
  GoldenFile file;
  file.chat_records = true;
  file.has_discrete_choices = true;
  for (std::size_t i = 0; i < json.size(); ++i) {
    GoldenCase c;
    c.prompt = numbers<std::int32_t>(json[i], "prompt_ids", what);
    c.output = numbers<std::int32_t>(json[i], "output_ids", what);
    require(!c.prompt.empty() && !c.output.empty(), "{}: record {} is empty", what, i);
    c.output_best = best_rows(json[i], c.output.size(), what);
    c.min_margin = field(json[i], "min_margin", what).get<double>();
    const Json& kind = field(json[i], "kind", what);
    c.label = fmt::format("record {} {} ({} tokens)", i,
                          kind.is_string() ? kind.get<std::string>() : "?", c.prompt.size());
    file.cases.push_back(std::move(c));
  }
  require(!file.cases.empty(), "{}: holds no records", what);
  return file;
}

}  // namespace

std::vector<std::int32_t> GoldenCase::all_tokens() const {
  std::vector<std::int32_t> tokens = prompt;
  tokens.insert(tokens.end(), output.begin(), output.end());
  return tokens;
}

const std::vector<TokenLogprob>* GoldenCase::best_at(std::size_t position) const {
  if (position < prompt_best.size()) return &prompt_best[position];
  const std::size_t first_output_row = prompt.size() - 1;
  if (position < first_output_row || position - first_output_row >= output_best.size())
    return nullptr;
  return &output_best[position - first_output_row];
}

GoldenFile parse_golden(std::string_view text, std::string_view what) {
  const Json json = parse_json_or_throw(text, what);
  return json.is_array() ? parse_chat_records(json, what) : parse_model_golden(json, what);
}

GoldenFile read_golden_file(const std::string& path) {
  return parse_golden(read_text_file(path), path);
}

}  // namespace sluice
