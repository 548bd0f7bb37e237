// What tests make serving plans of: models of bench/configs, machines and options.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>

#include "base/testing/source_dir.h"
#include "checkpoint/load_config.h"
#include "engine/serving_plan.h"

namespace sluice::testing {

inline ModelConfig config_of(const std::string& name) {
  return load_model_config(source_dir() + "/bench/configs/" + name);
}
inline Machine cpu() {
  return {.device = {}, .num_threads = 8, .numa_nodes = {{0, {0, 1}}, {1, {2, 3}}}};
}
// Hopper.
inline Machine gpu() {
  Machine machine = cpu();
  machine.device = {.kind = DeviceKind::kCuda, .index = 1};
  machine.sm = 90;
  return machine;
}
inline Options with(std::initializer_list<std::pair<const char*, const char*>> values) {
  Options options;
  for (const auto& [name, value] : values) set_option(options, name, value);
  return options;
}

}  // namespace sluice::testing
