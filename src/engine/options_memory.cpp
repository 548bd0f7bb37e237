// Options of memory, of the scheduler and of attention.
#include <algorithm>

#include "attention/registry.h"
#include "engine/options_rows.h"

namespace sluice {
namespace {

using namespace option_rows;
namespace parse = option_parse;
using enum OptionType;
constexpr std::string_view kMemory = "Memory and scheduling";

std::string_view attention_names() {
  static const std::string names =
      fmt::format("auto, {}", fmt::join(served_attention_backend_names(), ", "));
  return names;
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
void set_policy(Options& o, std::string_view v) {
  o.schedule_policy =
      parse::choice(v, {{"fcfs", "fcfs"}, {"lpm", "lpm"}, {"priority", "priority"}});
}
void set_priority(Options& o, std::string_view v) {
  if (parse::boolean(v)) o.schedule_policy = "priority";
}
Json get_priority(const Options& o) {
  return o.schedule_policy == "priority";
}
void set_conservativeness(Options& o, std::string_view v) {
  o.schedule_conservativeness = parse::number(v, 0.01, 100);
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

}  // namespace

std::vector<OptionRow> memory_option_rows() {
  return {
      {.name = "mem-fraction-static",
       .aliases = "gpu-memory-utilization",
       .type = kFloat,
       .group = kMemory,
       .allowed = "0 (auto) to 1",
       .help = "Share of memory for weights and KV cache.",
       .set = set_fraction,
       .get = field<&Options::mem_fraction_static>},
      {.name = "max-total-tokens",
       .type = kInt,
       .group = kMemory,
       .allowed = "0 (from memory) to 1099511627776",
       .help = "Tokens in the KV cache.",
       .set = set_int<&Options::max_total_tokens, 0, std::int64_t{1} << 40>,
       .get = field<&Options::max_total_tokens>},
      {.name = "swa-full-tokens-ratio",
       .type = kFloat,
       .group = kMemory,
       .allowed = "0 to 1",
       .help = "KV tokens of layers with a window or chunk, as a part of those of layers that keep "
               "every token.",
       .set = set_window_ratio,
       .get = field<&Options::swa_full_tokens_ratio>},
      {.name = "max-mamba-cache-size",
       .type = kInt,
       .group = kMemory,
       .allowed = "0 (from memory) to 1048576",
       .help = "States of recurrent layers: one for each running request, the rest for prefixes "
               "that are kept.",
       .set = set_int<&Options::max_mamba_cache_size, 0, std::int64_t{1} << 20>,
       .get = field<&Options::max_mamba_cache_size>},
      {.name = "mamba-full-memory-ratio",
       .type = kFloat,
       .group = kMemory,
       .allowed = "0.001 to 1000",
       .help = "Memory of those states, as a part of that of KV tokens.",
       .set = set_state_ratio,
       .get = field<&Options::mamba_full_memory_ratio>},
      {.name = "max-running-requests",
       .aliases = "max-num-seqs",
       .type = kInt,
       .group = kMemory,
       .allowed = "0 (auto) to 65536",
       .help = "Sequences in a batch.",
       .set = set_int<&Options::max_running_requests, 0, 65536>,
       .get = field<&Options::max_running_requests>},
      {.name = "max-queued-requests",
       .type = kInt,
       .group = kMemory,
       .allowed = "1 to 1000000",
       .help = "Requests that wait; more get 429.",
       .set = set_int<&Options::max_queued_requests, 1, 1000000>,
       .get = field<&Options::max_queued_requests>},
      {.name = "max-queued-tokens",
       .type = kInt,
       .group = kMemory,
       .allowed = "1 to 1099511627776",
       .help = "Prompt tokens that wait; more get 429.",
       .set = set_int<&Options::max_queued_tokens, 1, std::int64_t{1} << 40>,
       .get = field<&Options::max_queued_tokens>},
      {.name = "chunked-prefill-size",
       .aliases = "max-num-batched-tokens",
       .type = kInt,
       .group = kMemory,
       .allowed = "-1 (off), 0 (auto), 1 to 1048576",
       .help = "Prompt tokens in a step.",
       .set = set_int<&Options::chunked_prefill_size, -1, 1048576>,
       .get = field<&Options::chunked_prefill_size>},
      {.name = "max-prefill-tokens",
       .type = kInt,
       .group = kMemory,
       .allowed = "0 (auto) to 1048576",
       .help = "Another bound on the prompt tokens of a step: the smaller of the two counts; where "
               "prompts are not cut it bounds steps with more than one of them, to 16384 by "
               "itself.",
       .set = set_int<&Options::max_prefill_tokens, 0, 1048576>,
       .get = field<&Options::max_prefill_tokens>},
      {.name = "disable-radix-cache",
       .aliases = "no-enable-prefix-caching",
       .type = kFlag,
       .group = kMemory,
       .allowed = "true, false",
       .help = "No reuse of the KV of common prefixes.",
       .set = set_flag<&Options::disable_radix_cache>,
       .get = field<&Options::disable_radix_cache>},
      {.name = "schedule-policy",
       .aliases = "scheduling-policy",
       .group = kMemory,
       .allowed = "fcfs, lpm, priority",
       .help = "Order of waiting requests: arrival, longest cached prefix, or priority (lower "
               "number first).",
       .set = set_policy,
       .get = field<&Options::schedule_policy>},
      {.name = "enable-priority-scheduling",
       .type = kFlag,
       .group = kMemory,
       .allowed = "true, false",
       .help = "The same as --schedule-policy priority.",
       .set = set_priority,
       .get = get_priority},
      {.name = "schedule-conservativeness",
       .type = kFloat,
       .group = kMemory,
       .allowed = "0.01 to 100",
       .help = "How much of the requested output is reserved at admission.",
       .set = set_conservativeness,
       .get = field<&Options::schedule_conservativeness>},
      {.name = "attention-backend",
       .group = kMemory,
       .allowed = attention_names(),
       .help = "Whose attention kernels: auto takes Sluice's own, and the start says which and "
               "why; names of other engines are served by Sluice's own kernels of that kind, where "
               "these know the model.",
       .set = set_attention_backend<&Options::attention_backend>,
       .get = field<&Options::attention_backend>},
      {.name = "prefill-attention-backend",
       .group = kMemory,
       .allowed = attention_names(),
       .help = "The same for steps with prompt tokens.",
       .set = set_attention_backend<&Options::prefill_attention_backend>,
       .get = field<&Options::prefill_attention_backend>},
      {.name = "decode-attention-backend",
       .group = kMemory,
       .allowed = attention_names(),
       .help = "The same for steps of generated tokens alone.",
       .set = set_attention_backend<&Options::decode_attention_backend>,
       .get = field<&Options::decode_attention_backend>},
      {.name = "mla-prefill",
       .group = kMemory,
       .allowed = "absorb, auto",
       .help = "MLA arithmetic: one for every token, or chosen by the shape of the batch.",
       .set = set_mla_prefill,
       .get = field<&Options::mla_prefill>},
  };
}

}  // namespace sluice
