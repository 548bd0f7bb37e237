#include "server/core/engine_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>

namespace sluice {
namespace {

using Labels = MetricLabels;

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
    {"sglang:kv_used_tokens", "KV tokens in use", false,
     [](const EngineStats& s) { return double(s.used_tokens); }},
    {"sglang:kv_evictable_tokens", "KV tokens that the prefix cache alone holds", false,
     [](const EngineStats& s) { return double(s.cached_tokens); }},
    {"sglang:kv_available_tokens", "KV tokens that nothing holds", false,
     [](const EngineStats& s) {
       return double(
           std::max<std::int64_t>(0, s.max_total_tokens - s.used_tokens - s.cached_tokens));
     }},
    {"sglang:cache_hit_rate",
     "Prompt tokens of the last step with prefill that were found in the prefix cache, 0 to 1",
     false, [](const EngineStats& s) { return s.prefix_hit_rate; }},
    {"sglang:evicted_tokens_total", "KV tokens of pages taken back from the prefix cache", true,
     [](const EngineStats& s) { return double(s.evicted_pages) * kPageSize; }},
    {"sglang:gen_throughput", "Tokens generated a second", false,
     [](const EngineStats& s) { return s.generation_throughput; }},
    {"sglang:num_retracted_requests_total", "Requests sent back to the queue for want of KV memory",
     true, [](const EngineStats& s) { return double(s.retracted); }},
    {"sglang:num_retracted_reqs",
     "Requests sent back to the queue for want of KV memory, in the last 40 steps", false,
     [](const EngineStats& s) { return double(s.recently_retracted); }},
    {"sglang:new_token_ratio", "Share of the tokens to come that admission reserves pages for",
     false, [](const EngineStats& s) { return s.new_token_ratio; }},
    {"sglang:is_cuda_graph", "Whether the last step was a recorded CUDA graph", false,
     [](const EngineStats& s) { return double(s.ran_graph); }},
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
    {"vllm:prompt_tokens_total", "Prompt tokens of choices that got a token, found ones included",
     true, [](const EngineStats& s) { return double(s.prompt_tokens); }},
    {"vllm:prompt_tokens_cached_total", "The part of them that was not computed", true,
     [](const EngineStats& s) { return double(s.prompt_reused_tokens); }},
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
    {"sluice:step_seconds_total", "Time of all steps", true,
     [](const EngineStats& s) { return s.step_s; }},
};

template <std::size_t N>
void add_stats(const StatRow (&rows)[N], const Labels& labels, const EngineStats& stats,
               std::vector<prometheus::MetricFamily>& out) {
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

// A histogram of counts[i] observations up to kBounds[i], as the engine counted them.
template <class Counts>
prometheus::MetricFamily counted_family(const char* name, const char* help, const Labels& labels,
                                        const Counts& counts) {
  prometheus::MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = prometheus::MetricType::Histogram;
  prometheus::ClientMetric metric;
  for (const auto& [key, value] : labels) metric.label.push_back({key, value});
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < counts.counts.size(); ++i) {
    below += counts.counts[i];
    const double bound = i < std::size(Counts::kBounds) ? Counts::kBounds[i]
                                                        : std::numeric_limits<double>::infinity();
    metric.histogram.bucket.push_back({below, bound});
  }
  metric.histogram.sample_count = below;
  metric.histogram.sample_sum = static_cast<double>(counts.sum);
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

// What speculation did, in the names of both engines.
const StatRow kSglangDraftStats[] = {
    {"sglang:spec_accept_length", "Tokens of a verification: accepted drafts and one more", false,
     [](const EngineStats& s) {
       return ratio(s.accepted_tokens + s.verifications, s.verifications);
     }},
    {"sglang:spec_accept_rate", "Drafts that became tokens, as a part of all, 0 to 1", false,
     [](const EngineStats& s) { return ratio(s.accepted_tokens, s.drafted_tokens); }},
};

const StatRow kOwnDraftStats[] = {
    {"sluice:verifications_total", "Decode rows computed while speculation is on", true,
     [](const EngineStats& s) { return double(s.verifications); }},
    {"sluice:rounds_ahead_total", "Steps launched while one with drafts was in flight", true,
     [](const EngineStats& s) { return double(s.rounds_ahead); }},
};

const StatRow kVllmDraftStats[] = {
    {"vllm:spec_decode_num_drafts_total", "Decode rows that had drafts", true,
     [](const EngineStats& s) { return double(s.drafted_rows); }},
    {"vllm:spec_decode_num_draft_tokens_total", "Drafts", true,
     [](const EngineStats& s) { return double(s.drafted_tokens); }},
    {"vllm:spec_decode_num_accepted_tokens_total", "Drafts that became tokens", true,
     [](const EngineStats& s) { return double(s.accepted_tokens); }},
};

// A counter by a number: counts[i] stands at `label` = i.
prometheus::MetricFamily numbered_family(const char* name, const char* help, const Labels& labels,
                                         const char* label,
                                         const std::vector<std::int64_t>& counts) {
  prometheus::MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = prometheus::MetricType::Counter;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    prometheus::ClientMetric metric;
    for (const auto& [key, value] : labels) metric.label.push_back({key, value});
    metric.label.push_back({label, std::to_string(i)});
    metric.counter.value = static_cast<double>(counts[i]);
    family.metric.push_back(std::move(metric));
  }
  return family;
}

// One figure by the values of a label.
prometheus::MetricFamily split_family(const char* name, const char* help, bool counter,
                                      const Labels& labels, const char* label,
                                      std::initializer_list<std::pair<const char*, double>> parts) {
  prometheus::MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = counter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge;
  for (const auto& [part, value] : parts) {
    prometheus::ClientMetric metric;
    for (const auto& [key, text] : labels) metric.label.push_back({key, text});
    metric.label.push_back({label, part});
    (counter ? metric.counter.value : metric.gauge.value) = value;
    family.metric.push_back(std::move(metric));
  }
  return family;
}

// Experts that have places by a map (docs/ranks.md).
const StatRow kSglangExpertStats[] = {
    {"sglang:eplb_balancedness",
     "Mean load of the groups of experts as a part of the largest, 0 to 1", false,
     [](const EngineStats& s) { return s.expert_balancedness; }},
};

const StatRow kOwnExpertStats[] = {
    {"sluice:expert_rebalances_total", "Rebalances of experts that have begun", true,
     [](const EngineStats& s) { return double(s.expert_rebalances); }},
    {"sluice:expert_moves_total", "Places of experts that have got another expert", true,
     [](const EngineStats& s) { return double(s.expert_changes); }},
    {"sluice:expert_moved_bytes_total", "Bytes of experts that a rank has got", true,
     [](const EngineStats& s) { return double(s.expert_bytes_moved); }},
    {"sluice:expert_move_seconds_total", "Time that steps have spent on moves of experts", true,
     [](const EngineStats& s) { return s.expert_move_s; }},
};

// Ranks that may be lost (docs/ranks.md).
const StatRow kElasticStats[] = {
    {"sluice:ranks", "Ranks at the start", false,
     [](const EngineStats& s) { return double(s.elastic_ranks); }},
    {"sluice:ranks_alive", "Ranks that are not lost", false,
     [](const EngineStats& s) { return double(s.live_ranks); }},
    {"sluice:elastic_rebalance_seconds_total", "Time in which experts of lost ranks were dealt",
     true, [](const EngineStats& s) { return s.rebalance_s; }},
};

// Choices of a layer by the group that computed them: the value of an observation is the group.
prometheus::MetricFamily expert_family(const Labels& labels, const EngineStats& stats) {
  prometheus::MetricFamily family;
  family.name = "sglang:eplb_gpu_physical_count";
  family.help = "Choices of experts by layer and by the group of ranks that computed them";
  family.type = prometheus::MetricType::Histogram;
  for (std::size_t i = 0; i < stats.expert_choices.size(); ++i) {
    prometheus::ClientMetric metric;
    for (const auto& [name, value] : labels) metric.label.push_back({name, value});
    metric.label.push_back({"layer", std::to_string(stats.expert_layers[i])});
    std::uint64_t count = 0;
    double sum = 0;
    for (std::size_t group = 0; group < stats.expert_choices[i].size(); ++group) {
      const auto choices = static_cast<std::uint64_t>(stats.expert_choices[i][group]);
      count += choices;
      sum += static_cast<double>(choices * group);
      metric.histogram.bucket.push_back(
          {.cumulative_count = count, .upper_bound = static_cast<double>(group)});
    }
    metric.histogram.bucket.push_back(
        {.cumulative_count = count, .upper_bound = std::numeric_limits<double>::infinity()});
    metric.histogram.sample_count = count;
    metric.histogram.sample_sum = sum;
    family.metric.push_back(std::move(metric));
  }
  return family;
}

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

}  // namespace

