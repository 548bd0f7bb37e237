// The figures of a load test: from the times of requests to the names that sglang.bench_serving
// prints and writes.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace sluice {

// What became of one request. Times in seconds; `start_s` counts from the beginning of the test.
struct RequestRecord {
  bool success = false;
  std::string error;
  int prompt_len = 0;
  int output_len = 0;
  double start_s = 0;
  double ttft_s = 0;          // to the first token; 0: none came
  double latency_s = 0;       // to the last one
  std::vector<double> itl_s;  // between tokens
  std::string text;
};

struct Distribution {
  double mean = 0, median = 0, std = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};
// All 0 for no values. Percentiles are interpolated linearly between the two nearest values.
Distribution describe(std::vector<double> values);
// `sorted` ascending and not empty; p from 0 to 100.
double percentile(std::span<const double> sorted, double p);

// Limits in milliseconds that a request must keep to count as good.
struct Goodput {
  std::optional<double> ttft_ms, tpot_ms, e2el_ms;
  bool any() const { return ttft_ms || tpot_ms || e2el_ms; }
  bool is_good(const RequestRecord& record) const;
};
// Adds "ttft:500,tpot:50"; Error{kBadInput} says what is wrong.
void parse_goodput(std::string_view text, Goodput& out);

struct ServingMetrics {
  int completed = 0, failed = 0;
  double duration_s = 0;
  std::int64_t total_input = 0, total_output = 0;
  double request_throughput = 0, input_throughput = 0, output_throughput = 0, total_throughput = 0;
  double request_goodput = 0;
  double peak_output_throughput = 0;  // of the best second
  int peak_concurrency = 0;
  double concurrency = 0;  // mean
  Distribution e2e_ms, ttft_ms, tpot_ms, itl_ms;
};
ServingMetrics summarise(std::span<const RequestRecord> records, double duration_s,
                         const Goodput& goodput);

// What was asked for, as it goes to the table and to the file.
struct LoadSettings {
  std::string backend, dataset_name;
  double request_rate = 0;  // infinite: all at once
  std::optional<int> max_concurrency;
  Json details = Json::object();  // further keys of the file: lengths, seed, model
  Goodput goodput;
};

// The result as a table, with the line names of sglang.bench_serving.
std::string serving_table(const ServingMetrics& metrics, const LoadSettings& settings);
// One line of its output file, without --output-details.
Json serving_json(const ServingMetrics& metrics, const LoadSettings& settings);
// The keys that --output-details adds.
void add_details(Json& json, std::span<const RequestRecord> records);

// Every figure that both have, old, new and new / old, of means with their 95 % interval; a mark
// where it changed by more than that and 5 %. First, where the runs were not of the same load, in
// what they differ.
std::string compare_runs(const Json& old_run, const Json& new_run);

}  // namespace sluice
