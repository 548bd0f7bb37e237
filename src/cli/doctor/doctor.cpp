// `sluice doctor`: whether this machine can serve, and whether its kernels compute what they
// should.
#include <algorithm>
#include <optional>

#include "base/build.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/doctor/kernel_cases.h"
#include "cli/doctor/machine_info.h"
#include "cli/download_bars.h"
#include "cli/verbs.h"
#include "engine/machine.h"
#include "engine/model_choice.h"

namespace sluice {
namespace {

Json json_of(const KernelResult& r) {
  Json json = {{"operation", r.op},
               {"kernels", r.column},
               {"cases", r.cases},
               {"failed", r.failed},
               {"worst_difference", r.worst_difference},
               {"worst_share_of_allowed", r.worst_share}};
  if (r.failed > 0) json["failure"] = r.first_failure;
  return json;
}

void print_machine(const std::vector<MachineFact>& info) {
  fmt::print("machine\n");
  for (const MachineFact& fact : info)
    fmt::print("  {:<5} {:<13} {}\n", verdict_name(fact.verdict), fact.name, fact.text);
}

void print_kernels(const KernelCheck& check, const std::string& shapes) {
  const std::vector<std::string> columns = check.columns();
  fmt::print(
      "\nkernels against plain loops in float64, shapes of {}: the largest difference, and as a "
      "share of what is allowed\n",
      shapes);
  fmt::print("  {:<5} {:<31}{:>6}", "", "operation", "cases");
  for (const std::string& column : columns) fmt::print("{:>22}", column);
  fmt::print("\n");
  std::vector<std::string> ops;
  for (const KernelResult& r : check.results())
    if (std::find(ops.begin(), ops.end(), r.op) == ops.end()) ops.push_back(r.op);
  for (const std::string& op : ops) {
    std::string cells;
    int cases = 0, failed = 0;
    for (const KernelResult& r : check.results()) {
      if (r.op != op) continue;
      cases = r.cases;
      failed += r.failed;
      cells += fmt::format("{:>22}", r.failed > 0 ? fmt::format("{} failed", r.failed)
                                     : r.worst_difference == 0
                                         ? "exact"
                                         : fmt::format("{:.1e} ({:.0f} %)", r.worst_difference,
                                                       100 * r.worst_share));
    }
    fmt::print("  {:<5} {:<31}{:>6}{}\n", failed > 0 ? "BAD" : "ok", op, cases, cells);
  }
  for (const KernelResult& r : check.results())
    if (r.failed > 0) fmt::print("  {} on {}: {}\n", r.op, r.column, r.first_failure);
}

}  // namespace

int run_doctor(const Arguments& arguments) {
  Options options = arguments.options;
  if (!arguments.log_level_was_given()) set_log_level(LogLevel::kWarning);
  const bool as_json = arguments.has("json");
  const bool has_model = !arguments.positional.empty() || !options.model.empty();
  if (has_model) options = model_options(arguments);
  const ModelConfig config =
      has_model ? read_model_config(options, obtain_model(options, false).directory)
                : usual_shapes();
  require(!config.fallback,
          "{} runs through the Transformers plugin, whose kernels are torch's: name another model, "
          "or none",
          config.architecture);

  const std::vector<MachineFact> info = machine_info(options.device, options.threads);
  if (!as_json) print_machine(info);
  int problems = static_cast<int>(std::count_if(
      info.begin(), info.end(), [](const auto& f) { return f.verdict == Verdict::kBad; }));

  std::optional<KernelCheck> check;
  const bool usable = options.device != "cuda" || problems == 0;
  if (usable) {
    check.emplace(serving_device(options), usable_threads(options.threads));
    for (const KernelFamily& family : kernel_families()) family.run(*check, config);
    for (const KernelResult& r : check->results()) problems += r.failed;
    if (!as_json) print_kernels(*check, has_model ? options.model : "a Llama of 2,048 columns");
  }
  if (as_json) {
    Json json = {{"version", kVersion},
                 {"model", has_model ? Json(options.model) : Json(nullptr)},
                 {"problems", problems},
                 {"machine", Json::array()},
                 {"kernels", Json::array()}};
    for (const MachineFact& fact : info)
      json["machine"].push_back(
          {{"name", fact.name}, {"verdict", verdict_name(fact.verdict)}, {"text", fact.text}});
    if (check)
      for (const KernelResult& r : check->results()) json["kernels"].push_back(json_of(r));
    fmt::print("{}\n", dump_json(json));
  } else {
    fmt::print("\n{}\n", problems == 0
                             ? "No problems."
                             : fmt::format("{} problem{}.", problems, problems == 1 ? "" : "s"));
  }
  return problems == 0 ? 0 : 1;
}

}  // namespace sluice
