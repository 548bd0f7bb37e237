// Finds the constants of the cost model from measured steps, and prints a table of these.
//
//   cost_fit REPOSITORY                     finds them from steps of one GPU, and of two without
//   experts cost_fit REPOSITORY --keep              shows the constants as they are cost_fit
//   REPOSITORY --without qwen3-8b  leaves steps with that name out, and shows these alone
//
// The sum of the errors' fourth powers (logarithms) is made small, one constant after the
// other, with steps that shrink. A line of output is a step (GPUs, kind, batch, tokens, measured
// and predicted milliseconds, name) or a constant. tools/cost_constants reads them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "cli/models/testing/measured_steps.h"

namespace {

using namespace sluice;

struct Constant {
  const char* name;
  double CostConstants::* value;
  double low, high;
};

constexpr Constant kConstants[] = {
    {"launch_s", &CostConstants::launch_s, 0.5e-6, 8e-6},
    {"stream_share", &CostConstants::stream_share, 0.5, 1},
    {"rows_share", &CostConstants::rows_share, 0.4, 1},
    {"gemm_share", &CostConstants::gemm_share, 0.4, 1},
    {"expert_gemm_share", &CostConstants::expert_gemm_share, 0.05, 1},
    {"prefill_attention_share", &CostConstants::prefill_attention_share, 0.1, 1},
    {"converted_per_s", &CostConstants::converted_per_s, 0.5e12, 10e12},
    {"sum_s", &CostConstants::sum_s, 2e-6, 20e-6},
    {"nccl_s", &CostConstants::nccl_s, 4e-6, 40e-6},
    {"peer_s", &CostConstants::peer_s, 0, 10e-6},
    {"link_share", &CostConstants::link_share, 0.2, 1},
};

double loss(const std::vector<MeasuredStep>& steps, const CostConstants& constants) {
  double sum = 0;
  for (const MeasuredStep& step : steps) {
    // The promise is a bound, so errors near it count most. A row far off does not pull the others
    // along: beyond kFar the fourth power goes on as a line.
    constexpr double kFar = 0.13;
    const double error = std::abs(std::log(step.predicted(constants) / step.seconds));
    sum += error < kFar ? std::pow(error, 4) : std::pow(kFar, 3) * (4 * error - 3 * kFar);
  }
  return sum;
}

CostConstants fit(const std::vector<MeasuredStep>& steps, CostConstants constants) {
  double best = loss(steps, constants);
  for (double width = 0.2; width > 0.001; width /= 1.5)
    for (int round = 0; round < 6; ++round)
      for (const Constant& constant : kConstants)
        for (const double factor : {1 + width, 1 / (1 + width)}) {
          CostConstants other = constants;
          double& value = other.*constant.value;
          value = std::clamp(value * factor, constant.low, constant.high);
          const double found = loss(steps, other);
          if (found < best) {
            best = found;
            constants = other;
          }
        }
  return constants;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view flag = argc > 2 ? argv[2] : "";
  if (argc < 2 || (!flag.empty() && flag != "--keep" && (flag != "--without" || argc < 4))) {
    fmt::print(stderr, "cost_fit REPOSITORY [--keep | --without NAME]\n");
    return 2;
  }
  std::vector<MeasuredStep> steps, left_out;
  for (const char* file : {"h200.json", "gpu_steps.json"})
    for (MeasuredStep& step : measured_steps(argv[1], file)) {
      const bool is_out = flag == "--without" && step.name.find(argv[3]) != std::string::npos;
      (is_out ? left_out : steps).push_back(std::move(step));
    }
  CostConstants constants = calibrated_constants();
  // Prompts of experts on two GPUs, and four GPUs, show what the model says of the unseen.
  std::vector<MeasuredStep> seen;
  std::ranges::copy_if(steps, std::back_inserter(seen), [](const MeasuredStep& step) {
    const int gpus = step.mix.num_gpus();
    return gpus == 1 || (gpus == 2 && (step.is_decode || !step.config.moe));
  });
  if (flag != "--keep") constants = fit(seen, constants);
  for (const MeasuredStep& step : left_out.empty() ? steps : left_out)
    fmt::print("step\t{}\t{}\t{}\t{}\t{:.4f}\t{:.4f}\t{}\n", step.mix.num_gpus(),
               step.is_decode ? "decode" : "prefill", step.batch, step.input, step.seconds * 1e3,
               step.predicted(constants) * 1e3, step.name);
  for (const Constant& constant : kConstants)
    fmt::print("constant\t{}\t{:.4g}\n", constant.name, constants.*constant.value);
  return 0;
}
