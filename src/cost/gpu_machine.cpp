#include "cost/gpu_machine.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/error.h"
#include "cost/calibration.h"

namespace sluice {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

}  // namespace

std::span<const GpuMachine> gpu_machines() {
  return kGpuMachines;
}

const CostConstants& calibrated_constants() {
  return kCalibratedConstants;
}

const GpuMachine* find_gpu_machine(std::string_view name) {
  const auto found = std::ranges::find_if(kGpuMachines, [&](const GpuMachine& machine) {
    return std::ranges::equal(machine.name, name, {}, lower, lower);
  });
  return found == std::end(kGpuMachines) ? nullptr : found;
}

std::string gpu_machine_names() {
  std::vector<std::string_view> names;
  for (const GpuMachine& machine : kGpuMachines) names.push_back(machine.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

GpuSet parse_gpu_set(std::string_view text) {
  const std::size_t at = text.find_first_of("xX");
  GpuSet out;
  const char* const end = text.data() + std::min(at, text.size());
  const auto [rest, fault] = std::from_chars(text.data(), end, out.count);
  require(at != std::string_view::npos && fault == std::errc{} && rest == end && out.count > 0,
          "--gpus is \"{}\"; give a number of GPUs and their kind, as 8xH200; the kinds are {}",
          text, gpu_machine_names());
  const std::string_view name = text.substr(at + 1);
  out.machine = find_gpu_machine(name);
  require(out.machine != nullptr,
          "--gpus is \"{}\", and nothing was measured or published here about \"{}\"; the kinds "
          "are {}",
          text, name, gpu_machine_names());
  require(out.count <= out.machine->max_gpus,
          "--gpus is \"{}\", and ranks are processes of one host, which has at most {} of these "
          "GPUs; give at most {}x{}, and start a server on each host",
          text, out.machine->max_gpus, out.machine->max_gpus, out.machine->name);
  return out;
}

}  // namespace sluice
