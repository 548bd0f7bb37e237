#include "tensor/cuda_runtime.h"

#include <cuda_runtime_api.h>

#include "base/error.h"

namespace sluice::cuda {
namespace {

void expect_success(cudaError_t status, const std::string& what) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // clears the error, so that the next call does not see a failure that
                             // is not sticky
  fail(status == cudaErrorMemoryAllocation ? ErrorKind::kNoResources : ErrorKind::kFatal,
       "GPU: {}: {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status));
}

cudaStream_t as_stream(void* stream) {
  return static_cast<cudaStream_t>(stream);
}
cudaEvent_t as_event(void* event) {
  return static_cast<cudaEvent_t>(event);
}

}  // namespace

void choose_device(int index) {
  expect_success(cudaSetDevice(index), fmt::format("choosing device {}", index));
}

int device_count(std::string& why) {
  int driver = 0, runtime = 0, count = 0;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return count;
  (void)cudaGetLastError();
  if (driver == 0)
    why = "there is no NVIDIA driver";
  else if (status == cudaErrorInsufficientDriver)
    why = fmt::format("the NVIDIA driver serves CUDA {}.{}, and {}.{} is needed", driver / 1000,
                      driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
  else if (status == cudaErrorNoDevice || status == cudaSuccess)
    why = "the driver shows no device (see CUDA_VISIBLE_DEVICES)";
  else
    why = cudaGetErrorString(status);
  return 0;
}

DeviceInfo device_info(int index) {
  choose_device(index);
  cudaDeviceProp properties{};
  expect_success(cudaGetDeviceProperties(&properties, index), "reading the device's properties");
  DeviceInfo info;
  info.name = properties.name;
  info.sm = properties.major * 10 + properties.minor;
  info.num_sms = properties.multiProcessorCount;
  info.l2_bytes = properties.l2CacheSize;
  std::size_t free_bytes = 0, total_bytes = 0;
  expect_success(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for its free memory");
  info.free_bytes = static_cast<std::int64_t>(free_bytes);
  info.total_bytes = static_cast<std::int64_t>(total_bytes);
  (void)cudaDriverGetVersion(&info.driver);
  return info;
}

void* allocate(std::int64_t bytes, int index) {
  choose_device(index);
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, static_cast<std::size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    std::size_t free_bytes = 0, total_bytes = 0;
    (void)cudaMemGetInfo(&free_bytes, &total_bytes);
    fail(ErrorKind::kNoResources, "{} bytes of GPU memory are wanted and {} of {} are free", bytes,
         free_bytes, total_bytes);
  }
  expect_success(status, fmt::format("taking {} bytes", bytes));
  expect_success(cudaMemset(memory, 0, static_cast<std::size_t>(bytes)), "clearing memory");
  // Other streams do not wait for this one.
  expect_success(cudaStreamSynchronize(nullptr), "clearing memory");
  return memory;
}

void* allocate_pinned(std::int64_t bytes) {
  void* memory = nullptr;
  expect_success(cudaHostAlloc(&memory, static_cast<std::size_t>(bytes), cudaHostAllocDefault),
                 fmt::format("pinning {} bytes of host memory", bytes));
  __builtin_memset(memory, 0, static_cast<std::size_t>(bytes));
  return memory;
}

void release(void* memory) noexcept {
  (void)cudaFree(memory);
}
void release_pinned(void* memory) noexcept {
  (void)cudaFreeHost(memory);
}

void* make_stream(int index) {
  choose_device(index);
  cudaStream_t stream = nullptr;
  // Non-blocking: the stream does not wait for the legacy stream.
  expect_success(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  return stream;
}
void destroy_stream(void* stream) noexcept {
  (void)cudaStreamDestroy(as_stream(stream));
}
void synchronize_stream(void* stream) {
  expect_success(cudaStreamSynchronize(as_stream(stream)), "work on the device failed");
}

void copy_async(void* to, const void* from, std::int64_t bytes, void* stream) {
  expect_success(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault,
                                 as_stream(stream)),
                 fmt::format("copying {} bytes", bytes));
}
void fill_async(void* to, unsigned char value, std::int64_t bytes, void* stream) {
  expect_success(cudaMemsetAsync(to, value, static_cast<std::size_t>(bytes), as_stream(stream)),
                 "filling memory");
}

void* make_event(int index) {
  choose_device(index);
  cudaEvent_t event = nullptr;
  expect_success(cudaEventCreate(&event), "making an event");
  return event;
}
void destroy_event(void* event) noexcept {
  (void)cudaEventDestroy(as_event(event));
}
void record_event(void* event, void* stream) {
  expect_success(cudaEventRecord(as_event(event), as_stream(stream)), "recording an event");
}
void synchronize_event(void* event) {
  expect_success(cudaEventSynchronize(as_event(event)), "work on the device failed");
}
void stream_waits(void* stream, void* event) {
  expect_success(cudaStreamWaitEvent(as_stream(stream), as_event(event), 0),
                 "waiting for an event");
}
float milliseconds_between(void* begin, void* end) {
  float milliseconds = 0;
  expect_success(cudaEventElapsedTime(&milliseconds, as_event(begin), as_event(end)),
                 "reading two events");
  return milliseconds;
}

void begin_capture(void* stream) {
  expect_success(cudaStreamBeginCapture(as_stream(stream), cudaStreamCaptureModeThreadLocal),
                 "beginning a graph");
}

void* end_capture(void* stream) {
  cudaGraph_t recorded = nullptr;
  expect_success(cudaStreamEndCapture(as_stream(stream), &recorded), "ending a graph");
  cudaGraphExec_t graph = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&graph, recorded, 0);
  (void)cudaGraphDestroy(recorded);
  expect_success(status, "making a graph ready");
  return graph;
}

void abandon_capture(void* stream) noexcept {
  cudaGraph_t recorded = nullptr;
  if (cudaStreamEndCapture(as_stream(stream), &recorded) == cudaSuccess)
    (void)cudaGraphDestroy(recorded);
  (void)cudaGetLastError();
}

void launch_graph(void* graph, void* stream) {
  expect_success(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), as_stream(stream)),
                 "launching a graph");
}
void destroy_graph(void* graph) noexcept {
  (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

void check_launch(const char* what) {
  expect_success(cudaGetLastError(), fmt::format("launching {}", what));
}

}  // namespace sluice::cuda
