// ops_oracle: every operation on this machine's GPU against its implementation on the CPU. Prints a
// table. Exits with 1 when a case fails, with 5 without a GPU. Arguments name families; without
// arguments all run. -v names each case as it ends. -s KIB skips cases whose tensors take more than
// KIB, for runs under compute-sanitizer. -p I/N runs part I of N of the cases: N processes with I
// from 1 to N run each case once.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
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
constexpr Family kFamilies[] = {{"rows", oracle::check_rows},
                                {"gemm", oracle::check_gemms},
                                {"fp8", oracle::check_fp8},
                                {"int8", oracle::check_int8},
                                {"int", oracle::check_int_weights},
                                {"expert_fragments", oracle::check_expert_fragments},
                                {"attention", oracle::check_attention},
                                {"mla", oracle::check_mla},
                                {"experts", oracle::check_experts},
                                {"index", oracle::check_index},
                                {"recurrent", oracle::check_recurrent},
                                {"fused", oracle::check_fused},
                                {"sampling", oracle::check_sampled_rows},
                                {"deterministic", oracle::check_deterministic},
                                {"ranks", oracle::check_ranks}};

int run(int argc, char** argv) {
  const Device device = choose_device("cuda");
  fmt::print("{}\n", describe(device));
  oracle::Bench bench(device);
  for (; argc > 1 && argv[1][0] == '-'; --argc, ++argv) {
    const std::string_view flag = argv[1];
    if (flag == "-v") {
      bench.verbose = true;
    } else {
      require((flag == "-s" || flag == "-p") && argc > 2,
              "{} is not known, or lacks its value; -v, -s KIB and -p I/N are known", flag);
      if (flag == "-p") {
        bench.part = oracle::Part::parse(argv[2]);
      } else {
        bench.max_bytes = std::strtoll(argv[2], nullptr, 10) << 10;
        require(bench.max_bytes > 0, "-s {}: a number of KiB above 0 is wanted", argv[2]);
      }
      --argc, ++argv;
    }
  }
  const auto wanted = [&](std::string_view name) {
    return argc < 2 ||
           std::any_of(argv + 1, argv + argc, [&](const char* word) { return name == word; });
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
