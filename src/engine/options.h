// Every option of the program, once: a field here, a row in the file of its group
// (options_model.cpp, options_memory.cpp, ...) and a line of serving_plan.cpp that gives it effect.
// The command line, the environment (SLUICE_ARG_NAME), --help, the manual, completions,
// /get_server_info and the command of `sluice plan` walk that table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"

namespace sluice {

struct Options {
  // Model
  std::string model;                    // directory or repo id
  std::string tokenizer;                // another model's tokenizer; empty: the model's
  std::string tokenizer_revision;       // empty: the model's, or main for another model's
  std::string tokenizer_mode = "auto";  // auto, slow, mistral
  std::string revision = "main";
  std::string load_format = "auto";  // auto, safetensors, pt, gguf, dummy
  std::string download_dir;    // the cache of the hub's models; empty: as the environment says
  std::string dtype = "auto";  // auto, float32, bfloat16, float16
  std::string quantization = "auto";       // auto, none, int8, int4
  int quantization_group_size = 32;        // 32, 128
  std::string kv_cache_dtype = "auto";     // auto, float32, bfloat16, int8, fp8_e4m3
  std::string index_cache_dtype = "auto";  // auto, bfloat16, float8_e4m3fn
  std::int64_t context_length = 0;         // 0: from config.json
  bool check_weights = false;              // for NaN and infinity, while loading
  bool allow_longer = false;               // than max_position_embeddings
  bool rope_by_length = false;  // rotations follow each sequence's length, not the context's
  std::string json_model_override_args = "{}";
  std::string model_impl = "auto";  // auto, sluice, transformers
  bool trust_remote_code = false;   // inside the Transformers plugin
  std::vector<std::string> served_model_names;
  std::string runner = "auto";              // auto, generate, pooling
  std::string pooling = "auto";             // auto, last, cls, mean, max, mean-sqrt, weighted-mean
  std::string chat_template;                // name, file or literal; empty: the model's
  std::string sampling_defaults = "model";  // model, openai
  // Memory and scheduling
  double mem_fraction_static = 0.0;    // 0: auto
  std::int64_t max_total_tokens = 0;   // 0: from memory
  double swa_full_tokens_ratio = 0.8;  // pages of windows as a part of those that keep every token
  std::int64_t max_mamba_cache_size = 0;  // states of recurrent layers; 0: from memory
  double mamba_full_memory_ratio = 0.9;   // memory of states as a part of that of pages
  int max_running_requests = 0;           // 0: auto
  int max_queued_requests = 2048;
  std::int64_t max_queued_tokens = 4'000'000;
  int chunked_prefill_size = 0;  // 0: auto; -1: off
  int max_prefill_tokens = 0;    // 0: auto
  bool disable_radix_cache = false;
  std::string schedule_policy = "fcfs";  // fcfs, lpm, priority
  double schedule_conservativeness = 1.0;
  std::string attention_backend = "auto";  // a row of attention/registry.cpp
  std::string prefill_attention_backend;   // of batches with prefill; empty: attention_backend
  std::string decode_attention_backend;    // of batches of decode rows; empty: attention_backend
  std::string mla_prefill = "absorb";      // absorb, auto
  // Speculation (docs/speculation.md)
  std::string speculative_algorithm = "NONE";  // a row of speculative/drafter_table.cpp
  int speculative_num_draft_tokens = 0;        // rows of a verification; 0: by the method
  int speculative_num_steps = 0;               // depth of drafts; 0: by the method
  int speculative_eagle_topk = 1;              // drafts behind a token; 1: chains
  int speculative_ngram_min_match = 3;
  int speculative_ngram_max_match = 12;
  std::string speculative_config;            // vLLM's JSON, instead of the others; empty: none
  std::string speculative_draft_model_path;  // directory or repo id of a draft model; empty: none
  bool speculative_adaptive = true;          // the number of drafts follows what they bring
  bool draft_forced_tokens = false;          // those that a grammar forces; needs no draft model
  // no options, for tests: drafts are computed as a GPU does; and for `bench latency`: the chance
  // that the draft at each place counts as right, and the tokens of a sequence by position,
  // whatever the model says
  bool drafts_as_rows = false;
  std::vector<double> synthetic_acceptance;
  std::vector<std::int32_t> replayed_tokens;
  // Runtime
  std::string device = "auto";          // auto, cpu, cuda
  int base_gpu_id = -1;                 // of the GPU that computes; -1: the first that can be used
  int tp_size = 1;                      // ranks that share the matrices (docs/ranks.md)
  int ep_size = 1;                      // groups of ranks, each with whole experts
  bool enable_expert_parallel = false;  // every rank has whole experts
  int ep_num_redundant_experts = 0;     // places of a layer's experts beyond one each
  std::string init_expert_location = "trivial";  // or a JSON file, or JSON
  bool enable_eplb = false;                      // experts move between ranks after their load
  int eplb_rebalance_num_iterations = 1000;      // steps
  int eplb_rebalance_layers_per_chunk = 0;       // 0: one
  double eplb_min_rebalancing_utilization_threshold = 1;
  bool enable_expert_distribution_metrics = false;
  std::string elastic_ep_backend = "none";  // else the server outlives ranks (docs/ranks.md)
  int pp_size = 1;                          // stages that share the layers; each has tp_size ranks
  int pp_max_micro_batch_size = 0;          // decode rows of a step of stages; 0: an equal share
  int dp_size = 1;                          // groups of the ranks, each with attention of its own
  bool enable_dp_attention = false;         // what dp_size above 1 needs
  int num_ranks() const { return tp_size * pp_size; }
  // Several hosts (docs/ranks.md). The program fills what is not given from its launcher.
  int nnodes = 0;              // hosts that share the ranks equally; 0: one
  int node_rank = -1;          // of this host; -1: node 0, which serves
  std::string dist_init_addr;  // HOST:PORT where node 0 meets the others
  std::string dist_key_file;   // the key that all nodes have
  double dist_timeout_s = 60;  // for the nodes to meet
  int num_nodes() const { return nnodes > 1 ? nnodes : 1; }
  int node() const { return node_rank > 0 ? node_rank : 0; }
  int ranks_of_node() const { return num_ranks() / num_nodes(); }
  bool disable_custom_all_reduce = false;  // NCCL takes all sums of GPUs
  bool deterministic = false;              // on a GPU; on a CPU results never depend on the batch
  bool disable_overlap_schedule =
      false;                // on a GPU: the next step is not launched before this one is read
  int steps_in_flight = 0;  // 0: 1 on a CPU or without overlap, else 2; no option, for tests
  bool disable_cuda_graph = false;
  bool lazy_cuda_graphs = false;
  std::vector<std::int64_t> cuda_graph_bs;  // empty: chosen from cuda_graph_max_bs
  std::int64_t cuda_graph_max_bs = 0;       // 0: 256
  int threads = 0;                          // 0: all usable
  std::string numa = "distribute";          // distribute, isolate, numactl
  std::int64_t random_seed = -1;            // -1: from the clock
  double watchdog_timeout_s = 300;
  double drain_timeout_s = 30;
  int decode_log_interval = 40;
  LogLevel log_level = LogLevel::kInfo;
  std::string log_format = "text";  // text, json
  std::string trace;                // a file for the timeline of steps and requests; empty: none
  // Server
  std::string host = "127.0.0.1";
  int port = 30000;
  std::vector<std::string> api_keys;
  std::string api_key_file;  // keys with names, roles and limits (server/access/key_file.h)
  std::string admin_api_key;
  std::string admin_socket;          // of the administrative routes; empty: they are on the port
  std::string reasoning_parser;      // empty: detected; "none": off
  std::string tool_call_parser;      // empty: detected; "none": off
  bool constrain_tool_calls = true;  // where tool_choice is auto
  std::string reasoning_field = "reasoning_content";  // reasoning_content, reasoning, both
  int stream_interval = 1;
  int io_threads = 1;
  std::string metrics_compat = "sglang,vllm";
  bool metrics_open = false;         // /metrics needs no key
  std::string otlp_traces_endpoint;  // a collector of OpenTelemetry; empty: none
  // TLS (docs/tls.md); without a certificate the port speaks plain HTTP
  std::string ssl_certfile;          // PEM: the server's certificate and those that signed it
  std::string ssl_keyfile;           // PEM; empty: the key is in ssl_certfile
  std::string ssl_keyfile_password;  // of an encrypted key
  std::string ssl_ca_certs;          // PEM: who signs clients' certificates
  int ssl_cert_reqs = 0;             // of clients: 0 none, 1 optional, 2 required
  bool enable_ssl_refresh = false;   // files that change are read again
  // What clients may ask for again (storage/response_store.h)
  std::string response_store;                   // a file; empty: memory
  std::int64_t response_store_max_bytes = 0;    // 0: auto
  std::int64_t response_store_max_entries = 0;  // 0: auto
  // Cross-origin requests (server/core/cors.h)
  std::vector<std::string> allowed_origins = {"localhost"};
  std::vector<std::string> allowed_methods = {"*"};
  std::vector<std::string> allowed_headers = {"*"};
  bool allow_credentials = false;
  bool no_webui = false;               // the page at /
  std::string page_store = "browser";  // browser, or a file for its chats
  // Limits of the server (docs/rules.md)
  std::int64_t max_body_bytes = 32 << 20;
  int max_connections = 4096;
  // no option: names of the rows that set_option() has set, whatever the values
  std::vector<std::string_view> names_given;
};

enum class OptionType : std::uint8_t { kFlag, kInt, kFloat, kString, kList };

// What becomes of an option: most have an effect; some are known from other engines and refused
// with a reason, some are accepted and change nothing here, and say so once.
enum class OptionEffect : std::uint8_t { kActive, kIgnored, kRefused };

struct OptionRow {
  std::string_view name;          // with dashes; `_` is read as one
  std::string_view aliases = {};  // space-separated: "max-model-len"
  OptionType type = OptionType::kString;
  OptionEffect effect = OptionEffect::kActive;
  std::string_view group = {};
  std::string default_text = {};  // of an active row option_table() takes it from the field
  // "1 to 16777216", "auto, float32, ...". Of an ignored row: the values that mean what happens
  // here anyway, others are refused; empty: any.
  std::string_view allowed = {};
  std::string_view help = {};  // or, for kIgnored and kRefused, why
  bool secret = false;         // the value is shown nowhere
  // Sets the field from text; throws Error{kBadInput} that names the value and what is allowed.
  // Null unless kActive.
  void (*set)(Options& options, std::string_view value) = nullptr;
  // The field's value, in the type that /get_server_info shows. Null unless kActive.
  Json (*get)(const Options& options) = nullptr;
};

// An option that is not at its default, and its value as the command line takes it.
struct GivenOption {
  const OptionRow* row = nullptr;
  std::string text;
};

const std::vector<OptionRow>& option_table();
// The row of a name or alias (`-` and `_` are equal); null when unknown.
const OptionRow* find_option(std::string_view name);
// The nearest known name for a misspelt one; empty when nothing is near.
std::string nearest_option(std::string_view name);
// Sets one option by name, as a command line would; throws Error{kBadInput}. Notes an ignored
// option in the log.
void set_option(Options& options, std::string_view name, std::string_view value);
// The seed of requests that name none; nothing: from the clock.
std::optional<std::uint64_t> fixed_seed(const Options& options);
// The value of an active row as set_option() reads it.
std::string option_text(const OptionRow& row, const Options& options);
// Every active option but secrets: {"port": 30000, ...}.
Json option_values(const Options& options);
// Those that a command line must give to get these options, secrets left out; in the table's order.
std::vector<GivenOption> given_options(const Options& options);
// Whether set_option() has set an active option, its default included, or the option is not at its
// default. `name`: of a row.
bool was_given(const Options& options, std::string_view name);
// Reads SLUICE_ARG_<NAME> for every row (dashes become underscores).
void apply_environment(Options& options);

}  // namespace sluice
