#include "cli/doctor/machine_info.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "base/build.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "models/plugin.h"
#include "runtime/memory_plan.h"
#include "tensor/context.h"
#include "tensor/device.h"
#include "tensor/host_memory.h"

namespace sluice {
namespace {

// The value of the first line "key : value" of a file of /proc; empty when there is none.
std::string line_of(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const std::size_t colon = line.find(':');
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    if (colon != std::string::npos && begin != std::string::npos) return line.substr(begin);
  }
  return "";
}

MachineFact processor(int threads) {
  const std::string model = line_of("/proc/cpuinfo", "model name"),
                    flags = " " + line_of("/proc/cpuinfo", "flags") + " ";
  std::string has;
  for (const std::string_view flag :
       {"avx2", "fma", "f16c", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8"})
    if (flags.find(fmt::format(" {} ", flag)) != std::string::npos) has += fmt::format(" {}", flag);
  const CpuIsa isa = detect_cpu_isa();
  const int usable = usable_threads(threads);
  return {"processor", isa >= CpuIsa::kAvx512Bf16 ? Verdict::kOk : Verdict::kNote,
          fmt::format(
              "{}; {} of {} threads usable; kernels of {}{};{}", model.empty() ? "unknown" : model,
              usable, std::thread::hardware_concurrency(), cpu_isa_name(isa),
              isa >= CpuIsa::kAvx512Bf16 ? "" : " (those of AVX-512 BF16 would be faster)", has)};
}

MachineFact memory() {
  const std::int64_t free = available_host_bytes();
  const std::int64_t total =
      std::strtoll(line_of("/proc/meminfo", "MemTotal").c_str(), nullptr, 10) * 1024;  // "16384 kB"
  return {
      "memory", free > total / 10 ? Verdict::kOk : Verdict::kNote,
      fmt::format("{} of {} available to this process", format_bytes(free), format_bytes(total))};
}

MachineFact huge_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string words;
  std::getline(file, words);
  const std::size_t begin = words.find('['), end = words.find(']');
  const std::string mode = begin == std::string::npos || end == std::string::npos
                               ? ""
                               : words.substr(begin + 1, end - begin - 1);
  if (mode.empty())
    return {"huge pages", Verdict::kNote,
            "the system does not say whether it has transparent ones"};
  if (mode == "never")
    return {"huge pages", Verdict::kNote,
            "off; `echo madvise > /sys/kernel/mm/transparent_hugepage/enabled` (root) makes "
            "weights faster to read"};
  return {"huge pages", Verdict::kOk, fmt::format("transparent ones, {}", mode)};
}

MachineFact gpu(const std::string& device) {
  const Verdict without = device == "cuda" ? Verdict::kBad : Verdict::kNote;
  try {
    const Device chosen = choose_device("cuda");
    const DeviceInfo info = device_info(chosen);
    return {"GPU", Verdict::kOk,
            fmt::format("{}; {} of {} free; the driver serves CUDA {}.{}", describe(chosen),
                        format_bytes(info.free_bytes), format_bytes(info.total_bytes),
                        info.driver / 1000, info.driver % 1000 / 10)};
  } catch (const Error& error) {
    return {"GPU", without, error.message()};
  }
}

struct Library {
  std::string_view name;
  std::array<const char*, 2> files;  // tried in turn
  std::string_view use;
  bool of_gpu;
};
constexpr Library kLibraries[] = {
    {"libcurl", {"libcurl.so.4", nullptr}, "downloads from a hub", false},
    {"cuBLASLt",
     {"libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13"},
     "large products on a GPU",
     true},
    {"NCCL", {"libnccl.so.2", nullptr}, "large sums over several GPUs", true},
};

MachineFact library(const Library& wanted) {
  std::string why;
  for (const char* file : wanted.files) {
    if (file == nullptr) continue;
    // Never closed: some of them leave handlers behind.
    if (::dlopen(file, RTLD_LAZY | RTLD_LOCAL) != nullptr)
      return {std::string(wanted.name), Verdict::kOk, fmt::format("{}, for {}", file, wanted.use)};
    if (why.empty()) why = ::dlerror();
  }
  if (wanted.of_gpu && !kHasCuda) why = "not looked at by this build, which computes on the CPU";
  return {std::string(wanted.name), Verdict::kNote,
          fmt::format("not found ({}); it is for {}", why, wanted.use)};
}

// What a command prints; empty when it fails.
std::string output_of(const char* command) {
  std::string out;
  std::FILE* pipe = ::popen(command, "r");
  if (pipe == nullptr) return out;
  std::array<char, 512> piece;
  while (out.size() < 4096 && std::fgets(piece.data(), piece.size(), pipe) != nullptr)
    out += piece.data();
  if (::pclose(pipe) != 0) out.clear();
  while (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

// Architectures without a class here run through it.
MachineFact python() {
  const std::string plugin = transformers_plugin();
  if (plugin.empty())
    return {
        "transformers", Verdict::kNote,
        "the plugin libsluice_transformers.so is not beside the program; native models need none"};
  const std::string found = output_of(
      "\"${SLUICE_PYTHON:-python3}\" -c 'import sys; from importlib.metadata import version as v; "
      "print(sys.executable + \": torch\", v(\"torch\") + \", transformers\", "
      "v(\"transformers\"))' 2>/dev/null");
  if (found.empty())
    return {"transformers", Verdict::kNote,
            "the Python of SLUICE_PYTHON, or python3, has no torch and transformers; models "
            "without a class here need both "
            "(pip install torch transformers)"};
  return {"transformers", Verdict::kOk, found};
}

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kNote:
      return "note";
    case Verdict::kBad:
      return "BAD";
  }
  return "";
}

std::vector<MachineFact> machine_info(const std::string& device, int threads) {
  std::vector<MachineFact> info = {processor(threads), memory(), huge_pages(), gpu(device)};
  for (const Library& wanted : kLibraries) info.push_back(library(wanted));
  info.push_back(python());
  return info;
}

}  // namespace sluice
