// Measured steps of docs/benchmarks, and what the cost model predicts for each: for the tests and
// for the program that finds the constants (bench/cost_fit.cpp).
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/models/mix_choice.h"
#include "cli/verbs.h"
#include "engine/model_choice.h"

namespace sluice {

struct MeasuredStep {
  std::string name;  // "qwen3-8b --tp-size 2, decode, batch 64, 512 tokens"
  const GpuMachine* machine = nullptr;
  ModelConfig config;
  StoredTypes types;
  Mix mix;
  bool is_decode = true;
  bool sums_by_nccl = false;
  int batch = 1;
  int input = 0, output = 0;
  double seconds = 0;

  double predicted(const CostConstants& constants) const {
    CostConstants used = constants;
    if (sums_by_nccl) used.sum_s = used.nccl_s;
    const CostModel model{config, types, *machine, used};
    // The KV in the middle of the output counts, as in `sluice bench latency`.
    return is_decode ? decode_step(model, mix, batch, input + output / 2.0).seconds
                     : prefill(model, mix, batch, input).seconds;
  }
};

// Words of a shell's line, with single quotes.
inline std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> out;
  bool is_quoted = false, is_open = false;
  for (const char c : line) {
    if (c == ' ' && !is_quoted) {
      is_open = false;
      continue;
    }
    if (!is_open) out.emplace_back();
    is_open = true;
    if (c == '\'')
      is_quoted = !is_quoted;
    else
      out.back() += c;
  }
  return out;
}

inline Options options_of(const std::string& model, const std::string& flags) {
  const std::vector<std::string> words = words_of(flags);
  std::vector<const char*> given{model.c_str(), "--load-format", "dummy"};
  for (const std::string& word : words) given.push_back(word.c_str());
  const Verb* plan = find_verb(all_verbs(), std::vector<const char*>{"plan"}).verb;
  return model_options(parse_arguments(*plan, given, false));
}

inline std::vector<MeasuredStep> measured_steps(const std::string& root, const std::string& file) {
  std::ifstream in(root + "/docs/benchmarks/" + file);
  std::stringstream text;
  text << in.rdbuf();
  std::vector<MeasuredStep> out;
  const Json all = parse_json_or_throw(text.str(), file);
  for (const Json& row : all.at("bench")) {
    const std::string flags = row.value("flags", "");
    if (flags.find("--deterministic") != std::string::npos) continue;
    const std::string model = row.at("model").get<std::string>();
    const std::string directory = root + "/bench/configs/" + model;
    Options options = options_of(directory, flags);
    MeasuredStep step;
    step.name = model + (flags.empty() ? "" : " " + flags);
    step.machine = find_gpu_machine(row.value("machine", "H200"));
    step.config = read_model_config(options, directory);
    step.mix = {.tp = options.tp_size,
                .pp = options.pp_size,
                .ep = options.enable_expert_parallel ? options.tp_size : options.ep_size,
                .dp = options.dp_size};
    step.sums_by_nccl = options.disable_custom_all_reduce;
    options.tp_size = options.pp_size = options.ep_size = options.dp_size = 1;
    options.enable_expert_parallel = options.enable_dp_attention = false;
    step.types = stored_types_of(resolve_or_throw(options, step.config, imagined_gpu()),
                                 step.config, directory);
    step.types.expert_bits = row.value("expert_bits", step.types.expert_bits);
    step.batch = row.at("batch_size").get<int>();
    step.input = row.at("input_len").get<int>();
    step.output = row.at("output_len").get<int>();
    for (const char* key : {"median_decode_latency", "prefill_latency"})
      if (row.contains(key)) {
        step.is_decode = std::string_view(key) == "median_decode_latency";
        step.seconds = row.at(key).get<double>();
        out.push_back(step);
      }
  }
  return out;
}

}  // namespace sluice
