// A library for CUDA_INJECTION64_PATH. When the file named by $CUDA_FAULT_FILE appears, a kernel in
// the program's own context writes to an unmapped address, as a fault of the device or of another
// kernel would. tools/gpu_fault.py checks the server's reaction. The build needs no CUDA: the
// library uses the driver functions that the program has loaded.
#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

// CUresult and CUdevice are int, the other handles are pointers (cuda.h).
using Retain = int (*)(void**, int);
using SetCurrent = int (*)(void*);
using LoadModule = int (*)(void**, const void*);
using GetFunction = int (*)(void**, void*, const char*);
using Launch = int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                       void*, void**, void**);
using Synchronize = int (*)();

constexpr char kWriteToNowhere[] = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry write_to_nowhere() {
  .reg .b64 %address;
  .reg .b32 %value;
  mov.u64 %address, 4096;
  mov.u32 %value, 1;
  st.global.u32 [%address], %value;
  ret;
}
)";

template <class Function>
Function driver(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (found == nullptr) std::fprintf(stderr, "cuda_fault: the driver has no %s\n", name);
  return reinterpret_cast<Function>(found);
}

void fault_when(const std::string& path) {
  while (access(path.c_str(), F_OK) != 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return;
  const auto retain = driver<Retain>(library, "cuDevicePrimaryCtxRetain");
  const auto set_current = driver<SetCurrent>(library, "cuCtxSetCurrent");
  const auto load = driver<LoadModule>(library, "cuModuleLoadData");
  const auto function_of = driver<GetFunction>(library, "cuModuleGetFunction");
  const auto launch = driver<Launch>(library, "cuLaunchKernel");
  const auto synchronize = driver<Synchronize>(library, "cuCtxSynchronize");
  if (!retain || !set_current || !load || !function_of || !launch || !synchronize) return;
  void *context = nullptr, *module = nullptr, *kernel = nullptr;
  if (retain(&context, 0) != 0 || set_current(context) != 0 ||
      load(&module, kWriteToNowhere) != 0 ||
      function_of(&kernel, module, "write_to_nowhere") != 0) {
    std::fprintf(stderr, "cuda_fault: the kernel could not be loaded\n");
    return;
  }
  const int launched = launch(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  std::fprintf(stderr, "cuda_fault: launched %d, then %d\n", launched, synchronize());
}

}  // namespace

// The driver calls this during initialisation; CUDA must not be called here.
extern "C" int InitializeInjection() {
  const char* path = std::getenv("CUDA_FAULT_FILE");
  if (path != nullptr) std::thread(fault_when, std::string(path)).detach();
  return 1;
}