void add_sglang_metrics(const Labels& labels, const EngineStats& stats,
                        std::vector<prometheus::MetricFamily>& out) {
  add_stats(kSglangStats, labels, stats, out);
  if (stats.has_speculation) add_stats(kSglangDraftStats, labels, stats, out);
  if (!stats.has_expert_load) return;
  add_stats(kSglangExpertStats, labels, stats, out);
  if (!stats.expert_choices.empty()) out.push_back(expert_family(labels, stats));
}

void add_vllm_metrics(const Labels& labels, const EngineStats& stats,
                      std::vector<prometheus::MetricFamily>& out) {
  add_stats(kVllmStats, labels, stats, out);
  const double reused = double(stats.prompt_reused_tokens);
  out.push_back(split_family("vllm:prompt_tokens_by_source_total", "Prompt tokens by source", true,
                             labels, "source",
                             {{"local_compute", double(stats.prompt_tokens) - reused},
                              {"local_cache_hit", reused},
                              {"external_kv_transfer", 0}}));
  out.push_back(split_family("vllm:prompt_tokens_cached_by_source_total",
                             "Prompt tokens that were not computed, by what held them", true,
                             labels, "source", {{"device", reused}}));
  // The engine never sleeps; boards show one without this figure as down.
  out.push_back(split_family("vllm:engine_sleep_state", "Whether the engine is awake", false,
                             labels, "sleep_state",
                             {{"awake", 1}, {"weights_offloaded", 0}, {"discard_all", 0}}));
  out.push_back(split_family("vllm:num_requests_waiting_by_reason", "Requests that wait, by reason",
                             false, labels, "reason",
                             {{"capacity", double(stats.queued)}, {"deferred", 0}}));
  out.push_back(
      counted_family("vllm:iteration_tokens_total", "Tokens in a step", labels, stats.step_tokens));
  out.push_back(counted_family("vllm:request_num_preemptions",
                               "How often a choice that ended was sent back to the queue", labels,
                               stats.retractions_of_ended));
  out.push_back(cache_config_family(labels, stats));
  if (!stats.has_speculation) return;
  add_stats(kVllmDraftStats, labels, stats, out);
  out.push_back(numbered_family("vllm:spec_decode_num_accepted_tokens_per_pos_total",
                                "Drafts that became tokens, by their place behind the known token",
                                labels, "position", stats.accepted_by_place));
}

