// ops_oracle: every operation on this machine's GPU against its body on the CPU. Prints a table; exits 1 when a case
// fails, 5 without a GPU. Arguments name families; without any, all run. With -v first each case is named as it ends.
#include <algorithm>
#include <cstdio>
#include <string_view>

#include "base/error.h"
#include "oracle.h"
#include "tensor/device.h"

namespace {

using namespace sluice;

struct Family {
  std::string_view name;
  void (*check)(oracle::Bench&);
};
constexpr Family kFamilies[] = {{"rows", oracle::check_rows},           {"products", oracle::check_products},
                                {"attention", oracle::check_attention}, {"mla", oracle::check_mla},
                                {"experts", oracle::check_experts},     {"index", oracle::check_index},
                                {"recurrent", oracle::check_recurrent}, {"joined", oracle::check_joined}};

int run(int argc, char** argv) {
  const Device device = choose_device("cuda");
  fmt::print("{}\n", describe(device));
  oracle::Bench bench(device);
  bench.verbose = argc > 1 && std::string_view(argv[1]) == "-v";
  if (bench.verbose) --argc, ++argv;
  const auto wanted = [&](std::string_view name) {
    return argc < 2 || std::any_of(argv + 1, argv + argc, [&](const char* word) { return name == word; });
  };
  for (const Family& family : kFamilies) {
    if (!wanted(family.name)) continue;
    fmt::print("{}\n", family.name);
    std::fflush(stdout);
    family.check(bench);
  }
  return bench.report() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return exit_code(error.kind());
  }
}
