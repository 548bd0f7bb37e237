#include "server/core/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>

#include "server/core/engine_metrics.h"

namespace sluice {
namespace {

using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;
using Labels = MetricLabels;

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
const Buckets kSglangTokens = {100,   300,   500,   700,   1000,  1500,  2000,  3000,
                               4000,  5000,  6000,  7000,  8000,  9000,  10000, 12000,
                               15000, 20000, 22000, 25000, 30000, 35000, 40000};
const Buckets kVllmChoices = {1, 2, 5, 10, 20};
const Buckets kVllmPhase = kVllmTotal;
const Buckets kHttpSeconds = {.1, .5, 1};  // those of the rivals' instrumentation

}  // namespace

struct ServerMetrics::Impl {
  using Counter = prometheus::Counter;
  using Counters = prometheus::Family<Counter>;

  prometheus::Registry registry;
  Counters* http = nullptr;        // by class of status, as the rivals count
  Counters* http_exact = nullptr;  // by status
  prometheus::Family<Histogram>* http_seconds = nullptr;
  Labels sglang_labels, vllm_labels;
  // Those of both namings.
  std::vector<Histogram*> first_token, total, queue, prompt_tokens, generated_tokens;
  Histogram* sglang_gap = nullptr;
  Counter *sglang_requests = nullptr, *sglang_prompt = nullptr, *sglang_generated = nullptr,
          *sglang_cached = nullptr, *sglang_aborted = nullptr;
  Histogram *vllm_gap = nullptr, *prefill = nullptr, *decode = nullptr, *inference = nullptr,
            *choices = nullptr, *max_tokens = nullptr, *longest = nullptr, *token_time = nullptr,
            *computed = nullptr;
  Counters* success = nullptr;  // vllm:request_success_total
  bool sglang = false, vllm = false;

  Histogram* histogram(const std::string& name, const std::string& help, const Labels& labels,
                       const Buckets& buckets) {
    return &prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels,
                                                                                      buckets);
  }
  Counters* counters(const std::string& name, const std::string& help) {
    return &prometheus::BuildCounter().Name(name).Help(help).Register(registry);
  }
  void register_sglang();
  void register_vllm();
};

ServerMetrics::ServerMetrics() : impl_(std::make_unique<Impl>()) {
  impl_->http = impl_->counters(
      "http_requests_total",
      "Requests by route, method and class of status; 4xx has those whose client left first");
  impl_->http_exact =
      impl_->counters("sluice:http_requests_total",
                      "Requests by route, method and status; 499: the client left first");
  impl_->http_seconds = &prometheus::BuildHistogram()
                             .Name("http_request_duration_seconds")
                             .Help("From the request's first byte to the answer's last")
                             .Register(impl_->registry);
}

ServerMetrics::~ServerMetrics() = default;

namespace {

// Bounds of buckets as the rivals write them, who are asked for by text: le="1.0".
std::string with_decimal_bounds(const std::string& text) {
  constexpr std::string_view kLabel = "le=\"";
  std::string out;
  out.reserve(text.size() + text.size() / 16);
  std::size_t copied = 0;
  for (std::size_t at = text.find(kLabel); at != std::string::npos; at = text.find(kLabel, at)) {
    at += kLabel.size();
    const std::size_t end = std::min(text.find('"', at), text.size());
    const std::string_view bound = std::string_view(text).substr(at, end - at);
    const bool is_label =
        text[at - kLabel.size() - 1] == ',' || text[at - kLabel.size() - 1] == '{';
    if (!is_label || bound.find_first_not_of("0123456789") != std::string_view::npos) continue;
    out.append(text, copied, end - copied);
    out += ".0";
    copied = end;
  }
  out.append(text, copied);
  return out;
}

}  // namespace

