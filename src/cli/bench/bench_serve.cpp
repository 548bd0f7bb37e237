// `sluice bench serve`: loads a server and measures its answers, with the flags, table and file of
// sglang.bench_serving.
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "cli/bench/bench_dataset.h"
#include "cli/bench/load_run.h"
#include "cli/chat/prompt.h"
#include "cli/files.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "engine/options_parse.h"

namespace sluice {
namespace {

constexpr std::int64_t kMaxTokens = 1 << 24;

// Values of a flag that may be given several times.
std::vector<std::string> all_values(const Arguments& a, const std::string& name) {
  const auto it = a.values.find(name);
  return it == a.values.end() ? std::vector<std::string>() : it->second;
}

std::optional<int> optional_int(const Arguments& a, const std::string& name, std::int64_t low,
                                std::int64_t high) {
  if (!a.has(name)) return std::nullopt;
  return static_cast<int>(a.get_int(name, low, low, high));
}

DatasetSettings dataset_settings(const Arguments& a) {
  const auto tokens = [&](const char* name, int otherwise) {
    return static_cast<int>(a.get_int(name, otherwise, 1, kMaxTokens));
  };
  DatasetSettings s;
  s.name = a.get("dataset-name", s.name);
  s.path = a.get("dataset-path");
  s.num_prompts = static_cast<int>(a.get_int("num-prompts", s.num_prompts, 1, 10'000'000));
  s.input_len = tokens("random-input-len", s.input_len);
  s.output_len = tokens("random-output-len", s.output_len);
  s.range_ratio = a.get_number("random-range-ratio", 0, 0, 1);
  s.sharegpt_output_len = optional_int(a, "sharegpt-output-len", 4, kMaxTokens);
  s.sharegpt_context_len = optional_int(a, "sharegpt-context-len", 1, kMaxTokens);
  s.num_groups = static_cast<int>(a.get_int("gsp-num-groups", s.num_groups, 1, 1'000'000));
  s.prompts_per_group =
      static_cast<int>(a.get_int("gsp-prompts-per-group", s.prompts_per_group, 1, 1'000'000));
  s.system_prompt_len = tokens("gsp-system-prompt-len", s.system_prompt_len);
  s.question_len = tokens("gsp-question-len", s.question_len);
  s.group_output_len = tokens("gsp-output-len", s.group_output_len);
  s.seed =
      static_cast<std::uint64_t>(a.get_int("seed", 1, 0, std::numeric_limits<std::int64_t>::max()));
  return s;
}

std::vector<std::pair<std::string, std::string>> headers_of(const Arguments& a) {
  std::vector<std::pair<std::string, std::string>> headers;
  if (const char* key = std::getenv("OPENAI_API_KEY"); key != nullptr && *key != '\0')
    headers.emplace_back("Authorization", fmt::format("Bearer {}", key));
  for (const std::string& header : all_values(a, "header")) {
    const std::size_t equals = header.find('=');
    if (equals == 0 || equals == std::string::npos ||
        header.find_first_of("\r\n") != std::string::npos)
      throw UsageError(fmt::format("--header: '{}' is no NAME=VALUE", header),
                       "as in --header Authorization='Bearer KEY'");
    headers.emplace_back(header.substr(0, equals), header.substr(equals + 1));
  }
  return headers;
}

double request_rate(const Arguments& a) {
  if (a.get("request-rate", "inf") == "inf") return std::numeric_limits<double>::infinity();
  const double rate = a.get_number("request-rate", 0, 0, 1e9);
  if (rate < 1e-6)  // a request in eleven days; less has no time of arrival
    throw UsageError(fmt::format("--request-rate is {}, which is too low", rate),
                     "allowed: 0.000001 to 1000000000, or inf");
  return rate;
}

Json extra_body(const Arguments& a) {
  if (!a.has("extra-request-body")) return Json::object();
  Json extra = parse_json_or_throw(a.get("extra-request-body"), "--extra-request-body");
  require(extra.is_object(), "--extra-request-body is no JSON object");
  return extra;
}

// A string in the JSON answer of a route; empty where there is none.
std::string asked(HttpClient& client, const LoadPlan& plan, const std::string& target,
                  const std::string& pointer) {
  const HttpClient::Answer answer =
      client.fetch({.method = "GET", .target = target, .body = "", .headers = plan.headers});
  if (answer.status != 200 || !answer.error.empty()) return "";
  const Result<Json> json = parse_json(answer.body);
  const Json::json_pointer at(pointer);
  if (!json.ok() || !json->contains(at)) return "";
  const Json& found = json->at(at);
  return found.is_string() ? found.get<std::string>() : "";
}

// The tokenizer that was named, else that of the model where its directory is here; null where
// there is none.
std::shared_ptr<const Tokenizer> find_tokenizer(const Arguments& a, HttpClient& client,
                                                const LoadPlan& plan) {
  Options options;
  if (a.has("tokenizer")) {
    options.model = a.get("tokenizer");
    return load_text_tools(options).tokenizer;
  }
  for (const std::string& name :
       {a.get("model"), asked(client, plan, "/get_model_info", "/model_path"),
        asked(client, plan, "/get_model_info", "/tokenizer_path"), plan.style.model}) {
    if (name.empty() || !std::filesystem::is_directory(name)) continue;
    options.model = name;
    if (auto tokenizer = load_text_tools(options, true).tokenizer) return tokenizer;
  }
  return nullptr;
}

// Each connection is a file: as many as the system allows.
void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void warm_up(boost::asio::io_context& context, HttpClient& client, const LoadPrompt& first,
             LoadPlan plan, int count) {
  if (count == 0) return;
  LoadPrompt prompt = first;
  prompt.output_len = std::min(prompt.output_len, 32);
  plan.gaps_s.assign(static_cast<std::size_t>(count), 0);
  const LoadResult warm = run_load(
      context, client, std::vector<LoadPrompt>(static_cast<std::size_t>(count), prompt), plan, {});
  for (const RequestRecord& record : warm.records)
    if (record.success) return;
  fail(ErrorKind::kBadInput, "no request of the warm-up succeeded at http://{}:{}{}: {}",
       client.url().host, client.url().port, protocol_path(plan.protocol), warm.records[0].error);
}

// The last line of an earlier --output-file. Python writes infinity in a way that JSON does not
// know.
Json read_old_run(const std::string& path) {
  std::string text = read_text_file(path);
  while (text.ends_with('\n')) text.pop_back();
  const std::size_t newline = text.rfind('\n');
  if (newline != std::string::npos) text.erase(0, newline + 1);
  for (std::size_t at; (at = text.find(": Infinity")) != std::string::npos;)
    text.replace(at, 10, ": \"inf\"");
  return parse_json_or_throw(text, path, {.max_depth = 64, .max_elements = 100'000'000});
}

Json details_of(const DatasetSettings& d, const LoadPlan& plan, const Arguments& a) {
  return {{"model", plan.style.model},
          {"num_prompts", d.num_prompts},
          {"sharegpt_output_len", d.sharegpt_output_len ? Json(*d.sharegpt_output_len) : Json()},
          {"random_input_len", d.input_len},
          {"random_output_len", d.output_len},
          {"random_range_ratio", d.range_ratio},
          {"burstiness", a.get_number("burstiness", 1, 0.01, 1000)},
          {"seed", d.seed}};
}

}  // namespace

int bench_serve(const Arguments& a) {
  const std::string backend_name = a.get("backend", "sluice");
  const LoadBackend& backend = find_backend(backend_name);
  const DatasetSettings dataset = dataset_settings(a);
  LoadSettings settings;
  settings.backend = backend_name;
  settings.dataset_name = dataset.name;
  settings.request_rate = request_rate(a);
  settings.max_concurrency = optional_int(a, "max-concurrency", 1, 100'000);
  for (const std::string& limits : all_values(a, "goodput")) {
    try {
      parse_goodput(limits, settings.goodput);
    } catch (const Error& error) {
      throw UsageError(fmt::format("--goodput: {}", error.message()),
                       "as in --goodput ttft:500 tpot:50");
    }
  }
  const double burstiness = a.get_number("burstiness", 1, 0.01, 1000);
  const int num_warm = static_cast<int>(a.get_int("warmup-requests", 1, 0, 100'000));
  const std::optional<Json> old_run =
      a.has("vs") ? std::optional(read_old_run(a.get("vs"))) : std::nullopt;
  // Opened before anything runs: a folder that is not there must not cost a run. After --vs, which
  // may name the same file.
  std::ofstream output;
  if (a.has("output-file")) output = open_to_append(a.get("output-file"));

  LoadPlan plan;
  plan.protocol = backend.protocol;
  plan.headers = headers_of(a);
  plan.max_concurrency = settings.max_concurrency;
  plan.timeout_s = a.get_number("timeout", plan.timeout_s, 1, 604'800);
  plan.style.stream = !a.has("disable-stream");
  plan.style.ignore_eos = !a.has("disable-ignore-eos");
  plan.style.extra = extra_body(a);

  const std::int64_t port = a.get_int("port", backend.default_port, 1, 65535);
  std::string host = a.get("host", "127.0.0.1");
  if (host.find(':') != std::string::npos && !host.starts_with('['))
    host = fmt::format("[{}]", host);
  boost::asio::io_context context(1);
  HttpClient client(
      context,
      parse_url(a.has("base-url") ? a.get("base-url") : fmt::format("http://{}:{}", host, port)));
  plan.style.model =
      a.has("model") ? a.get("model") : asked(client, plan, "/v1/models", "/data/0/id");
  require(!plan.style.model.empty() || backend.protocol == LoadProtocol::kGenerate,
          "http://{}:{}/v1/models names no model; is the server there? Give --model to do without",
          client.url().host, client.url().port);

  const std::shared_ptr<const Tokenizer> tokenizer = find_tokenizer(a, client, plan);
  plan.style.as_ids =
      backend.protocol != LoadProtocol::kChat &&
      (a.has("tokenize-prompt") || tokenizer == nullptr || dataset.name == "random-ids");
  require(tokenizer != nullptr || backend.protocol != LoadProtocol::kChat,
          "a chat needs text, and there is no tokenizer to make it with; give --tokenizer a "
          "model's directory");
  if (tokenizer == nullptr)
    fmt::print(stderr,
               "no tokenizer of this model is here (--tokenizer): prompts are token ids from 256 "
               "to 999\n");
  const std::vector<LoadPrompt> prompts = make_dataset(dataset, tokenizer.get());
  plan.gaps_s = arrival_gaps(prompts.size(), settings.request_rate, burstiness, dataset.seed);

  raise_file_limit();
  warm_up(context, client, prompts[0], plan, num_warm);
  if (a.has("flush-cache")) {
    const auto answer = client.fetch(
        {.method = "POST", .target = "/flush_cache", .body = "", .headers = plan.headers});
    require(answer.status == 200, "/flush_cache answered {} {}", answer.status, answer.error);
  }
  ProgressBar bar(a.has("disable-tqdm") ? nullptr : stderr, isatty(STDERR_FILENO) != 0);
  const LoadResult result = run_load(context, client, prompts, plan, [&](std::size_t ended) {
    bar.show("requests", static_cast<double>(ended) / static_cast<double>(prompts.size()),
             fmt::format("{} of {}", ended, prompts.size()));
  });
  bar.finish();

  settings.details = details_of(dataset, plan, a);
  const ServingMetrics metrics = summarise(result.records, result.duration_s, settings.goodput);
  Json json = serving_json(metrics, settings);
  if (a.has("json"))
    fmt::print("{}\n", dump_json(json));
  else
    fmt::print("{}", serving_table(metrics, settings));
  if (old_run && !a.has("json")) fmt::print("\n{}", compare_runs(*old_run, json));
  if (a.has("output-file")) {
    if (a.has("output-details")) add_details(json, result.records);
    output << dump_json(json) << '\n';
    output.flush();
    require(output.good(), "cannot write {}", a.get("output-file"));
  }
  for (const RequestRecord& record : result.records) {
    if (record.success) continue;
    fmt::print(stderr, "error: {} of {} requests failed; the first: {}\n", metrics.failed,
               prompts.size(), record.error);
    return 1;
  }
  return 0;
}

}  // namespace sluice
