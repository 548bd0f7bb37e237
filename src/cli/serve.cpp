// `sluice serve` and `sluice version`.
#include "server/serve.h"

#include "base/build.h"
#include "base/json.h"
#include "cli/verbs.h"
#include "tensor/context.h"

namespace sluice {

int run_serve(const Arguments& arguments) {
  Options options = arguments.options;
  if (!arguments.positional.empty()) {
    if (arguments.was_given("model-path") && options.model != arguments.positional[0])
      throw UsageError("two models were named", "give the model once, as an argument or as --model");
    options.model = arguments.positional[0];
  }
  Arguments with_model = arguments;
  with_model.options = options;
  require_model(with_model);
  return serve(options);
}

int run_version(const Arguments& arguments) {
  const std::string_view isa = cpu_isa_name(detect_cpu_isa());
  if (arguments.has("json")) {
    const Json json = {{"name", "sluice"},
                       {"version", kVersion},
                       {"cuda", kHasCuda},
                       {"cpu", isa},
                       {"compiler", __VERSION__}};
    fmt::print("{}\n", dump_json(json));
  } else {
    fmt::print("sluice {} ({}, {})\n", kVersion, kHasCuda ? "CPU and CUDA" : "CPU", isa);
  }
  return 0;
}

}  // namespace sluice