void ServerMetrics::Impl::register_sglang() {
  const auto histogram_of = [&](const char* name, const char* help, const Buckets& buckets) {
    return histogram(std::string("sglang:") + name, help, sglang_labels, buckets);
  };
  const auto counter_of = [&](const char* name, const char* help, Labels labels) {
    return &counters(std::string("sglang:") + name, help)->Add(std::move(labels));
  };
  first_token.push_back(histogram_of("time_to_first_token_seconds",
                                     "From arrival to a choice's first token", kSglangFirstToken));
  sglang_gap = histogram_of("inter_token_latency_seconds", "Between tokens", kSglangGap);
  total.push_back(
      histogram_of("e2e_request_latency_seconds", "From arrival to the end", kSglangTotal));
  queue.push_back(
      histogram_of("queue_time_seconds", "From submission to the first step", kSglangTotal));
  prompt_tokens.push_back(
      histogram_of("prompt_tokens_histogram", "Prompt tokens of a choice", kSglangTokens));
  generated_tokens.push_back(
      histogram_of("generation_tokens_histogram", "Generated tokens of a choice", kSglangTokens));
  sglang_requests = counter_of("num_requests_total", "Choices that ended", sglang_labels);
  sglang_prompt =
      counter_of("prompt_tokens_total", "Prompt tokens of choices that ended", sglang_labels);
  sglang_generated = counter_of("generation_tokens_total", "Generated tokens of choices that ended",
                                sglang_labels);
  Labels cached = sglang_labels;
  cached["cache_source"] = "device";
  sglang_cached = counter_of("cached_tokens_total",
                             "Prompt tokens of choices that ended which were not computed", cached);
  sglang_aborted =
      counter_of("num_aborted_requests_total", "Requests that clients aborted", sglang_labels);
}

void ServerMetrics::Impl::register_vllm() {
  const auto add = [&](const char* name, const char* help, const Buckets& buckets) {
    return histogram(std::string("vllm:") + name, help, vllm_labels, buckets);
  };
  first_token.push_back(add("time_to_first_token_seconds", "From arrival to a choice's first token",
                            kVllmFirstToken));
  vllm_gap = add("inter_token_latency_seconds", "Between tokens of a choice", kVllmGap);
  token_time = add("request_time_per_output_token_seconds",
                   "Mean time of a choice's tokens behind the first", kVllmGap);
  total.push_back(add("e2e_request_latency_seconds", "From arrival to the end", kVllmTotal));
  queue.push_back(
      add("request_queue_time_seconds", "From submission to the first step", kVllmTotal));
  prompt_tokens.push_back(add("request_prompt_tokens", "Prompt tokens of a choice", kVllmTokens));
  generated_tokens.push_back(
      add("request_generation_tokens", "Generated tokens of a choice", kVllmTokens));
  computed = add("request_prefill_kv_computed_tokens",
                 "Prompt tokens of a choice that were computed for it", kVllmTokens);
  choices = add("request_params_n", "The parameter n, once a prompt", kVllmChoices);
  longest = add("request_max_num_generation_tokens",
                "Generated tokens of the longest choice of a prompt", kVllmTokens);
  max_tokens =
      add("request_params_max_tokens", "The most tokens that a choice might generate", kVllmTokens);
  prefill =
      add("request_prefill_time_seconds", "From the first step to the first token", kVllmPhase);
  decode = add("request_decode_time_seconds", "From the first token to the last", kVllmPhase);
  inference =
      add("request_inference_time_seconds", "From the first step to the last token", kVllmPhase);
  success = counters("vllm:request_success_total", "Choices that ended");
  for (const char* reason : {"stop", "length", "abort", "error"}) {
    Labels labels = vllm_labels;
    labels["finished_reason"] = reason;
    success->Add(labels);
  }
}

void ServerMetrics::set_model(const std::string& model_name, const std::string& compat) {
  Impl& m = *impl_;
  m.sglang = compat.find("sglang") != std::string::npos;
  m.vllm = compat.find("vllm") != std::string::npos;
  m.sglang_labels = {
      {"model_name", model_name}, {"engine_type", "unified"}, {"tp_rank", "0"}, {"pp_rank", "0"}};
  m.vllm_labels = {{"model_name", model_name}, {"engine", "0"}};
  if (m.sglang) m.register_sglang();
  if (m.vllm) m.register_vllm();
}

void ServerMetrics::set_engine(const Engine& engine) {
  Impl& m = *impl_;
  if (!m.sglang) return;
  double all_ms = 0, load_ms = 0;
  for (const StartupLedger::Entry& entry : engine.ledger().entries) {
    all_ms += entry.milliseconds;
    if (entry.step == "load") load_ms += entry.milliseconds;
  }
  const auto gauge = [&](const char* name, const char* help, double value) {
    prometheus::BuildGauge()
        .Name(std::string("sglang:") + name)
        .Help(help)
        .Register(m.registry)
        .Add(m.sglang_labels)
        .Set(value);
  };
  gauge("startup_time_seconds", "From the start to readiness", all_ms / 1000);
  gauge("weight_load_duration_seconds", "Time that reading the weights took", load_ms / 1000);
  gauge("context_len", "The longest sequence, in tokens", engine.context_length());
  gauge("page_size", "KV tokens of a page", kPageSize);
}

