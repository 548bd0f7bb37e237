// Records the GPU work of a program, for tools/step_gaps.py. CUDA loads this library into any
// program. It writes a line "begin,end,name" (ns) for every kernel, copy and fill, also for those
// of recorded graphs. It brings its own libstdc++: where a program's older one does not fit, CUDA
// leaves the library out and says nothing. "%p" in FILE is the process, for programs that start
// ranks. Needs the toolkit's CUPTI. The compiler call is one line:
//
//   g++ -std=c++20 -O2 -shared -fPIC -static-libstdc++ bench/gpu/timeline.cpp -o libtimeline.so
//       -I $CUDA/include -I $CUDA/extras/CUPTI/include
//       -L $CUDA/lib64 -L $CUDA/extras/CUPTI/lib64 -lcupti
//   CUDA_INJECTION64_PATH=$PWD/libtimeline.so TIMELINE=FILE.csv PROGRAM ...
#include <cupti.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>

#include <unistd.h>

namespace {

constexpr std::size_t kBufferBytes = 8 << 20;
std::FILE* timeline = nullptr;

void give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* max_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *bytes = kBufferBytes;
  *max_records = 0;  // as many as fit
}

template <typename Record>
void write(const CUpti_Activity* record, const char* name) {
  const auto* span = reinterpret_cast<const Record*>(record);
  std::fprintf(timeline, "%llu,%llu,%s\n", static_cast<unsigned long long>(span->start),
               static_cast<unsigned long long>(span->end), name);
}

void take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                 std::size_t valid_bytes) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
      write<CUpti_ActivityKernel9>(record,
                                   reinterpret_cast<const CUpti_ActivityKernel9*>(record)->name);
    else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY)
      write<CUpti_ActivityMemcpy5>(record, "memcpy");
    else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET)
      write<CUpti_ActivityMemset4>(record, "memset");
  }
  std::free(buffer);
}

void finish() {
  cuptiActivityFlushAll(1);
  std::fclose(timeline);
}

}  // namespace

// The symbol that CUDA looks up; 1 reports success.
extern "C" int InitializeInjection() {
  const char* named = std::getenv("TIMELINE");
  std::string path = named ? named : "timeline.csv";
  if (const std::size_t at = path.find("%p"); at != std::string::npos)
    path.replace(at, 2, std::to_string(getpid()));
  timeline = std::fopen(path.c_str(), "w");
  if (!timeline) return 0;
  cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
  for (const CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                        CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET})
    cuptiActivityEnable(kind);
  std::atexit(finish);
  return 1;
}
