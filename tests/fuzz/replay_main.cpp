// Runs a fuzz target without a fuzzer: every seed and every given file, then mutations of them.
//
//   fuzz_NAME [--runs N] [--seconds S] [--seed S] [--max-ms MS] [--write-seeds FOLDER] [FILE or
//             FOLDER]...
//
// Ends after N mutations or S seconds, whichever is first. An input that takes more than MS
// milliseconds (1000) of processor time is a failure, and so is a crash. A failing input is stored
// in ./fuzz-failure-NAME. Prints the number of inputs.
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/testing/processor_time.h"
#include "fuzz_target.h"
#include "mutator.h"

// Makes a report of AddressSanitizer end in the handler below, which stores the input.
extern "C" const char* __asan_default_options() {
  return "abort_on_error=1:handle_abort=0:allocator_may_return_null=0";
}
extern "C" const char* __ubsan_default_options() {
  return "halt_on_error=1:abort_on_error=1:print_stacktrace=1";
}

namespace sluice::fuzz {
namespace {

using Clock = std::chrono::steady_clock;
double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}
constexpr std::size_t kMaxBytes = 64 << 10;

// A global, because the signal handler has no other argument.
std::string_view current_input;
std::string failure_path;

void keep_input(int signal) {
  const int file = ::open(failure_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file >= 0 && ::write(file, current_input.data(), current_input.size()) >= 0) ::close(file);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

std::string read_file(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void add_inputs(const std::filesystem::path& path, std::vector<std::string>& inputs) {
  if (std::filesystem::is_directory(path)) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path))
      if (entry.is_regular_file()) files.push_back(entry.path());
    std::ranges::sort(files);
    for (const auto& file : files) inputs.push_back(read_file(file));
  } else {
    inputs.push_back(read_file(path));
  }
}

struct Options {
  long runs = 0;
  double seconds = 3600;
  double max_ms = 1000;  // processor time per input
  std::uint64_t seed = 1;
  std::string write_seeds;
};

int replay(const Options& options, const std::vector<std::string>& corpus) {
  double slowest = 0;
  const auto timed = [&](std::string_view input) {
    current_input = input;
    const double begin = processor_seconds();
    run_one(input);
    const double seconds = processor_seconds() - begin;
    slowest = std::max(slowest, seconds);
    const double ms = seconds * 1000;
    if (ms > options.max_ms && ms > options.max_ms * processor_slowness()) {
      std::fprintf(stderr, "error: an input of %zu bytes took %.2f s\n", input.size(), seconds);
      std::abort();
    }
  };
  for (const std::string& input : corpus) timed(input);
  Mutator mutator(corpus, options.seed, kMaxBytes);
  const Clock::time_point end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                   std::chrono::duration<double>(options.seconds));
  long runs = 0;
  for (; runs < options.runs && Clock::now() < end; ++runs) timed(mutator.next());
  std::printf("%zu seeds, %ld mutations, slowest %.1f ms\n", corpus.size(), runs, slowest * 1000);
  return 0;
}

int run(int argc, char** argv) {
  Options options;
  std::vector<std::string> corpus = seeds();
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.starts_with("--") && i + 1 >= argc) {
      std::fprintf(stderr, "error: %s needs a value\n", argv[i]);
      return 2;
    }
    if (word == "--runs") {
      options.runs = std::atol(argv[++i]);
    } else if (word == "--seconds") {
      options.seconds = std::atof(argv[++i]);
    } else if (word == "--max-ms") {
      options.max_ms = std::atof(argv[++i]);
    } else if (word == "--seed") {
      options.seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--write-seeds") {
      options.write_seeds = argv[++i];
    } else {
      add_inputs(word, corpus);
    }
  }
  if (!options.write_seeds.empty()) {
    std::filesystem::create_directories(options.write_seeds);
    for (std::size_t i = 0; i < corpus.size(); ++i)
      std::ofstream(options.write_seeds + "/seed-" + std::to_string(i), std::ios::binary)
          << corpus[i];
    return 0;
  }
  failure_path = "fuzz-failure-" + std::filesystem::path(argv[0]).filename().string();
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM})
    std::signal(signal, keep_input);
  return replay(options, corpus);
}

}  // namespace
}  // namespace sluice::fuzz

int main(int argc, char** argv) {
  return sluice::fuzz::run(argc, argv);
}