void add_own_metrics(const Labels& labels, const EngineStats& stats,
                     std::vector<prometheus::MetricFamily>& out) {
  add_stats(kOwnStats, labels, stats, out);
  if (stats.has_speculation) {
    add_stats(kOwnDraftStats, labels, stats, out);
    out.push_back(numbered_family("sluice:speculative_steps_total",
                                  "Steps with decode rows, by the most drafts of one of them",
                                  labels, "drafts", stats.steps_by_drafts));
  }
  out.push_back(kv_pages_family(labels, stats));
  if (stats.has_expert_load) add_stats(kOwnExpertStats, labels, stats, out);
  if (stats.elastic_ranks > 0) add_stats(kElasticStats, labels, stats, out);
}

void add_figure(const ServerFigure& figure, std::vector<prometheus::MetricFamily>& out) {
  using prometheus::MetricType;
  out.push_back(process_metric(figure.name, figure.help,
                               figure.is_counter ? MetricType::Counter : MetricType::Gauge,
                               figure.value));
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
  rlimit most{};
  if (getrlimit(RLIMIT_NOFILE, &most) == 0)
    out.push_back(process_metric("process_max_fds", "The most files and sockets that may be open",
                                 MetricType::Gauge, double(most.rlim_cur)));
  static const double kStarted =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  out.push_back(process_metric("process_start_time_seconds", "When the server began, since 1970",
                               MetricType::Gauge, kStarted));
  out.push_back(
      process_metric("process_cpu_seconds_total", "Processor time", MetricType::Counter, cpu_s));
}

}  // namespace sluice