void ServerMetrics::http_request(std::string_view handler, std::string_view method, int status,
                                 double seconds) {
  static constexpr std::string_view kMethods[] = {"GET",    "POST", "PUT",
                                                  "DELETE", "HEAD", "OPTIONS"};
  const bool known =
      std::find(std::begin(kMethods), std::end(kMethods), method) != std::end(kMethods);
  Labels labels = {{"handler", std::string(handler)},
                   {"method", known ? std::string(method) : "other"},
                   {"status", std::to_string(status)}};
  impl_->http_exact->Add(labels).Increment();
  labels["status"] = std::to_string(status / 100) + "xx";
  impl_->http->Add(labels).Increment();
  labels.erase("status");
  impl_->http_seconds->Add(labels, kHttpSeconds).Observe(seconds);
}

void ServerMetrics::first_token(double seconds) {
  for (Histogram* h : impl_->first_token) h->Observe(seconds);
}

// vLLM observes the time between two outputs of a choice, SGLang that of each of their tokens.
void ServerMetrics::token_gap(double seconds, int count) {
  Impl& m = *impl_;
  if (m.vllm_gap) m.vllm_gap->Observe(seconds);
  for (int i = 0; m.sglang_gap && i < count; ++i) m.sglang_gap->Observe(seconds / count);
}

void ServerMetrics::finished(const FinishedChoice& choice) {
  Impl& m = *impl_;
  for (Histogram* h : m.total) h->Observe(choice.total_s);
  for (Histogram* h : m.queue) h->Observe(choice.queue_s);
  for (Histogram* h : m.prompt_tokens) h->Observe(choice.prompt_tokens);
  for (Histogram* h : m.generated_tokens) h->Observe(choice.generated_tokens);
  if (m.sglang) {
    m.sglang_requests->Increment();
    if (choice.reason == "abort") m.sglang_aborted->Increment();
    m.sglang_prompt->Increment(choice.prompt_tokens);
    m.sglang_generated->Increment(choice.generated_tokens);
    m.sglang_cached->Increment(choice.reused_tokens);
  }
  if (!m.vllm) return;
  m.computed->Observe(choice.prompt_tokens - choice.reused_tokens);
  if (choice.max_tokens > 0) m.max_tokens->Observe(choice.max_tokens);
  const double decode_s = std::max(0.0, choice.last_token_s - choice.first_token_s);
  if (choice.first_token_s > 0) {
    m.prefill->Observe(std::max(0.0, choice.first_token_s - choice.queue_s));
    m.decode->Observe(decode_s);
    m.inference->Observe(std::max(0.0, choice.last_token_s - choice.queue_s));
    m.token_time->Observe(choice.generated_tokens > 1 ? decode_s / (choice.generated_tokens - 1)
                                                      : 0.0);
  }
  Labels labels = m.vllm_labels;
  labels["finished_reason"] = std::string(choice.reason);
  m.success->Add(labels).Increment();
}

void ServerMetrics::prompt_finished(int num_choices, int longest) {
  if (!impl_->vllm) return;
  impl_->choices->Observe(num_choices);
  impl_->longest->Observe(longest);
}

std::string ServerMetrics::text(const EngineStats* stats,
                                std::span<const ServerFigure> more) const {
  std::vector<prometheus::MetricFamily> families = impl_->registry.Collect();
  if (stats) {
    if (impl_->sglang) add_sglang_metrics(impl_->sglang_labels, *stats, families);
    if (impl_->vllm) add_vllm_metrics(impl_->vllm_labels, *stats, families);
    add_own_metrics({{"model_name", impl_->vllm_labels.at("model_name")}}, *stats, families);
  }
  for (const ServerFigure& figure : more) add_figure(figure, families);
  add_process_metrics(families);
  return with_decimal_bounds(prometheus::TextSerializer().Serialize(families));
}

}  // namespace sluice
