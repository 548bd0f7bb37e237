#include "server/core/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>

namespace sluice {
namespace {

using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;
using Labels = std::map<std::string, std::string>;

const Buckets kSglangFirstToken = {.1, .2, .4, .6, .8, 1,  2,   4,   6,
                                   8,  10, 20, 40, 60, 80, 100, 200, 400};
const Buckets kSglangGap = {.002, .004, .006, .008, .01, .015, .02, .025, .03, .035, .04, .06,
                            .08,  .1,   .2,   .4,   .6,  .8,   1,   2,    4,   6,    8};
const Buckets kSglangTotal = {.1, .2, .4, .6, .8, 1,   2,   4,   6,  8,
                              10, 20, 40, 60, 80, 100, 200, 400, 800};
const Buckets kVllmFirstToken = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                 1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
const Buckets kVllmGap = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                          .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
const Buckets kVllmTotal = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                            30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
const Buckets kVllmTokens = {1,   2,    5,    10,   20,    50,    100,   200,
                             500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
const Buckets kVllmChoices = {1, 2, 5, 10, 20};
const Buckets kVllmPhase = kVllmTotal;

// A gauge, or a counter that follows one of the engine's, which only rises.
struct StatRow {
  std::string_view name;
  std::string_view help;
  bool counter;
  double (*value)(const EngineStats&);
};

double ratio(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

const StatRow kSglangStats[] = {
    {"sglang:num_running_reqs", "Requests that are running", false,
     [](const EngineStats& s) { return double(s.running); }},
    {"sglang:num_queue_reqs", "Requests that wait", false,
     [](const EngineStats& s) { return double(s.queued); }},
    {"sglang:num_used_tokens", "KV tokens in use", false,
     [](const EngineStats& s) { return double(s.used_tokens); }},
    {"sglang:token_usage", "KV tokens in use, as a part of all", false,
     [](const EngineStats& s) { return ratio(s.used_tokens, s.max_total_tokens); }},
    {"sglang:utilization", "Requests that run, as a part of those that may", false,
     [](const EngineStats& s) { return ratio(s.running, s.max_running_requests); }},
    {"sglang:mamba_usage", "States of recurrent layers in use, 0 to 1", false,
     [](const EngineStats& s) {
       for (const PageGroupStats& group : s.kv_groups)
         if (group.retention == Retention::kState)
           return ratio(group.used_pages, group.total_pages);
       return 0.0;
     }},
    {"sglang:max_total_num_tokens", "KV tokens there are", false,
     [](const EngineStats& s) { return double(s.max_total_tokens); }},
    {"sglang:cache_hit_rate",
     "Prompt tokens found in the prefix cache, as a part of those looked up", false,
     [](const EngineStats& s) { return ratio(s.prefix_hit_tokens, s.prefix_query_tokens); }},
    {"sglang:gen_throughput", "Tokens generated a second", false,
     [](const EngineStats& s) { return s.generation_throughput; }},
    {"sglang:prompt_tokens_total", "Prompt tokens", true,
     [](const EngineStats& s) { return double(s.prompt_tokens); }},
    {"sglang:generation_tokens_total", "Generated tokens", true,
     [](const EngineStats& s) { return double(s.generated_tokens); }},
    {"sglang:cached_tokens_total", "Prompt tokens found in the prefix cache", true,
     [](const EngineStats& s) { return double(s.prefix_hit_tokens); }},
    {"sglang:num_aborted_requests_total", "Requests that were aborted", true,
     [](const EngineStats& s) { return double(s.aborted); }},
    {"sglang:num_retracted_requests_total", "Requests sent back to the queue for want of KV memory",
     true, [](const EngineStats& s) { return double(s.retracted); }},
};

const StatRow kVllmStats[] = {
    {"vllm:num_requests_running", "Requests that are running", false,
     [](const EngineStats& s) { return double(s.running); }},
    {"vllm:num_requests_waiting", "Requests that wait", false,
     [](const EngineStats& s) { return double(s.queued); }},
    {"vllm:kv_cache_usage_perc", "KV memory in use, 0 to 1", false,
     [](const EngineStats& s) { return ratio(s.used_tokens, s.max_total_tokens); }},
    {"vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache", true,
     [](const EngineStats& s) { return double(s.prefix_query_tokens); }},
    {"vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache", true,
     [](const EngineStats& s) { return double(s.prefix_hit_tokens); }},
    {"vllm:num_preemptions_total", "Requests sent back to the queue for want of KV memory", true,
     [](const EngineStats& s) { return double(s.retracted); }},
    {"vllm:prompt_tokens_total", "Prompt tokens", true,
     [](const EngineStats& s) { return double(s.prompt_tokens); }},
    {"vllm:generation_tokens_total", "Generated tokens", true,
     [](const EngineStats& s) { return double(s.generated_tokens); }},
};

const StatRow kOwnStats[] = {
    {"sluice:steps_total", "Steps completed", true,
     [](const EngineStats& s) { return double(s.steps); }},
    {"sluice:mixed_steps_total", "Steps with prefill and decode together", true,
     [](const EngineStats& s) { return double(s.mixed_steps); }},
    {"sluice:cached_kv_tokens", "KV tokens that the prefix cache alone holds", false,
     [](const EngineStats& s) { return double(s.cached_tokens); }},
    {"sluice:evicted_pages_total", "Pages taken back from the prefix cache", true,
     [](const EngineStats& s) { return double(s.evicted_pages); }},
    {"sluice:numerics_errors_total", "Requests ended because their logits were not finite", true,
     [](const EngineStats& s) { return double(s.numerics_errors); }},
    {"sluice:seconds_since_progress", "Since a step completed, while work is queued", false,
     [](const EngineStats& s) { return s.seconds_since_progress; }},
    {"sluice:last_step_seconds", "Time of the last step", false,
     [](const EngineStats& s) { return s.last_step_s; }},
};

}  // namespace

struct ServerMetrics::Impl {
  prometheus::Registry registry;
  prometheus::Family<prometheus::Counter>* http = nullptr;
  Labels sglang_labels, vllm_labels;
  std::vector<Histogram*> first_token, gap, total, queue, prompt_tokens,
      generated_tokens;  // one for each naming
  std::vector<Histogram*> choices, max_tokens;
  std::vector<Histogram*> prefill, decode, inference;
  prometheus::Family<prometheus::Counter>* success = nullptr;  // vllm:request_success_total
  prometheus::Counter* sglang_requests = nullptr;
  bool sglang = false, vllm = false;

  Histogram* histogram(const std::string& name, const std::string& help, const Labels& labels,
                       const Buckets& buckets) {
    return &prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels,
                                                                                      buckets);
  }

  template <std::size_t N>
  void add_stats(const StatRow (&rows)[N], const Labels& labels, const EngineStats& stats,
                 std::vector<prometheus::MetricFamily>& out) const {
    for (const StatRow& row : rows) {
      prometheus::MetricFamily family;
      family.name = row.name;
      family.help = row.help;
      family.type = row.counter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge;
      prometheus::ClientMetric metric;
      for (const auto& [name, value] : labels) metric.label.push_back({name, value});
      (row.counter ? metric.counter.value : metric.gauge.value) = row.value(stats);
      family.metric.push_back(std::move(metric));
      out.push_back(std::move(family));
    }
  }
};

namespace {

prometheus::MetricFamily process_metric(std::string name, std::string help,
                                        prometheus::MetricType type, double value) {
  prometheus::MetricFamily family;
  family.name = std::move(name);
  family.help = std::move(help);
  family.type = type;
  prometheus::ClientMetric metric;
  (type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  family.metric.push_back(std::move(metric));
  return family;
}

void add_process_metrics(std::vector<prometheus::MetricFamily>& out) {
  using prometheus::MetricType;
  std::int64_t total_pages = 0, resident_pages = 0;
  std::ifstream("/proc/self/statm") >> total_pages >> resident_pages;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const double cpu_s = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
                       1e-6 * (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  out.push_back(process_metric("process_resident_memory_bytes", "Resident memory",
                               MetricType::Gauge,
                               double(resident_pages) * double(sysconf(_SC_PAGESIZE))));
  std::error_code failed;
  const std::filesystem::directory_iterator files("/proc/self/fd", failed);
  if (!failed)
    out.push_back(process_metric("process_open_fds", "Open files and sockets", MetricType::Gauge,
                                 double(std::distance(begin(files), end(files)))));
  static const double kStarted =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  out.push_back(process_metric("process_start_time_seconds", "When the server began, since 1970",
                               MetricType::Gauge, kStarted));
  out.push_back(
      process_metric("process_cpu_seconds_total", "Processor time", MetricType::Counter, cpu_s));
}

}  // namespace

ServerMetrics::ServerMetrics() : impl_(std::make_unique<Impl>()) {
  impl_->http = &prometheus::BuildCounter()
                     .Name("http_requests_total")
                     .Help("Requests by route, method and status; 499: the client left first")
                     .Register(impl_->registry);
}

ServerMetrics::~ServerMetrics() = default;

void ServerMetrics::set_model(const std::string& model_name, const std::string& compat) {
  Impl& m = *impl_;
  m.sglang = compat.find("sglang") != std::string::npos;
  m.vllm = compat.find("vllm") != std::string::npos;
  m.sglang_labels = {
      {"model_name", model_name}, {"engine_type", "unified"}, {"tp_rank", "0"}, {"pp_rank", "0"}};
  m.vllm_labels = {{"model_name", model_name}, {"engine", "0"}};
  if (m.sglang) {
    const auto add = [&](const char* name, const char* help, const Buckets& buckets) {
      return m.histogram(std::string("sglang:") + name, help, m.sglang_labels, buckets);
    };
    m.first_token.push_back(
        add("time_to_first_token_seconds", "From arrival to the first token", kSglangFirstToken));
    m.gap.push_back(add("inter_token_latency_seconds", "Between tokens", kSglangGap));
    m.total.push_back(add("e2e_request_latency_seconds", "From arrival to the end", kSglangTotal));
    m.queue.push_back(add("queue_time_seconds", "From submission to the first step", kSglangTotal));
    m.sglang_requests = &prometheus::BuildCounter()
                             .Name("sglang:num_requests_total")
                             .Help("Requests that ended")
                             .Register(m.registry)
                             .Add(m.sglang_labels);
  }
  if (m.vllm) {
    const auto add = [&](const char* name, const char* help, const Buckets& buckets) {
      return m.histogram(std::string("vllm:") + name, help, m.vllm_labels, buckets);
    };
    m.first_token.push_back(
        add("time_to_first_token_seconds", "From arrival to the first token", kVllmFirstToken));
    m.gap.push_back(add("inter_token_latency_seconds", "Between tokens", kVllmGap));
    m.total.push_back(add("e2e_request_latency_seconds", "From arrival to the end", kVllmTotal));
    m.queue.push_back(
        add("request_queue_time_seconds", "From submission to the first step", kVllmTotal));
    m.prompt_tokens.push_back(
        add("request_prompt_tokens", "Prompt tokens of a request", kVllmTokens));
    m.generated_tokens.push_back(
        add("request_generation_tokens", "Generated tokens of a request", kVllmTokens));
    m.choices.push_back(add("request_params_n", "The parameter n", kVllmChoices));
    m.max_tokens.push_back(
        add("request_params_max_tokens", "The parameter max_tokens", kVllmTokens));
    m.prefill.push_back(
        add("request_prefill_time_seconds", "From the first step to the first token", kVllmPhase));
    m.decode.push_back(
        add("request_decode_time_seconds", "From the first token to the last", kVllmPhase));
    m.inference.push_back(
        add("request_inference_time_seconds", "From the first step to the last token", kVllmPhase));
    m.success = &prometheus::BuildCounter()
                     .Name("vllm:request_success_total")
                     .Help("Requests that ended")
                     .Register(m.registry);
  }
}

void ServerMetrics::http_request(std::string_view handler, std::string_view method, int status) {
  static constexpr std::string_view kMethods[] = {"GET", "POST", "HEAD", "OPTIONS"};
  const bool known =
      std::find(std::begin(kMethods), std::end(kMethods), method) != std::end(kMethods);
  impl_->http
      ->Add({{"handler", std::string(handler)},
             {"method", known ? std::string(method) : "other"},
             {"status", std::to_string(status)}})
      .Increment();
}

void ServerMetrics::first_token(double seconds) {
  for (Histogram* h : impl_->first_token) h->Observe(seconds);
}

void ServerMetrics::token_gap(double seconds, int count) {
  for (Histogram* h : impl_->gap)
    for (int i = 0; i < count; ++i) h->Observe(seconds / count);
}

void ServerMetrics::finished(const FinishedRequest& request) {
  Impl& m = *impl_;
  for (Histogram* h : m.total) h->Observe(request.total_s);
  for (Histogram* h : m.queue) h->Observe(request.queue_s);
  for (Histogram* h : m.prompt_tokens) h->Observe(request.prompt_tokens);
  for (Histogram* h : m.generated_tokens) h->Observe(request.generated_tokens);
  for (Histogram* h : m.choices) h->Observe(request.num_choices);
  if (request.max_tokens > 0)
    for (Histogram* h : m.max_tokens) h->Observe(request.max_tokens);
  if (request.first_token_s > 0) {
    for (Histogram* h : m.prefill)
      h->Observe(std::max(0.0, request.first_token_s - request.queue_s));
    for (Histogram* h : m.decode)
      h->Observe(std::max(0.0, request.total_s - request.first_token_s));
    for (Histogram* h : m.inference) h->Observe(std::max(0.0, request.total_s - request.queue_s));
  }
  if (m.sglang_requests) m.sglang_requests->Increment();
  if (m.success) {
    Labels labels = m.vllm_labels;
    labels["finished_reason"] = std::string(request.reason);
    m.success->Add(labels).Increment();
  }
}

namespace {

// Tokens of each step, as the engine counted them.
prometheus::MetricFamily step_tokens_family(const Labels& labels, const EngineStats& stats) {
  prometheus::MetricFamily family;
  family.name = "vllm:iteration_tokens_total";
  family.help = "Tokens in a step";
  family.type = prometheus::MetricType::Histogram;
  prometheus::ClientMetric metric;
  for (const auto& [name, value] : labels) metric.label.push_back({name, value});
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < stats.step_tokens.counts.size(); ++i) {
    below += stats.step_tokens.counts[i];
    const double bound = i < std::size(StepTokens::kBounds)
                             ? StepTokens::kBounds[i]
                             : std::numeric_limits<double>::infinity();
    metric.histogram.bucket.push_back({below, bound});
  }
  metric.histogram.sample_count = below;
  metric.histogram.sample_sum = static_cast<double>(stats.step_tokens.sum);
  family.metric.push_back(std::move(metric));
  return family;
}

// What the cache is, in the labels of a gauge that is always 1.
prometheus::MetricFamily cache_config_family(Labels labels, const EngineStats& stats) {
  labels["block_size"] = std::to_string(kPageSize);
  labels["num_gpu_blocks"] = std::to_string(stats.max_total_tokens / kPageSize);
  labels["enable_prefix_caching"] = stats.prefix_cache ? "True" : "False";
  prometheus::MetricFamily family;
  family.name = "vllm:cache_config_info";
  family.help = "The KV cache: tokens of a page and pages";
  family.type = prometheus::MetricType::Gauge;
  prometheus::ClientMetric metric;
  for (const auto& [name, value] : labels) metric.label.push_back({name, value});
  metric.gauge.value = 1;
  family.metric.push_back(std::move(metric));
  return family;
}

// Pages by group and by who holds them.
prometheus::MetricFamily kv_pages_family(const Labels& labels, const EngineStats& stats) {
  prometheus::MetricFamily family;
  family.name = "sluice:kv_pages";
  family.help =
      "Pages of the KV cache, by page group and state: used by running requests, cached, free";
  family.type = prometheus::MetricType::Gauge;
  const auto add = [&](const std::string& group, const char* state, std::int64_t pages) {
    prometheus::ClientMetric metric;
    for (const auto& [name, value] : labels) metric.label.push_back({name, value});
    metric.label.push_back({"group", group});
    metric.label.push_back({"state", state});
    metric.gauge.value = static_cast<double>(pages);
    family.metric.push_back(std::move(metric));
  };
  for (const PageGroupStats& group : stats.kv_groups) {
    add(group.name, "used", group.used_pages);
    add(group.name, "cached", group.cached_pages);
    add(group.name, "free", group.total_pages - group.used_pages - group.cached_pages);
  }
  return family;
}

}  // namespace

std::string ServerMetrics::text(const EngineStats* stats) const {
  std::vector<prometheus::MetricFamily> families = impl_->registry.Collect();
  if (stats) {
    if (impl_->sglang) impl_->add_stats(kSglangStats, impl_->sglang_labels, *stats, families);
    if (impl_->vllm) impl_->add_stats(kVllmStats, impl_->vllm_labels, *stats, families);
    if (impl_->vllm) {
      families.push_back(step_tokens_family(impl_->vllm_labels, *stats));
      families.push_back(cache_config_family(impl_->vllm_labels, *stats));
    }
    const Labels own = {{"model_name", impl_->vllm_labels.at("model_name")}};
    impl_->add_stats(kOwnStats, own, *stats, families);
    families.push_back(kv_pages_family(own, *stats));
  }
  add_process_metrics(families);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace sluice
