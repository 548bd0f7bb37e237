#include "cli/bench/bench_stats.h"
#include "cli/bench/synthetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace sluice {
namespace {

using testing::HasSubstr;

RequestRecord record(double start, double ttft, std::vector<double> gaps, int prompt) {
  RequestRecord r;
  r.success = true;
  r.start_s = start;
  r.ttft_s = ttft;
  r.latency_s = ttft;
  for (double gap : gaps) r.latency_s += gap;
  r.output_len = static_cast<int>(gaps.size()) + 1;
  r.itl_s = std::move(gaps);
  r.prompt_len = prompt;
  return r;
}

TEST(BenchStats, PercentilesAreThoseOfNumpy) {
  // numpy.percentile([1, 2, 4, 8], [50, 90, 95, 99]) and numpy.std
  const Distribution d = describe({8, 1, 4, 2});
  EXPECT_DOUBLE_EQ(d.mean, 3.75);
  EXPECT_DOUBLE_EQ(d.median, 3);
  EXPECT_NEAR(d.p90, 6.8, 1e-12);
  EXPECT_NEAR(d.p95, 7.4, 1e-12);
  EXPECT_NEAR(d.p99, 7.88, 1e-12);
  EXPECT_DOUBLE_EQ(d.max, 8);
  EXPECT_NEAR(d.std, 2.680951323690902, 1e-12);
  EXPECT_DOUBLE_EQ(describe({5}).p99, 5);
  EXPECT_DOUBLE_EQ(describe({}).mean, 0);
}

TEST(BenchStats, RequestsAreSummedUp) {
  RequestRecord failed;
  failed.error = "503";
  failed.prompt_len = 1000;
  const std::vector<RequestRecord> records = {record(0, 0.5, {0.125, 0.125, 0.5}, 10), failed,
                                              record(1, 0.25, {0.25}, 30)};
  Goodput goodput;
  parse_goodput("ttft:400,tpot:300", goodput);
  const ServingMetrics m = summarise(records, 2, goodput);
  EXPECT_EQ(m.completed, 2);
  EXPECT_EQ(m.failed, 1);
  EXPECT_EQ(m.total_input, 40);
  EXPECT_EQ(m.total_output, 6);
  EXPECT_DOUBLE_EQ(m.request_throughput, 1);
  EXPECT_DOUBLE_EQ(m.input_throughput, 20);
  EXPECT_DOUBLE_EQ(m.output_throughput, 3);
  EXPECT_DOUBLE_EQ(m.total_throughput, 23);
  EXPECT_DOUBLE_EQ(m.request_goodput, 0.5);  // the first is too late
  EXPECT_DOUBLE_EQ(m.concurrency, 0.875);    // 1.25 s + 0.5 s in 2 s
  EXPECT_EQ(m.peak_concurrency, 2);
  EXPECT_DOUBLE_EQ(m.e2e_ms.mean, 875);
  EXPECT_DOUBLE_EQ(m.ttft_ms.mean, 375);
  EXPECT_NEAR(m.tpot_ms.mean, 250, 1e-9);
  EXPECT_NEAR(m.itl_ms.mean, 250, 1e-9);
  EXPECT_NEAR(m.itl_ms.max, 500, 1e-9);
  EXPECT_DOUBLE_EQ(m.peak_output_throughput, 3);  // tokens at 0.5, 0.625, 0.75 | 1.25, 1.25, 1.5
}

TEST(BenchStats, LimitsAreRead) {
  Goodput g;
  parse_goodput("ttft:500", g);
  parse_goodput("e2el:2000.5", g);
  EXPECT_EQ(g.ttft_ms, 500);
  EXPECT_EQ(g.e2el_ms, 2000.5);
  EXPECT_FALSE(g.tpot_ms.has_value());
  for (const char* bad : {"", "ttft", "ttft:", "ttft:x", "ttft:-1", "itl:5", "ttft:1,,"})
    EXPECT_THROW(parse_goodput(bad, g), Error) << bad;
}

TEST(BenchStats, TheTableHasTheNamesOfBenchServing) {
  LoadSettings settings;
  settings.backend = "sglang";
  settings.request_rate = std::numeric_limits<double>::infinity();
  const std::vector<RequestRecord> records = {record(0, 0.5, {0.1}, 10)};
  const ServingMetrics m = summarise(records, 2, {});
  const std::string table = serving_table(m, settings);
  for (const char* line : {"============ Serving Benchmark Result ============\n",
                           "Backend:                                 sglang    \n",
                           "Traffic request rate:                    inf       \n",
                           "Max request concurrency:                 not set   \n",
                           "Successful requests:                     1         \n",
                           "Benchmark duration (s):                  2.00      \n",
                           "Total input tokens:                      10        \n",
                           "Total generated tokens:                  2         \n",
                           "Request throughput (req/s):              0.50      \n",
                           "Output token throughput (tok/s):         1.00      \n",
                           "Total token throughput (tok/s):          6.00      \n",
                           "Concurrency:                             0.30      \n",
                           "----------------End-to-End Latency----------------\n",
                           "Mean E2E Latency (ms):                   600.00    \n",
                           "---------------Time to First Token----------------\n",
                           "P99 TTFT (ms):                           500.00    \n",
                           "-----Time per Output Token (excl. 1st token)------\n",
                           "Median TPOT (ms):                        100.00    \n",
                           "---------------Inter-Token Latency----------------\n",
                           "Max ITL (ms):                            100.00    \n"})
    EXPECT_THAT(table, HasSubstr(line));
  EXPECT_EQ(table.find("goodput"), std::string::npos);
  settings.goodput.ttft_ms = 1;
  EXPECT_THAT(serving_table(summarise(records, 2, settings.goodput), settings),
              HasSubstr("Request goodput (req/s):                 0.00"));
}

TEST(BenchStats, TheFileHasTheKeysOfBenchServing) {
  LoadSettings settings;
  settings.request_rate = std::numeric_limits<double>::infinity();
  settings.details = {{"random_input_len", 7}};
  const std::vector<RequestRecord> records = {record(0, 0.5, {0.1}, 10), {}};
  Json json = serving_json(summarise(records, 2, {}), settings);
  for (const char* key : {"backend",
                          "dataset_name",
                          "request_rate",
                          "max_concurrency",
                          "random_input_len",
                          "duration",
                          "completed",
                          "total_input_tokens",
                          "total_output_tokens",
                          "request_throughput",
                          "input_throughput",
                          "output_throughput",
                          "mean_e2e_latency_ms",
                          "median_e2e_latency_ms",
                          "std_e2e_latency_ms",
                          "p99_e2e_latency_ms",
                          "mean_ttft_ms",
                          "median_ttft_ms",
                          "std_ttft_ms",
                          "p99_ttft_ms",
                          "mean_tpot_ms",
                          "median_tpot_ms",
                          "std_tpot_ms",
                          "p99_tpot_ms",
                          "mean_itl_ms",
                          "median_itl_ms",
                          "std_itl_ms",
                          "p95_itl_ms",
                          "p99_itl_ms",
                          "concurrency",
                          "accept_length"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_EQ(json["request_rate"], "inf");
  add_details(json, records);
  EXPECT_EQ(json["ttfts"], Json::array({0.5, 0.0}));
  EXPECT_EQ(json["itls"][0].size(), 1u);
  EXPECT_EQ(json["output_lens"], Json::array({2, 0}));
}

TEST(BenchStats, TwoRunsAreCompared) {
  const Json before = {
      {"output_throughput", 100.0}, {"mean_ttft_ms", 10.0}, {"mean_itl_ms", 5.0}, {"completed", 4}};
  const Json after = {
      {"output_throughput", 80.0}, {"mean_ttft_ms", 5.0}, {"mean_itl_ms", 5.1}, {"completed", 5}};
  const std::string text = compare_runs(before, after);
  EXPECT_THAT(text, testing::ContainsRegex("output_throughput +100.00 +80.00 +0.800 +worse\n"));
  EXPECT_THAT(text, testing::ContainsRegex("mean_ttft_ms +10.00 +5.00 +0.500 +better\n"));
  EXPECT_THAT(text, testing::ContainsRegex("mean_itl_ms +5.00 +5.10 +1.020\n"));
  EXPECT_EQ(text.find("completed"), std::string::npos);
  EXPECT_EQ(text.find("not the same load"), std::string::npos);
}

TEST(BenchStats, AComparisonKnowsWhatItCannotTell) {
  const Json before = {
      {"mean_ttft_ms", 10.0}, {"std_ttft_ms", 3.0}, {"completed", 9}, {"num_prompts", 9}};
  const Json after = {
      {"mean_ttft_ms", 12.0}, {"std_ttft_ms", 4.0}, {"completed", 16}, {"num_prompts", 16}};
  // 1.96 * sqrt(9 / 9 + 16 / 16) / 10: 20 % more is within it.
  const std::string text = compare_runs(before, after);
  EXPECT_THAT(text, testing::ContainsRegex("mean_ttft_ms +10.00 +12.00 +1.200 +\\+-0.277\n"));
  EXPECT_THAT(text, testing::StartsWith("not the same load: num_prompts was 9 and is 16\n"));
}

// What is pretended of drafts is drawn from the seed: sequences of a batch must not share it.
TEST(RandomRequest, HasPromptAndDrawsOfItsSeed) {
  const Request one = random_request(100, 20, 8, 1), again = random_request(100, 20, 8, 1),
                other = random_request(100, 20, 8, 2);
  EXPECT_EQ(one.prompt_ids, again.prompt_ids);
  EXPECT_EQ(one.params.seed, again.params.seed);
  EXPECT_NE(one.prompt_ids, other.prompt_ids);
  EXPECT_NE(one.params.seed, other.params.seed);
  EXPECT_NE(one.cache_namespace, other.cache_namespace);
}

}  // namespace
}  // namespace sluice
