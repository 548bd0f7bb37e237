#include "distributed/nccl.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <future>
#include <memory>

#include "base/error.h"
#include "tensor/buffer.h"
#include "tensor/device.h"
#include "tensor/format.h"

namespace sluice {
namespace {

// The application binary interface of NCCL 2, as its nccl.h has it.
struct UniqueId {
  char bytes[128];
};
enum Type : int { kUint8 = 1, kFloat32 = 7, kBfloat16 = 9 };
constexpr int kSum = 0;
// Rows that are gathered in one launch.
constexpr std::int64_t kRowsAtOnce = 256;
// How often waits look for a failure of the ranks.
constexpr std::chrono::milliseconds kLook{50};

}  // namespace

struct NcclCalls {
  int (*get_unique_id)(UniqueId*);
  int (*init_rank)(void** handle, int size, UniqueId, int rank);
  int (*abort)(void* handle);
  int (*all_reduce)(const void*, void*, std::size_t count, int type, int op, void* handle,
                    void* stream);
  int (*reduce_scatter)(const void*, void*, std::size_t count, int type, int op, void* handle,
                        void* stream);
  int (*all_gather)(const void*, void*, std::size_t count, int type, void* handle, void* stream);
  int (*broadcast)(const void*, void*, std::size_t count, int type, int root, void* handle,
                   void* stream);
  int (*group_start)();
  int (*group_end)();
  const char* (*error_text)(int);

  void expect(int result, const char* what) const {
    if (result != 0) fail(ErrorKind::kFatal, "NCCL cannot {}: {}", what, error_text(result));
  }
};

namespace {

template <class F>
void find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (function == nullptr)
    fail(ErrorKind::kNoDevice, "libnccl.so.2 has no {}: another version is installed", name);
}

NcclCalls open_library() {
  // Read when the library makes its first communicator. The ranks of a host meet over the loopback.
  setenv("NCCL_NVLS_ENABLE", "0", 0);
  setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    fail(ErrorKind::kNoDevice,
         "several GPUs need libnccl.so.2, which is not found ({}); install NCCL 2, or add its "
         "folder to LD_LIBRARY_PATH",
         dlerror());
  NcclCalls calls{};
  find(library, "ncclGetUniqueId", calls.get_unique_id);
  find(library, "ncclCommInitRank", calls.init_rank);
  find(library, "ncclCommAbort", calls.abort);
  find(library, "ncclAllReduce", calls.all_reduce);
  find(library, "ncclReduceScatter", calls.reduce_scatter);
  find(library, "ncclAllGather", calls.all_gather);
  find(library, "ncclBroadcast", calls.broadcast);
  find(library, "ncclGroupStart", calls.group_start);
  find(library, "ncclGroupEnd", calls.group_end);
  find(library, "ncclGetErrorString", calls.error_text);
  return calls;
}

const NcclCalls& nccl() {
  static const NcclCalls calls = open_library();
  return calls;
}

// NCCL takes memory of the GPU at its first collectives, before which no memory plan may be made.
int run_first_collectives(const NcclCalls& calls, void* handle, int size, Device device) {
  const Stream stream(device);
  const Buffer sum(sizeof(float), device), parts(size, device), all(size * 4, device);
  const void* own = sum.data();
  int result = calls.all_reduce(own, sum.data(), 1, kFloat32, kSum, handle, stream.handle());
  if (result == 0)
    result =
        calls.reduce_scatter(all.data(), sum.data(), 1, kFloat32, kSum, handle, stream.handle());
  if (result == 0) result = calls.all_gather(own, parts.data(), 1, kUint8, handle, stream.handle());
  if (result == 0)
    result = calls.broadcast(own, sum.data(), sizeof(float), kUint8, 0, handle, stream.handle());
  stream.synchronize();
  return result;
}

bool is_host(const Tensor& x) {
  return x.device.kind == DeviceKind::kCpu;
}

}  // namespace

NcclCommunicator::NcclCommunicator(SharedMemoryCommunicator& host, Device device)
    : host_(host), calls_(nccl()) {
  join(device);
  watcher_ = std::thread([this] { watch(); });
}

NcclCommunicator::~NcclCommunicator() {
  stopping_ = true;
  watcher_.join();
  if (!abandoned_) calls_.abort(handle_);  // waits for no rank that has ended
}

