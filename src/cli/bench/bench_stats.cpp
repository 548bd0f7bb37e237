#include "cli/bench/bench_stats.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "engine/options_parse.h"

namespace sluice {
namespace {

constexpr int kWidth = 50;

double per_second(double count, double duration_s) {
  return duration_s > 0 ? count / duration_s : 0;
}

// Time between a request's first and last token, over the tokens after the first.
std::optional<double> tpot_s(const RequestRecord& r) {
  if (r.output_len < 2 || r.ttft_s <= 0) return std::nullopt;
  return (r.latency_s - r.ttft_s) / (r.output_len - 1);
}

double peak_tokens_a_second(std::span<const RequestRecord> records) {
  std::map<std::int64_t, double> by_second;
  for (const RequestRecord& r : records) {
    if (!r.success || r.ttft_s <= 0) continue;
    double at = r.start_s + r.ttft_s;
    by_second[static_cast<std::int64_t>(at)] += 1;
    for (double gap : r.itl_s) by_second[static_cast<std::int64_t>(at += gap)] += 1;
  }
  double peak = 0;
  for (const auto& [second, tokens] : by_second) peak = std::max(peak, tokens);
  return peak;
}

int peak_in_flight(std::span<const RequestRecord> records) {
  std::vector<std::pair<double, int>> changes;
  for (const RequestRecord& r : records) {
    if (!r.success) continue;
    changes.emplace_back(r.start_s, 1);
    changes.emplace_back(r.start_s + r.latency_s, -1);
  }
  std::ranges::sort(changes);
  int now = 0, peak = 0;
  for (const auto& [at, change] : changes) peak = std::max(peak, now += change);
  return peak;
}

std::string centred(std::string_view text, char fill) {
  const std::size_t left = (kWidth - text.size()) / 2;
  return std::string(left, fill) + std::string(text) +
         std::string(kWidth - text.size() - left, fill) + "\n";
}

std::string row(std::string_view name, const std::string& value) {
  return fmt::format("{:<40} {:<10}\n", name, value);
}
std::string row(std::string_view name, double value) {
  return row(name, fmt::format("{:.2f}", value));
}
std::string row(std::string_view name, std::int64_t value) {
  return row(name, fmt::format("{}", value));
}

void put(Json& json, std::string_view name, const Distribution& d) {
  const auto key = [&](std::string_view what) { return fmt::format("{}_{}_ms", what, name); };
  json[key("mean")] = d.mean;
  json[key("median")] = d.median;
  json[key("std")] = d.std;
  json[key("p90")] = d.p90;
  json[key("p95")] = d.p95;
  json[key("p99")] = d.p99;
  json[key("max")] = d.max;
}

}  // namespace

double percentile(std::span<const double> sorted, double p) {
  const double at = p / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

Distribution describe(std::vector<double> values) {
  Distribution d;
  if (values.empty()) return d;
  std::ranges::sort(values);
  d.mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  double squares = 0;
  for (double v : values) squares += (v - d.mean) * (v - d.mean);
  d.std = std::sqrt(squares / static_cast<double>(values.size()));
  d.median = percentile(values, 50);
  d.p90 = percentile(values, 90);
  d.p95 = percentile(values, 95);
  d.p99 = percentile(values, 99);
  d.max = values.back();
  return d;
}

bool Goodput::is_good(const RequestRecord& r) const {
  if (!r.success) return false;
  if (ttft_ms && r.ttft_s * 1e3 > *ttft_ms) return false;
  if (tpot_ms && sluice::tpot_s(r).value_or(0) * 1e3 > *tpot_ms) return false;
  return !e2el_ms || r.latency_s * 1e3 <= *e2el_ms;
}

void parse_goodput(std::string_view text, Goodput& out) {
  std::vector<std::string> parts;
  option_parse::append_list(parts, text);
  for (const std::string& part : parts) {
    const std::size_t colon = part.find(':');
    const std::string name = part.substr(0, colon);
    std::optional<double>* const limit = name == "ttft"                    ? &out.ttft_ms
                                         : name == "tpot"                  ? &out.tpot_ms
                                         : name == "e2el" || name == "e2e" ? &out.e2el_ms
                                                                           : nullptr;
    require(limit != nullptr && colon != std::string::npos,
            "'{}' is no limit; a limit is ttft, tpot or e2el, a colon and milliseconds: ttft:500",
            part);
    *limit = option_parse::number(part.substr(colon + 1), 0, 1e12);
  }
}

ServingMetrics summarise(std::span<const RequestRecord> records, double duration_s,
                         const Goodput& goodput) {
  ServingMetrics m;
  m.duration_s = duration_s;
  std::vector<double> e2e, ttft, tpot, itl;
  int good = 0;
  double busy_s = 0;
  for (const RequestRecord& r : records) {
    if (!r.success) {
      ++m.failed;
      continue;
    }
    ++m.completed;
    m.total_input += r.prompt_len;
    m.total_output += r.output_len;
    busy_s += r.latency_s;
    e2e.push_back(r.latency_s * 1e3);
    if (r.ttft_s > 0) ttft.push_back(r.ttft_s * 1e3);
    if (const auto t = tpot_s(r)) tpot.push_back(*t * 1e3);
    for (double gap : r.itl_s) itl.push_back(gap * 1e3);
    good += goodput.is_good(r);
  }
  m.request_throughput = per_second(m.completed, duration_s);
  m.input_throughput = per_second(static_cast<double>(m.total_input), duration_s);
  m.output_throughput = per_second(static_cast<double>(m.total_output), duration_s);
  m.total_throughput = m.input_throughput + m.output_throughput;
  m.request_goodput = per_second(good, duration_s);
  m.peak_output_throughput = peak_tokens_a_second(records);
  m.peak_concurrency = peak_in_flight(records);
  m.concurrency = per_second(busy_s, duration_s);
  m.e2e_ms = describe(std::move(e2e));
  m.ttft_ms = describe(std::move(ttft));
  m.tpot_ms = describe(std::move(tpot));
  m.itl_ms = describe(std::move(itl));
  return m;
}

std::string serving_table(const ServingMetrics& m, const LoadSettings& s) {
  std::string t = centred(" Serving Benchmark Result ", '=');
  t += row("Backend:", s.backend);
  t += row("Traffic request rate:",
           std::isinf(s.request_rate) ? "inf" : fmt::format("{}", s.request_rate));
  t += row("Max request concurrency:",
           s.max_concurrency ? fmt::format("{}", *s.max_concurrency) : "not set");
  t += row("Successful requests:", std::int64_t{m.completed});
  if (m.failed > 0) t += row("Failed requests:", std::int64_t{m.failed});
  t += row("Benchmark duration (s):", m.duration_s);
  t += row("Total input tokens:", m.total_input);
  t += row("Total generated tokens:", m.total_output);
  t += row("Request throughput (req/s):", m.request_throughput);
  if (s.goodput.any()) t += row("Request goodput (req/s):", m.request_goodput);
  t += row("Input token throughput (tok/s):", m.input_throughput);
  t += row("Output token throughput (tok/s):", m.output_throughput);
  t += row("Peak output token throughput (tok/s):", m.peak_output_throughput);
  t += row("Peak concurrent requests:", std::int64_t{m.peak_concurrency});
  t += row("Total token throughput (tok/s):", m.total_throughput);
  t += row("Concurrency:", m.concurrency);
  const auto section = [&](std::string_view title, std::string_view name, const Distribution& d) {
    t += centred(title, '-');
    t += row(fmt::format("Mean {} (ms):", name), d.mean);
    t += row(fmt::format("Median {} (ms):", name), d.median);
    t += row(fmt::format("P90 {} (ms):", name), d.p90);
    t += row(fmt::format("P95 {} (ms):", name), d.p95);
    t += row(fmt::format("P99 {} (ms):", name), d.p99);
    t += row(fmt::format("Max {} (ms):", name), d.max);
  };
  section("End-to-End Latency", "E2E Latency", m.e2e_ms);
  section("Time to First Token", "TTFT", m.ttft_ms);
  section("Time per Output Token (excl. 1st token)", "TPOT", m.tpot_ms);
  section("Inter-Token Latency", "ITL", m.itl_ms);
  return t + std::string(kWidth, '=') + "\n";
}

Json serving_json(const ServingMetrics& m, const LoadSettings& s) {
  Json json = {{"backend", s.backend}, {"dataset_name", s.dataset_name}};
  // A number where there is one: infinity has no spelling in JSON.
  json["request_rate"] = std::isinf(s.request_rate) ? Json("inf") : Json(s.request_rate);
  json["max_concurrency"] = s.max_concurrency ? Json(*s.max_concurrency) : Json();
  for (const auto& [key, value] : s.details.items()) json[key] = value;
  json["duration"] = m.duration_s;
  json["completed"] = m.completed;
  json["failed"] = m.failed;
  json["total_input_tokens"] = m.total_input;
  json["total_output_tokens"] = m.total_output;
  json["request_throughput"] = m.request_throughput;
  json["request_goodput"] = s.goodput.any() ? Json(m.request_goodput) : Json();
  json["input_throughput"] = m.input_throughput;
  json["output_throughput"] = m.output_throughput;
  json["total_throughput"] = m.total_throughput;
  json["max_output_tokens_per_s"] = m.peak_output_throughput;
  json["max_concurrent_requests"] = m.peak_concurrency;
  json["concurrency"] = m.concurrency;
  put(json, "e2e_latency", m.e2e_ms);
  put(json, "ttft", m.ttft_ms);
  put(json, "tpot", m.tpot_ms);
  put(json, "itl", m.itl_ms);
  json["accept_length"] = nullptr;
  return json;
}

void add_details(Json& json, std::span<const RequestRecord> records) {
  for (const char* key :
       {"input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors"})
    json[key] = Json::array();
  for (const RequestRecord& r : records) {
    json["input_lens"].push_back(r.prompt_len);
    json["output_lens"].push_back(r.success ? r.output_len : 0);
    json["ttfts"].push_back(r.ttft_s);
    json["itls"].push_back(r.itl_s);
    json["generated_texts"].push_back(r.text);
    json["errors"].push_back(r.error);
  }
}

namespace {

// Settings that two runs must share for a comparison to say anything of the server.
std::string different_settings(const Json& old_run, const Json& new_run) {
  static constexpr std::string_view kSettings[] = {"backend",           "dataset_name",
                                                   "request_rate",      "max_concurrency",
                                                   "num_prompts",       "random_input_len",
                                                   "random_output_len", "random_range_ratio",
                                                   "burstiness",        "model"};
  std::string text;
  for (std::string_view key : kSettings) {
    const auto before = old_run.find(key), after = new_run.find(key);
    if (before == old_run.end() || after == new_run.end() || *before == *after) continue;
    text += fmt::format("not the same load: {} was {} and is {}\n", key, dump_json(*before),
                        dump_json(*after));
  }
  return text;
}

double number_in(const Json& run, const std::string& key) {
  const auto it = run.find(key);
  return it != run.end() && it->is_number() ? it->get<double>() : 0;
}

// Half of the 95 % interval of the difference of two means of requests, as a share of the old one;
// 0 where the runs do not tell their spread. Requests are taken as independent.
double uncertainty(const Json& old_run, const Json& new_run, std::string_view key) {
  if (!key.starts_with("mean_") || key == "mean_itl_ms")
    return 0;  // how many gaps there were is not told
  const std::string spread = fmt::format("std_{}", key.substr(5));
  double variance = 0;
  for (const Json* run : {&old_run, &new_run}) {
    const double std = number_in(*run, spread), count = number_in(*run, "completed");
    if (std <= 0 || count < 2) return 0;
    variance += std * std / count;
  }
  return 1.96 * std::sqrt(variance) / number_in(old_run, std::string(key));
}

}  // namespace

std::string compare_runs(const Json& old_run, const Json& new_run) {
  // Of rates more is better, of times less.
  static constexpr std::string_view kCompared[] = {
      "request_throughput", "request_goodput",     "input_throughput",      "output_throughput",
      "total_throughput",   "mean_e2e_latency_ms", "median_e2e_latency_ms", "p99_e2e_latency_ms",
      "mean_ttft_ms",       "median_ttft_ms",      "p99_ttft_ms",           "mean_tpot_ms",
      "median_tpot_ms",     "p99_tpot_ms",         "mean_itl_ms",           "median_itl_ms",
      "p99_itl_ms"};
  std::string text = different_settings(old_run, new_run);
  text += fmt::format("{:<26}{:>14}{:>14}{:>9}{:>9}\n", "", "old", "new", "new/old", "95 %");
  for (std::string_view key : kCompared) {
    const auto before = old_run.find(key), after = new_run.find(key);
    if (before == old_run.end() || after == new_run.end() || !before->is_number() ||
        !after->is_number())
      continue;
    const double a = before->get<double>(), b = after->get<double>();
    if (!(a > 0) || !(b > 0)) continue;
    const bool less_is_better = key.ends_with("_ms");
    const double gain = less_is_better ? a / b : b / a;
    const double doubt = uncertainty(old_run, new_run, key);
    const bool counts = std::abs(b / a - 1) > std::max(doubt, 0.05);
    text += fmt::format("{:<26}{:>14.2f}{:>14.2f}{:>9.3f}{:>9}{}", key, a, b, b / a,
                        doubt > 0 ? fmt::format("+-{:.3f}", doubt) : "",
                        !counts    ? ""
                        : gain < 1 ? "  worse"
                                   : "  better");
    text.resize(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

}  // namespace sluice
