// Options of the device, of the process and of its log.
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/options_rows.h"

namespace sluice {
namespace {

using namespace option_rows;
namespace parse = option_parse;
using enum OptionType;
constexpr std::string_view kRuntime = "Runtime";

void set_device(Options& o, std::string_view v) {
  o.device =
      parse::choice(v, {{"auto", "auto"}, {"cpu", "cpu"}, {"cuda", "cuda"}, {"gpu", "cuda"}});
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
Json get_graph_sizes(const Options& o) {
  return fmt::format("{}", fmt::join(o.cuda_graph_bs, ","));
}
void set_numa(Options& o, std::string_view v) {
  o.numa = parse::choice(
      v, {{"distribute", "distribute"}, {"isolate", "isolate"}, {"numactl", "numactl"}});
}
constexpr std::pair<std::string_view, LogLevel> kLevels[] = {{"debug", LogLevel::kDebug},
                                                             {"info", LogLevel::kInfo},
                                                             {"warning", LogLevel::kWarning},
                                                             {"error", LogLevel::kError},
                                                             {"off", LogLevel::kOff}};
void set_log_level_name(Options& o, std::string_view v) {
  const std::string name = parse::choice(v, {{"debug", "debug"},
                                             {"info", "info"},
                                             {"warning", "warning"},
                                             {"warn", "warning"},
                                             {"error", "error"},
                                             {"critical", "error"},
                                             {"off", "off"}});
  o.log_level = std::ranges::find(kLevels, name, [](const auto& row) { return row.first; })->second;
}
void set_log_format_name(Options& o, std::string_view v) {
  o.log_format = parse::choice(v, {{"text", "text"}, {"json", "json"}});
}
// Groups of experts say how many ranks there are where nothing asks for several, in either order.
void set_tp_size(Options& o, std::string_view v) {
  set_int<&Options::tp_size, 1, 64>(o, v);
  if (o.tp_size == 1) o.tp_size = o.ep_size;
}
void set_ep_size(Options& o, std::string_view v) {
  set_int<&Options::ep_size, 1, 64>(o, v);
  if (o.tp_size == 1) o.tp_size = o.ep_size;
}
Json get_log_level(const Options& o) {
  return std::ranges::find(kLevels, o.log_level, [](const auto& row) { return row.second; })->first;
}

}  // namespace

std::vector<OptionRow> runtime_option_rows() {
  return {
      {.name = "device",
       .group = kRuntime,
       .allowed = "auto, cpu, cuda",
       .help = "Where to compute; auto takes a usable GPU, else the CPU.",
       .set = set_device,
       .get = field<&Options::device>},
      {.name = "base-gpu-id",
       .type = kInt,
       .group = kRuntime,
       .allowed = "-1 (the first that can be used) to 1023",
       .help = "Which GPU computes, counted from 0, where --device takes one.",
       .set = set_int<&Options::base_gpu_id, -1, 1023>,
       .get = field<&Options::base_gpu_id>},
      {.name = "tp-size",
       .aliases = "tp tensor-parallel-size",
       .type = kInt,
       .group = kRuntime,
       .allowed = "1 to 64",
       .help = "Processes that share every matrix (docs/ranks.md). Those of a host share "
               "--threads, too.",
       .set = set_tp_size,
       .get = field<&Options::tp_size>},
      {.name = "ep-size",
       .aliases = "ep expert-parallel-size",
       .type = kInt,
       .group = kRuntime,
       .allowed = "1 to 64",
       .help = "Groups of the ranks of --tp-size, each with whole experts of its own in place of a "
               "part of every expert (docs/ranks.md). Alone it starts as many ranks.",
       .set = set_ep_size,
       .get = field<&Options::ep_size>},
      {.name = "enable-expert-parallel",
       .type = kFlag,
       .group = kRuntime,
       .allowed = "true, false",
       .help = "Every rank has whole experts: --ep-size is --tp-size.",
       .set = set_flag<&Options::enable_expert_parallel>,
       .get = field<&Options::enable_expert_parallel>},
      {.name = "dp-size",
       .aliases = "dp data-parallel-size",
       .type = kInt,
       .group = kRuntime,
       .allowed = "1 to 64",
       .help =
           "Groups of the ranks of --tp-size, each with attention, sequences and KV cache of its "
           "own (docs/ranks.md); with --enable-dp-attention. Whole replicas are servers of "
           "their own behind a router (docs/replicas.md).",
       .set = set_int<&Options::dp_size, 1, 64>,
       .get = field<&Options::dp_size>},
      {.name = "enable-dp-attention",
       .type = kFlag,
       .group = kRuntime,
       .allowed = "true, false",
       .help = "Attention is data parallel over --dp-size groups of ranks; all ranks share the "
               "feed-forward layers.",
       .set = set_flag<&Options::enable_dp_attention>,
       .get = field<&Options::enable_dp_attention>},
      {.name = "pp-size",
       .aliases = "pp pipeline-parallel-size",
       .type = kInt,
       .group = kRuntime,
       .allowed = "1 to 64",
       .help = "Stages that share the layers, each with --tp-size processes (docs/ranks.md).",
       .set = set_int<&Options::pp_size, 1, 64>,
       .get = field<&Options::pp_size>},
      {.name = "pp-max-micro-batch-size",
       .type = kInt,
       .group = kRuntime,
       .allowed = "0 (an equal share for each stage) to 65536",
       .help = "Sequences that decode in one step of a pipeline, at most: the others decode in "
               "another step, which the other stages compute meanwhile.",
       .set = set_int<&Options::pp_max_micro_batch_size, 0, 65536>,
       .get = field<&Options::pp_max_micro_batch_size>},
      {.name = "nnodes",
       .type = kInt,
       .group = kRuntime,
       .allowed = "0 (as the launcher says, else 1) to 64",
       .help = "Hosts (nodes) that share the ranks equally, on CPUs; each starts this program with "
               "the same options (docs/ranks.md).",
       .set = set_int<&Options::nnodes, 0, 64>,
       .get = field<&Options::nnodes>},
      {.name = "node-rank",
       .type = kInt,
       .group = kRuntime,
       .allowed = "-1 (as the launcher says, else 0) to 63",
       .help = "Which of --nnodes this host is. Node 0 serves; the others have ranks alone, and "
               "end with it.",
       .set = set_int<&Options::node_rank, -1, 63>,
       .get = field<&Options::node_rank>},
      {.name = "dist-init-addr",
       .aliases = "nccl-init-addr",
       .group = kRuntime,
       .allowed = "HOST:PORT",
       .help = "An address of node 0: it listens there until all nodes have joined.",
       .set = set_text<&Options::dist_init_addr>,
       .get = field<&Options::dist_init_addr>},
      {.name = "dist-key-file",
       .group = kRuntime,
       .allowed = "a file of 32 to 4096 bytes",
       .help = "The secret that all nodes have: by it they know each other, and encrypt. --nnodes "
               "above 1 needs it.",
       .set = set_text<&Options::dist_key_file>,
       .get = field<&Options::dist_key_file>},
      {.name = "dist-timeout",
       .type = kFloat,
       .group = kRuntime,
       .allowed = "0 to 86400",
       .help = "Seconds that nodes have to meet at the start.",
       .set = set_seconds<&Options::dist_timeout_s>,
       .get = field<&Options::dist_timeout_s>},
      {.name = "disable-custom-all-reduce",
       .type = kFlag,
       .group = kRuntime,
       .allowed = "true, false",
       .help = "With several GPUs: NCCL takes all sums over ranks, also the short ones that "
               "kernels of our own take where GPUs reach each other's memory.",
       .set = set_flag<&Options::disable_custom_all_reduce>,
       .get = field<&Options::disable_custom_all_reduce>},
      {.name = "deterministic",
       .aliases = "enable-deterministic-inference",
       .type = kFlag,
       .group = kRuntime,
       .allowed = "true, false",
       .help = "On a GPU: results do not depend on the batch, at the price of speed. On a CPU they "
               "never do.",
       .set = set_flag<&Options::deterministic>,
       .get = field<&Options::deterministic>},
      {.name = "disable-overlap-schedule",
       .aliases = "no-async-scheduling",
       .type = kFlag,
       .group = kRuntime,
       .allowed = "true, false",
       .help = "On a GPU: read the tokens of a step before the next one is launched. On a CPU it "
               "is always so.",
       .set = set_flag<&Options::disable_overlap_schedule>,
       .get = field<&Options::disable_overlap_schedule>},
      {.name = "disable-cuda-graph",
       .aliases = "enforce-eager",
       .type = kFlag,
       .group = kRuntime,
       .allowed = "true, false",
       .help = "On a GPU: give every kernel of a decode step to the device by itself.",
       .set = set_flag<&Options::disable_cuda_graph>,
       .get = field<&Options::disable_cuda_graph>},
      {.name = "lazy-cuda-graphs",
       .type = kFlag,
       .group = kRuntime,
       .allowed = "true, false",
       .help = "Record the graph of a batch size when it is first wanted, not before the server is "
               "ready.",
       .set = set_flag<&Options::lazy_cuda_graphs>,
       .get = field<&Options::lazy_cuda_graphs>},
      {.name = "cuda-graph-bs",
       .aliases = "cudagraph-capture-sizes",
       .group = kRuntime,
       .allowed = "batch sizes of 1 to 65536: 1,2,4",
       .help = "Batch sizes that graphs are recorded for; larger batches run without one.",
       .set = set_graph_sizes,
       .get = get_graph_sizes},
      {.name = "cuda-graph-max-bs",
       .type = kInt,
       .group = kRuntime,
       .allowed = "0 (256) to 65536",
       .help = "Largest batch size that a graph is recorded for, where --cuda-graph-bs names none.",
       .set = set_int<&Options::cuda_graph_max_bs, 0, 65536>,
       .get = field<&Options::cuda_graph_max_bs>},
      {.name = "threads",
       .type = kInt,
       .group = kRuntime,
       .allowed = "0 (all usable) to 1024",
       .help = "Compute threads.",
       .set = set_int<&Options::threads, 0, 1024>,
       .get = field<&Options::threads>},
      {.name = "numa",
       .group = kRuntime,
       .allowed = "distribute, isolate, numactl",
       .help = "On a CPU with several memory nodes: threads and weights are dealt over all of "
               "them, or the program keeps to the node it started on, or numactl and the system "
               "place both, as they do wherever a memory policy was set before.",
       .set = set_numa,
       .get = field<&Options::numa>},
      {.name = "random-seed",
       .aliases = "seed",
       .type = kInt,
       .group = kRuntime,
       .allowed = "-1 (from the clock) to 9223372036854775807",
       .help = "Seed of requests that name none.",
       .set = set_int<&Options::random_seed, -1, kMaxInt64>,
       .get = field<&Options::random_seed>},
      {.name = "watchdog-timeout",
       .type = kFloat,
       .group = kRuntime,
       .allowed = "0 (off) to 86400",
       .help = "Seconds without a finished step, with work queued, after which the program exits.",
       .set = set_seconds<&Options::watchdog_timeout_s>,
       .get = field<&Options::watchdog_timeout_s>},
      {.name = "drain-timeout",
       .type = kFloat,
       .group = kRuntime,
       .allowed = "0 to 86400",
       .help = "Seconds that requests have to finish after SIGTERM.",
       .set = set_seconds<&Options::drain_timeout_s>,
       .get = field<&Options::drain_timeout_s>},
      {.name = "decode-log-interval",
       .type = kInt,
       .group = kRuntime,
       .allowed = "1 to 1000000",
       .help = "Decode steps between log lines.",
       .set = set_int<&Options::decode_log_interval, 1, 1000000>,
       .get = field<&Options::decode_log_interval>},
      {.name = "log-level",
       .group = kRuntime,
       .allowed = "debug, info, warning, error, off",
       .help = "Least important line that is logged.",
       .set = set_log_level_name,
       .get = get_log_level},
      {.name = "log-format",
       .group = kRuntime,
       .allowed = "text, json",
       .help = "Form of log lines; json: an object a line, with fields of requests.",
       .set = set_log_format_name,
       .get = field<&Options::log_format>},
      {.name = "trace",
       .group = kRuntime,
       .allowed = "a file",
       .help = "Writes what each step and request takes, for ui.perfetto.dev or chrome://tracing "
               "(docs/tracing.md).",
       .set = set_text<&Options::trace>,
       .get = field<&Options::trace>},
  };
}

}  // namespace sluice
