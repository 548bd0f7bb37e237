// The table of options.h. One row an option, in the order of --help.
#include <algorithm>
#include <limits>

#include "attention/registry.h"
#include "engine/options.h"
#include "engine/options_parse.h"

namespace sluice {
namespace {

namespace parse = option_parse;
constexpr std::string_view kAttentionNames =
    "auto, native, reference, fa3, flashinfer, flashinfer_mla, dsa";
constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();

template <auto Field>
void set_text(Options& o, std::string_view v) {
  o.*Field = std::string(v);
}
template <auto Field>
void set_flag(Options& o, std::string_view v) {
  o.*Field = parse::boolean(v);
}
template <auto Field>
void set_list(Options& o, std::string_view v) {
  parse::append_list(o.*Field, v);
}
template <auto Field, std::int64_t kLow, std::int64_t kHigh>
void set_int(Options& o, std::string_view v) {
  o.*Field =
      static_cast<std::remove_reference_t<decltype(o.*Field)>>(parse::integer(v, kLow, kHigh));
}
// Seconds, up to a day.
template <auto Field>
void set_seconds(Options& o, std::string_view v) {
  o.*Field = parse::number(v, 0, 86400);
}

void set_load_format(Options& o, std::string_view v) {
  o.load_format = parse::choice(v, {{"auto", "auto"},
                                    {"safetensors", "safetensors"},
                                    {"pt", "pt"},
                                    {"gguf", "gguf"},
                                    {"dummy", "dummy"}});
}
void set_tokenizer_mode(Options& o, std::string_view v) {
  o.tokenizer_mode = parse::choice(
      v, {{"auto", "auto"}, {"hf", "auto"}, {"slow", "slow"}, {"mistral", "mistral"}});
}
void set_dtype(Options& o, std::string_view v) {
  o.dtype = parse::choice(v, {{"auto", "auto"},
                              {"float32", "float32"},
                              {"float", "float32"},
                              {"fp32", "float32"},
                              {"bfloat16", "bfloat16"},
                              {"bf16", "bfloat16"},
                              {"float16", "float16"},
                              {"half", "float16"},
                              {"fp16", "float16"}});
}
void set_quantization(Options& o, std::string_view v) {
  o.quantization =
      parse::choice(v, {{"auto", "auto"}, {"none", "none"}, {"int8", "int8"}, {"int4", "int4"}});
}
void set_quantization_group(Options& o, std::string_view v) {
  o.quantization_group_size = parse::choice(v, {{"32", "32"}, {"128", "128"}}) == "128" ? 128 : 32;
}
void set_kv_cache_dtype(Options& o, std::string_view v) {
  require(!v.starts_with("fp8") && !v.starts_with("fp4") && !v.starts_with("nvfp4") &&
              v != "float16" && v != "half",
          "'{}' is a type of other engines' caches that this one does not have; int8 takes as "
          "little memory as fp8, "
          "bfloat16 as float16",
          v);
  o.kv_cache_dtype = parse::choice(v, {{"auto", "auto"},
                                       {"float32", "float32"},
                                       {"float", "float32"},
                                       {"fp32", "float32"},
                                       {"bfloat16", "bfloat16"},
                                       {"bf16", "bfloat16"},
                                       {"int8", "int8"}});
}
void set_index_cache_dtype(Options& o, std::string_view v) {
  o.index_cache_dtype = parse::choice(v, {{"auto", "auto"},
                                          {"bf16", "bfloat16"},
                                          {"bfloat16", "bfloat16"},
                                          {"fp8", "float8_e4m3fn"},
                                          {"fp8_e4m3", "float8_e4m3fn"},
                                          {"float8_e4m3fn", "float8_e4m3fn"}});
}
void set_sampling_defaults(Options& o, std::string_view v) {
  o.sampling_defaults = parse::choice(
      v, {{"model", "model"}, {"auto", "model"}, {"openai", "openai"}, {"vllm", "openai"}});
}
void set_fraction(Options& o, std::string_view v) {
  o.mem_fraction_static = parse::number(v, 0, 1);
}
void set_window_ratio(Options& o, std::string_view v) {
  o.swa_full_tokens_ratio = parse::number(v, 0, 1);
}
void set_state_ratio(Options& o, std::string_view v) {
  o.mamba_full_memory_ratio = parse::number(v, 0.001, 1000);
}
void set_conservativeness(Options& o, std::string_view v) {
  o.schedule_conservativeness = parse::number(v, 0.01, 100);
}
void set_policy(Options& o, std::string_view v) {
  o.schedule_policy =
      parse::choice(v, {{"fcfs", "fcfs"}, {"lpm", "lpm"}, {"priority", "priority"}});
}
void set_priority(Options& o, std::string_view v) {
  if (parse::boolean(v)) o.schedule_policy = "priority";
}
// Whether it can serve the model is known when that is read.
template <auto Field>
void set_attention_backend(Options& o, std::string_view v) {
  const std::vector<std::string_view> names = attention_backend_names();
  require(v == "auto" || v == "cpu" || std::ranges::find(names, v) != names.end(),
          "'{}' is not known", v);
  o.*Field = v == "cpu" ? "reference" : std::string(v);
}
void set_mla_prefill(Options& o, std::string_view v) {
  o.mla_prefill = parse::choice(v, {{"absorb", "absorb"}, {"auto", "auto"}});
}
void set_device(Options& o, std::string_view v) {
  o.device =
      parse::choice(v, {{"auto", "auto"}, {"cpu", "cpu"}, {"cuda", "cuda"}, {"gpu", "cuda"}});
}
void set_numa(Options& o, std::string_view v) {
  o.numa = parse::choice(
      v, {{"distribute", "distribute"}, {"isolate", "isolate"}, {"numactl", "numactl"}});
}
// "1,2,4" or "1 2 4"; replaces what was given before.
void set_graph_sizes(Options& o, std::string_view v) {
  o.cuda_graph_bs.clear();
  for (std::size_t begin = 0; begin < v.size();) {
    const std::size_t end = std::min(v.find_first_of(", ", begin), v.size());
    if (end > begin)
      o.cuda_graph_bs.push_back(parse::integer(v.substr(begin, end - begin), 1, 65536));
    begin = end + 1;
  }
}
void choose_log_level(Options& o, std::string_view v) {
  constexpr std::pair<std::string_view, LogLevel> kLevels[] = {{"debug", LogLevel::kDebug},
                                                               {"info", LogLevel::kInfo},
                                                               {"warning", LogLevel::kWarning},
                                                               {"error", LogLevel::kError},
                                                               {"off", LogLevel::kOff}};
  const std::string name = parse::choice(v, {{"debug", "debug"},
                                             {"info", "info"},
                                             {"warning", "warning"},
                                             {"warn", "warning"},
                                             {"error", "error"},
                                             {"critical", "error"},
                                             {"off", "off"}});
  o.log_level = std::ranges::find(kLevels, name, [](const auto& row) { return row.first; })->second;
}
void set_reasoning_field(Options& o, std::string_view v) {
  o.reasoning_field = parse::choice(
      v,
      {{"reasoning_content", "reasoning_content"}, {"reasoning", "reasoning"}, {"both", "both"}});
}
void set_metrics_compat(Options& o, std::string_view v) {
  o.metrics_compat = parse::choice(v, {{"sglang,vllm", "sglang,vllm"},
                                       {"vllm,sglang", "sglang,vllm"},
                                       {"sglang", "sglang"},
                                       {"vllm", "vllm"},
                                       {"none", "none"}});
}
void set_model_impl(Options& o, std::string_view v) {
  o.model_impl = parse::choice(v, {{"auto", "auto"},
                                   {"sluice", "sluice"},
                                   {"vllm", "sluice"},
                                   {"sglang", "sluice"},
                                   {"transformers", "transformers"}});
}

using enum OptionType;
using enum OptionEffect;

// Rows that change nothing or are refused have no setter.
OptionRow ignored(std::string_view name, std::string_view aliases, OptionType type,
                  std::string_view default_text, std::string_view why) {
  return {name, aliases, type, kIgnored, "Accepted without effect", default_text, "", why, nullptr};
}
OptionRow refused(std::string_view name, std::string_view aliases, OptionType type,
                  std::string_view default_text, std::string_view why) {
  return {name, aliases, type, kRefused, "Known and refused", default_text, "", why, nullptr};
}

// One row a line, so that rows can be compared.
// clang-format off
std::vector<OptionRow> make_table() {
  const std::string_view kModel = "Model", kMemory = "Memory and scheduling", kRuntime = "Runtime", kServer = "Server",
                         kLimits = "Limits";
  return {
      {"model-path", "model", kString, kActive, kModel, "", "a directory, a .gguf file, or ORG/NAME", "What to serve: a directory, a .gguf file, or a model of the Hugging Face hub, as ORG/NAME (with :TAG for one of several GGUF files, and @REVISION, or not); it is downloaded where the cache has no copy.", set_text<&Options::model>},
      {"tokenizer-path", "tokenizer", kString, kActive, kModel, "", "a directory or a repo id", "Another model's tokenizer; default: the model's own.", set_text<&Options::tokenizer>},
      {"tokenizer-revision", "", kString, kActive, kModel, "", "a branch, tag or commit", "Which revision the tokenizer is taken from; default: that of --revision, or main with --tokenizer.", set_text<&Options::tokenizer_revision>},
      {"tokenizer-mode", "", kString, kActive, kModel, "auto", "auto, slow, mistral", "Which file is read where there are several: auto takes tokenizer.json first, slow the files of the older classes (tokenizer.model, tiktoken, vocab.txt), mistral tekken.json.", set_tokenizer_mode},
      {"revision", "", kString, kActive, kModel, "main", "a branch, tag or commit", "Which revision of a model of the hub.", set_text<&Options::revision>},
      {"load-format", "", kString, kActive, kModel, "auto", "auto, safetensors, pt, gguf, dummy", "Where weights come from: auto takes safetensors, then PyTorch files (pt, read as data), then GGUF; dummy makes seeded random ones from config.json alone.", set_load_format},
      {"download-dir", "", kString, kActive, kModel, "", "a directory", "Cache of the hub's models, read and downloaded to, instead of the one that HF_HUB_CACHE or HF_HOME names.", set_text<&Options::download_dir>},
      {"dtype", "", kString, kActive, kModel, "auto", "auto, float32, bfloat16, float16", "Type of computation; auto is the checkpoint's.", set_dtype},
      {"quantization", "q", kString, kActive, kModel, "auto", "auto, none, int8, int4", "Weights in integers, on a CPU: int8 and int4 quantise any checkpoint while it is loaded; auto leaves blocks of a GGUF file as they are (but widens them with --dtype float32), none widens them.", set_quantization},
      {"quantization-group-size", "", kInt, kActive, kModel, "32", "32, 128", "Weights that share a scale with --quantization int8 and int4.", set_quantization_group},
      {"kv-cache-dtype", "", kString, kActive, kModel, "auto", "auto, float32, bfloat16, int8", "Type of the KV cache: auto is that of the computation; int8 (a scale for each token and head) halves bfloat16's memory, on a CPU and for models with keys of heads.", set_kv_cache_dtype},
      {"index-cache-dtype", "", kString, kActive, kModel, "auto", "auto, bf16, fp8", "Type of the index keys of sparse attention (DeepSeek-V3.2, GLM-5): auto is that of the KV cache; fp8 (e4m3 and a scale for each token) halves bfloat16's memory and what a step reads of it.", set_index_cache_dtype},
      {"context-length", "max-model-len", kInt, kActive, kModel, "0", "0 (from config.json) to 16777216", "Longest sequence, prompt and output together; 32k and 32K are accepted.", set_int<&Options::context_length, 0, 16777216>},
      {"check-weights", "", kFlag, kActive, kModel, "false", "true, false", "Refuse a checkpoint that holds NaN or infinity, naming the tensor, or a PyTorch archive whose checksums are wrong; loading takes longer.", set_flag<&Options::check_weights>},
      {"allow-longer", "", kFlag, kActive, kModel, "false", "true, false", "Let --context-length exceed the model's max_position_embeddings; its answers may get worse there.", set_flag<&Options::allow_longer>},
      {"trust-remote-code", "", kFlag, kActive, kModel, "false", "true, false", "Let the Transformers plugin run code of the model's repository; native models run none.", set_flag<&Options::trust_remote_code>},
      {"rope-by-length", "", kFlag, kActive, kModel, "false", "true, false", "Rotations that depend on length (dynamic NTK, longrope) follow the length that each sequence has reached, as one pass of transformers does, instead of --context-length; results then depend on how a prompt is cut.", set_flag<&Options::rope_by_length>},
      {"json-model-override-args", "hf-overrides", kString, kActive, kModel, "{}", "a JSON object", "Laid over config.json.", set_text<&Options::json_model_override_args>},
      {"served-model-name", "", kList, kActive, kModel, "", "names, comma-separated or repeated", "Names of the model in the API; default: its path.", set_list<&Options::served_model_names>},
      {"chat-template", "hf-chat-template-name", kString, kActive, kModel, "", "a name, a file or a literal template", "One of the model's named chat templates, or another one instead of them.", set_text<&Options::chat_template>},
      {"sampling-defaults", "generation-config", kString, kActive, kModel, "model", "model (auto), openai (vllm)", "Whether generation_config.json gives the defaults of a request.", set_sampling_defaults},
      {"model-impl", "", kString, kActive, kModel, "auto", "auto, sluice, transformers", "Who runs the model: this program, or transformers through its plugin; auto: the plugin where the architecture is not built in.", set_model_impl},

      {"mem-fraction-static", "gpu-memory-utilization", kFloat, kActive, kMemory, "0", "0 (auto) to 1", "Share of memory for weights and KV cache.", set_fraction},
      {"max-total-tokens", "", kInt, kActive, kMemory, "0", "0 (from memory) to 1099511627776", "Tokens in the KV cache.", set_int<&Options::max_total_tokens, 0, std::int64_t{1} << 40>},
      {"swa-full-tokens-ratio", "", kFloat, kActive, kMemory, "0.8", "0 to 1", "KV tokens of layers with a window or chunk, as a part of those of layers that keep every token.", set_window_ratio},
      {"max-mamba-cache-size", "", kInt, kActive, kMemory, "0", "0 (from memory) to 1048576", "States of recurrent layers: one for each running request, the rest for prefixes that are kept.", set_int<&Options::max_mamba_cache_size, 0, std::int64_t{1} << 20>},
      {"mamba-full-memory-ratio", "", kFloat, kActive, kMemory, "0.9", "0.001 to 1000", "Memory of those states, as a part of that of KV tokens.", set_state_ratio},
      {"max-running-requests", "max-num-seqs", kInt, kActive, kMemory, "0", "0 (auto) to 65536", "Sequences in a batch.", set_int<&Options::max_running_requests, 0, 65536>},
      {"max-queued-requests", "", kInt, kActive, kMemory, "2048", "1 to 1000000", "Requests that wait; more get 429.", set_int<&Options::max_queued_requests, 1, 1000000>},
      {"max-queued-tokens", "", kInt, kActive, kMemory, "4000000", "1 to 1099511627776", "Prompt tokens that wait; more get 429.", set_int<&Options::max_queued_tokens, 1, std::int64_t{1} << 40>},
      {"chunked-prefill-size", "max-num-batched-tokens", kInt, kActive, kMemory, "0", "-1 (off), 0 (auto), 1 to 1048576", "Prompt tokens in a step.", set_int<&Options::chunked_prefill_size, -1, 1048576>},
      {"disable-radix-cache", "no-enable-prefix-caching", kFlag, kActive, kMemory, "false", "true, false", "No reuse of the KV of common prefixes.", set_flag<&Options::disable_radix_cache>},
      {"schedule-policy", "scheduling-policy", kString, kActive, kMemory, "fcfs", "fcfs, lpm, priority", "Order of waiting requests: arrival, longest cached prefix, or priority (lower number first).", set_policy},
      {"enable-priority-scheduling", "", kFlag, kActive, kMemory, "false", "true, false", "The same as --schedule-policy priority.", set_priority},
      {"schedule-conservativeness", "", kFloat, kActive, kMemory, "1", "0.01 to 100", "How much of the requested output is reserved at admission.", set_conservativeness},
      {"attention-backend", "", kString, kActive, kMemory, "auto", kAttentionNames, "Whose attention kernels: auto takes Sluice's own, and the start says which and why; names of other engines are served by Sluice's own kernels of that kind, where these know the model.", set_attention_backend<&Options::attention_backend>},
      {"prefill-attention-backend", "", kString, kActive, kMemory, "", kAttentionNames, "The same for steps with prompt tokens.", set_attention_backend<&Options::prefill_attention_backend>},
      {"decode-attention-backend", "", kString, kActive, kMemory, "", kAttentionNames, "The same for steps of generated tokens alone.", set_attention_backend<&Options::decode_attention_backend>},
      {"mla-prefill", "", kString, kActive, kMemory, "absorb", "absorb, auto", "MLA arithmetic: one for every token, or chosen by the shape of the batch.", set_mla_prefill},

      {"device", "", kString, kActive, kRuntime, "auto", "auto, cpu, cuda", "Where to compute; auto takes a usable GPU, else the CPU.", set_device},
      {"deterministic", "enable-deterministic-inference", kFlag, kActive, kRuntime, "false", "true, false", "On a GPU: results do not depend on the batch, at the price of speed. On a CPU they never do.", set_flag<&Options::deterministic>},
      {"disable-overlap-schedule", "no-async-scheduling", kFlag, kActive, kRuntime, "false", "true, false", "On a GPU: read the tokens of a step before the next one is launched. On a CPU it is always so.", set_flag<&Options::disable_overlap_schedule>},
      {"disable-cuda-graph", "enforce-eager", kFlag, kActive, kRuntime, "false", "true, false", "On a GPU: give every kernel of a decode step to the device by itself.", set_flag<&Options::disable_cuda_graph>},
      {"lazy-cuda-graphs", "", kFlag, kActive, kRuntime, "false", "true, false", "Record the graph of a batch size when it is first wanted, not before the server is ready.", set_flag<&Options::lazy_cuda_graphs>},
      {"cuda-graph-bs", "cudagraph-capture-sizes", kString, kActive, kRuntime, "", "batch sizes of 1 to 65536: 1,2,4", "Batch sizes that graphs are recorded for; larger batches run without one.", set_graph_sizes},
      {"cuda-graph-max-bs", "", kInt, kActive, kRuntime, "0", "0 (256) to 65536", "Largest batch size that a graph is recorded for, where --cuda-graph-bs names none.", set_int<&Options::cuda_graph_max_bs, 0, 65536>},
      {"threads", "", kInt, kActive, kRuntime, "0", "0 (all usable) to 1024", "Compute threads.", set_int<&Options::threads, 0, 1024>},
      {"numa", "", kString, kActive, kRuntime, "distribute", "distribute, isolate, numactl", "On a CPU with several memory nodes: threads and weights are dealt over all of them, or the program keeps to the node it started on, or numactl and the system place both, as they do wherever a memory policy was set before.", set_numa},
      {"random-seed", "seed", kInt, kActive, kRuntime, "-1", "-1 (from the clock) to 9223372036854775807", "Seed of requests that name none.", set_int<&Options::random_seed, -1, kMaxInt64>},
      {"watchdog-timeout", "", kFloat, kActive, kRuntime, "300", "0 (off) to 86400", "Seconds without a finished step, with work queued, after which the program exits.", set_seconds<&Options::watchdog_timeout_s>},
      {"drain-timeout", "", kFloat, kActive, kRuntime, "30", "0 to 86400", "Seconds that requests have to finish after SIGTERM.", set_seconds<&Options::drain_timeout_s>},
      {"decode-log-interval", "", kInt, kActive, kRuntime, "40", "1 to 1000000", "Decode steps between log lines.", set_int<&Options::decode_log_interval, 1, 1000000>},
      {"log-level", "", kString, kActive, kRuntime, "info", "debug, info, warning, error, off", "Least important line that is logged.", choose_log_level},
      {"trace", "", kString, kActive, kRuntime, "", "a file", "Writes what each step and request takes, for ui.perfetto.dev or chrome://tracing (docs/tracing.md).", set_text<&Options::trace>},

      {"host", "", kString, kActive, kServer, "127.0.0.1", "an address", "Address to listen on.", set_text<&Options::host>},
      {"port", "", kInt, kActive, kServer, "30000", "0 (any free one) to 65535", "Port to listen on.", set_int<&Options::port, 0, 65535>},
      {"api-key", "", kList, kActive, kServer, "", "keys, comma-separated or repeated", "Keys that clients must send.", set_list<&Options::api_keys>},
      {"admin-api-key", "", kString, kActive, kServer, "", "a key", "Key of the administrative routes.", set_text<&Options::admin_api_key>},
      {"reasoning-parser", "", kString, kActive, kServer, "", "a parser's name, or none", "Splits thinking from the answer; default: detected from the template.", set_text<&Options::reasoning_parser>},
      {"tool-call-parser", "", kString, kActive, kServer, "", "a parser's name, or none", "Format of tool calls; default: detected from the template.", set_text<&Options::tool_call_parser>},
      {"reasoning-field", "", kString, kActive, kServer, "reasoning_content", "reasoning_content, reasoning, both", "Name of the field that holds thinking.", set_reasoning_field},
      {"stream-interval", "", kInt, kActive, kServer, "1", "1 to 1000", "Tokens in an event of a stream.", set_int<&Options::stream_interval, 1, 1000>},
      {"io-threads", "", kInt, kActive, kServer, "1", "1 to 64", "Threads of the HTTP server.", set_int<&Options::io_threads, 1, 64>},
      {"metrics-compat", "", kString, kActive, kServer, "sglang,vllm", "sglang,vllm; sglang; vllm; none", "Whose metric names /metrics shows.", set_metrics_compat},
      {"max-body-bytes", "", kInt, kActive, kLimits, "33554432", "1024 to 4294967296", "Largest request body; larger ones get 413.", set_int<&Options::max_body_bytes, 1024, std::int64_t{1} << 32>},
      {"max-connections", "", kInt, kActive, kLimits, "4096", "1 to 1000000", "Open connections; more are closed at once.", set_int<&Options::max_connections, 1, 1000000>},

      ignored("enable-metrics", "", kFlag, "true", "metrics are always served"),
      ignored("enable-cache-report", "enable-prompt-tokens-details", kFlag, "true", "cached tokens are always reported"),
      ignored("enable-mixed-chunk", "enable-chunked-prefill", kFlag, "true", "prefill chunks and decode rows always share steps"),
      ignored("enable-prefix-caching", "", kFlag, "true", "the prefix cache is on unless --disable-radix-cache is given"),
      ignored("enable-auto-tool-choice", "", kFlag, "true", "tool calls are always parsed when a request has tools"),
      ignored("max-prefill-tokens", "", kInt, "16384", "--chunked-prefill-size bounds the prompt tokens of a step"),
      ignored("sampling-backend", "", kString, "auto", "there is one sampler"),
      ignored("skip-server-warmup", "", kFlag, "false", "the warm-up is one step and always runs"),
      ignored("disable-custom-all-reduce", "", kFlag, "false", "one rank exchanges nothing"),
      ignored("base-gpu-id", "", kInt, "0", "the CPU computes"),
      ignored("gpu-id-step", "", kInt, "1", "the CPU computes"),
      ignored("moe-runner-backend", "", kString, "auto", "there is one expert kernel"),
      ignored("moe-a2a-backend", "", kString, "none", "one rank exchanges nothing"),
      ignored("flashinfer-mla-disable-ragged", "", kFlag, "false", "FlashInfer is not used"),
      ignored("disable-chunked-prefix-cache", "", kFlag, "false", "--mla-prefill chooses the method"),
      ignored("disable-shared-experts-fusion", "", kFlag, "true", "shared experts are computed on their own"),
      ignored("tbo-token-distribution-threshold", "", kFloat, "0.48", "two batches are never overlapped"),

      refused("page-size", "block-size", kInt, "64", "pages hold 64 tokens"),
      refused("radix-eviction-policy", "", kString, "lru", "the least recently used leaf goes first"),
      refused("kv-cache-memory-bytes", "", kInt, "", "give --max-total-tokens instead"),
      refused("num-gpu-blocks-override", "", kInt, "", "give --max-total-tokens instead"),
      refused("default-chat-template-kwargs", "", kString, "{}", "send chat_template_kwargs with the request instead"),
      refused("chat-template-content-format", "", kString, "auto", "the format is detected from the template"),
      refused("config", "", kString, "", "give the options on the command line or as SLUICE_ARG_NAME"),
      refused("allow-auto-truncate", "", kFlag, "false", "a prompt that is too long is an error of its request"),
      refused("uds", "", kString, "", "the server listens on TCP; give --host and --port"),
      refused("ssl-keyfile", "", kString, "", "put a TLS proxy in front of the server"),
      refused("ssl-certfile", "", kString, "", "put a TLS proxy in front of the server"),
      refused("fastapi-root-path", "root-path", kString, "", "let the proxy strip the path"),
      refused("allowed-origins", "", kString, "", "cross-origin requests are not allowed"),
      refused("log-requests", "enable-log-requests", kFlag, "false", "prompts and outputs are never logged"),
      refused("log-requests-level", "", kInt, "", "prompts and outputs are never logged"),
      refused("log-requests-format", "", kString, "text", "prompts and outputs are never logged"),
      refused("log-style", "", kString, "human", "log lines have one wording"),
      refused("log-format", "", kString, "text", "log lines are text"),
      refused("crash-dump-folder", "", kString, "", "requests are never written to disk"),
      refused("enable-trace", "", kFlag, "false", "traces are not exported; --trace FILE writes one"),
      refused("otlp-traces-endpoint", "", kString, "", "traces are not exported; --trace FILE writes one"),
      refused("tp-size", "tp tensor-parallel-size", kInt, "1", "one process computes the model"),
      refused("pp-size", "pp pipeline-parallel-size", kInt, "1", "one process computes the model"),
      refused("dp-size", "dp data-parallel-size", kInt, "1", "run one server a replica behind a gateway"),
      refused("ep-size", "ep", kInt, "1", "one process computes the model"),
      refused("enable-expert-parallel", "", kFlag, "false", "one process computes the model"),
      refused("enable-dp-attention", "", kFlag, "false", "one process computes the model"),
      refused("enable-two-batch-overlap", "", kFlag, "false", "one process computes the model"),
      refused("nnodes", "", kInt, "1", "one process computes the model"),
      refused("node-rank", "", kInt, "0", "one process computes the model"),
      refused("dist-init-addr", "master-addr", kString, "", "one process computes the model"),
      refused("grammar-backend", "", kString, "none", "constrained output is not served by this version"),
      refused("structured-outputs-config", "", kString, "", "constrained output is not served by this version"),
      refused("speculative-algorithm", "", kString, "none", "speculation is not served by this version"),
      refused("speculative-draft-model-path", "", kString, "", "speculation is not served by this version"),
      refused("speculative-num-steps", "", kInt, "", "speculation is not served by this version"),
      refused("speculative-eagle-topk", "", kInt, "", "speculation is not served by this version"),
      refused("speculative-num-draft-tokens", "", kInt, "", "speculation is not served by this version"),
      refused("speculative-config", "", kString, "", "speculation is not served by this version"),
      refused("enable-lora", "", kFlag, "false", "adapters are not served by this version"),
      refused("lora-paths", "lora-modules", kString, "", "adapters are not served by this version"),
      refused("max-loras-per-batch", "max-loras", kInt, "", "adapters are not served by this version"),
      refused("max-lora-rank", "", kInt, "", "adapters are not served by this version"),
      refused("enable-hierarchical-cache", "", kFlag, "false", "the KV cache lives in host memory already"),
      refused("hicache-ratio", "", kFloat, "", "the KV cache lives in host memory already"),
      refused("hicache-size", "kv-offloading-size", kInt, "0", "the KV cache lives in host memory already"),
      refused("cpu-offload-gb", "", kFloat, "0", "weights live in host memory already"),
      refused("disaggregation-mode", "", kString, "null", "one server prefills and decodes"),
      refused("disaggregation-transfer-backend", "", kString, "", "one server prefills and decodes"),
      refused("disaggregation-bootstrap-port", "", kInt, "", "one server prefills and decodes"),
      refused("kv-transfer-config", "", kString, "", "one server prefills and decodes"),
      refused("is-embedding", "", kFlag, "false", "models generate text only"),
      refused("runner", "", kString, "generate", "models generate text only"),
  };
}
// clang-format on

}  // namespace

const std::vector<OptionRow>& option_table() {
  static const std::vector<OptionRow> table = make_table();
  return table;
}

}  // namespace sluice
