// `sluice serve` and `sluice version`.
#include "server/serve.h"

#include "base/build.h"
#include "base/json.h"
#include "cli/download_bars.h"
#include "cli/verbs.h"
#include "models/registry.h"
#include "tensor/context.h"

namespace sluice {

int run_serve(const Arguments& arguments) {
  DownloadBars bars(stderr);
  return serve(model_options(arguments), bars.observer());
}

int run_version(const Arguments& arguments) {
  const std::string_view isa = cpu_isa_name(detect_cpu_isa());
  if (arguments.has("json")) {
    Json architectures = Json::array();
    for (const std::string_view name : model_architectures())
      architectures.push_back({{"name", name}, {"file", model_file(name)}});
    const Json json = {{"name", "sluice"},        {"version", kVersion},
                       {"cuda", kHasCuda},        {"cpu", isa},
                       {"compiler", __VERSION__}, {"architectures", architectures}};
    fmt::print("{}\n", dump_json(json));
  } else {
    fmt::print("sluice {} ({}, {})\n", kVersion, kHasCuda ? "CPU and CUDA" : "CPU", isa);
  }
  return 0;
}

}  // namespace sluice