// The library waits for all ranks, whatever becomes of them, so a thread of its own waits with it.
// Where a rank fails that thread is left behind, and with it what it uses: the process is ending.
void NcclCommunicator::join(Device device) {
  struct Joining {
    UniqueId id{};
    void* handle = nullptr;
    int result = 0;
    std::promise<void> done;
  };
  auto joining = std::make_shared<Joining>();
  if (rank() == 0) calls_.expect(calls_.get_unique_id(&joining->id), "name a group of ranks");
  host_.broadcast(Tensor::dense(joining->id.bytes, DType::kU8, {sizeof joining->id.bytes}), 0);
  std::future<void> done = joining->done.get_future();
  std::thread([joining, device, size = size(), rank = rank(), &calls = calls_] {
    try {
      make_current(device);
      joining->result = calls.init_rank(&joining->handle, size, joining->id, rank);
      if (joining->result == 0)
        joining->result = run_first_collectives(calls, joining->handle, size, device);
      joining->done.set_value();
    } catch (...) {
      joining->done.set_exception(std::current_exception());
    }
  }).detach();
  while (done.wait_for(kLook) != std::future_status::ready) host_.check_ranks();
  done.get();
  calls_.expect(joining->result, "join the ranks of the GPUs");
  handle_ = joining->handle;
}

void NcclCommunicator::watch() {
  while (!stopping_) {
    std::this_thread::sleep_for(kLook);
    if (!host_.has_failed()) continue;
    abandoned_ = true;
    calls_.abort(handle_);
    return;
  }
}

void* NcclCommunicator::stream() const {
  check(stream_ != nullptr, "a collective of a GPU without a stream");
  return stream_->handle();
}

void NcclCommunicator::all_reduce(const Tensor& x) {
  if (is_host(x)) return host_.all_reduce(x);
  check(x.dense() && (x.dtype == DType::kF32 || x.dtype == DType::kBF16), "all_reduce of {}", x);
  if (x.numel() == 0) return;
  calls_.expect(
      calls_.all_reduce(x.data, x.data, static_cast<std::size_t>(x.numel()),
                        x.dtype == DType::kF32 ? kFloat32 : kBfloat16, kSum, handle_, stream()),
      "sum over the ranks");
}

void NcclCommunicator::reduce_scatter(const Tensor& x, std::span<const RowPart> parts) {
  if (is_host(x)) return host_.reduce_scatter(x, parts);
  check(std::ssize(parts) == size() && x.dense(), "reduce_scatter of {} in {} parts", x,
        parts.size());
  const RowPart& own = parts[static_cast<std::size_t>(rank())];
  bool is_dealt = x.dtype == DType::kF32 && x.dim(0) == size() * own.count;
  for (int other = 0; other < size(); ++other) {
    const RowPart& part = parts[static_cast<std::size_t>(other)];
    is_dealt = is_dealt && part.count == own.count && part.first == other * own.count;
  }
  if (!is_dealt) return all_reduce(x);
  if (x.numel() == 0) return;
  const Tensor place = x.rows(own.first, own.count);
  calls_.expect(calls_.reduce_scatter(x.data, place.data, static_cast<std::size_t>(place.numel()),
                                      kFloat32, kSum, handle_, stream()),
                "deal the sum over the ranks");
}

void NcclCommunicator::all_gather(const Tensor& x, const Tensor& out) {
  if (is_host(x)) return host_.all_gather(x, out);
  check(x.dense() && x.dtype == out.dtype && out.numel() == x.numel() * size(),
        "all_gather of {} into {}", x, out);
  if (x.numel() == 0) return;
  const auto gather = [&](const Tensor& part, void* place) {
    calls_.expect(calls_.all_gather(part.data, place, static_cast<std::size_t>(part.bytes()),
                                    kUint8, handle_, stream()),
                  "gather over the ranks");
  };
  if (out.dense()) return gather(x, out.data);
  check(x.rank == 2 && out.rank == 3 && out.stride[0] == x.dim(1) && out.stride[2] == 1,
        "all_gather of {} into {} with gaps", x, out);
  const Tensor rows = out.at(0);  // where the first rank's rows begin, those of others follow
  for (std::int64_t first = 0; first < x.dim(0); first += kRowsAtOnce) {
    calls_.expect(calls_.group_start(), "begin a group");
    for (std::int64_t row = first; row < std::min(x.dim(0), first + kRowsAtOnce); ++row)
      gather(x.at(row), rows.at(row).data);
    calls_.expect(calls_.group_end(), "gather rows over the ranks");
  }
}

void NcclCommunicator::broadcast(const Tensor& x, int root) {
  if (is_host(x)) return host_.broadcast(x, root);
  check(x.dense(), "broadcast of {}", x);
  if (x.numel() == 0) return;
  calls_.expect(calls_.broadcast(x.data, x.data, static_cast<std::size_t>(x.bytes()), kUint8, root,
                                 handle_, stream()),
                "broadcast to the ranks");
}

}  // namespace sluice
