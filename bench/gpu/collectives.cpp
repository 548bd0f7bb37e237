// gpu_collectives: the collectives of the GPUs of one host, each a chain of itself in a graph,
// beside NCCL's. Prints one JSON object per line: microseconds of one, the mean of the fastest of
// several graphs, as rank 0 sees it.
//
//   gpu_collectives [RANKS]     two by default; rank r has GPU r
//
// Bytes of a sum are those of bfloat16 numbers, which is what travels between our kernels; x is
// float32. "nccl_us" sums float32, and "nccl_bf16_us" bfloat16, as vLLM and SGLang ask it to. Rows
// that are gathered are float32, as in the engine: routers read them.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "distributed/nccl.h"
#include "distributed/peer/peer_communicator.h"
#include "distributed/rank_processes.h"
#include "tensor/device.h"

namespace {

using namespace sluice;

class Collectives {
 public:
  Collectives(SharedRegion& region, int rank)
      : device_(choose_device("cuda", rank)),
        stream_(device_),
        host_(region, rank),
        nccl_(host_, device_),
        peers_(host_, nccl_, device_, {.wire = DType::kBF16}) {
    peers_.bind(stream_);
    if (!peers_.refusal().empty()) fail(ErrorKind::kNoDevice, "{}", peers_.refusal());
  }

  void run() {
    for (const std::int64_t kib : {8, 16, 64, 512, 4 << 10, 64 << 10}) sum(kib << 10);
    gather_logits(64, 151936);
    // What a rank's tokens need to get to the experts of all ranks and back.
    for (const std::int64_t tokens : {1, 32, 128, 4096}) exchange(tokens, 7168);
  }

 private:
  Tensor take(DType dtype, std::initializer_list<std::int64_t> shape) {
    const Tensor sized = Tensor::dense(nullptr, dtype, shape);
    buffers_.emplace_back(sized.bytes(), device_);
    return buffers_.back().tensor(dtype, shape);  // zeros
  }

  template <class Work>
  double microseconds(std::int64_t bytes, const Work& work) {
    const int chain = bytes > (8 << 20) ? 8 : 40;
    for (int i = 0; i < 2; ++i) work();
    stream_.synchronize();
    const Graph graph = Graph::capture(stream_, [&] {
      for (int i = 0; i < chain; ++i) work();
    });
    double best = std::numeric_limits<double>::max();
    StreamEvent begin(device_), end(device_);
    for (int run = 0; run < 9; ++run) {
      host_.barrier();
      begin.record(stream_);
      graph.launch(stream_);
      end.record(stream_);
      end.wait();
      best = std::min(best, static_cast<double>(end.milliseconds_since(begin)));
    }
    return best * 1e3 / chain;
  }

  void print(const std::string& what, std::int64_t bytes, double own, double nccl,
             double nccl_bf16 = 0) {
    if (host_.rank() == 0) {
      fmt::print("{{\"collective\": \"{}\", \"bytes\": {}, \"us\": {:.2f}, \"nccl_us\": {:.2f}",
                 what, bytes, own, nccl);
      if (nccl_bf16 > 0) fmt::print(", \"nccl_bf16_us\": {:.2f}", nccl_bf16);
      fmt::print("}}\n");
      std::fflush(stdout);
    }
    buffers_.clear();
  }

  void sum(std::int64_t bytes) {
    const std::int64_t count = bytes / 2;
    const Tensor x = take(DType::kF32, {count}), to = take(DType::kF32, {count}),
                 narrow = take(DType::kBF16, {count});
    const double own = microseconds(bytes, [&] { peers_.all_reduce(x); });
    const double added = microseconds(bytes, [&] {
      if (!peers_.add_sum(x, to)) peers_.all_reduce(x);
    });
    const double nccl = microseconds(bytes, [&] { nccl_.all_reduce(x); });
    const double nccl_bf16 = microseconds(bytes, [&] { nccl_.all_reduce(narrow); });
    print("all_reduce", bytes, own, nccl, nccl_bf16);
    print("all_reduce and residual", bytes, added, nccl, nccl_bf16);
  }

  void gather_logits(std::int64_t rows, std::int64_t vocabulary) {
    const std::int64_t size = host_.size(), columns = vocabulary / size;
    const Tensor x = take(DType::kF32, {rows, columns});
    Tensor out = take(DType::kF32, {size, rows, columns});
    out.stride = {columns, size * columns, 1};
    const double own = microseconds(x.bytes(), [&] { peers_.all_gather(x, out); });
    print("logits", x.bytes(), own, microseconds(x.bytes(), [&] { nccl_.all_gather(x, out); }));
  }

  void exchange(std::int64_t tokens, std::int64_t hidden) {
    const std::int64_t size = host_.size();
    const Tensor own = take(DType::kF32, {tokens, hidden}),
                 all = take(DType::kF32, {size * tokens, hidden}),
                 sums = take(DType::kF32, {size * tokens, hidden});
    std::vector<RowPart> parts;
    for (std::int64_t rank = 0; rank < size; ++rank) parts.push_back({rank * tokens, tokens});
    const auto time = [&](Communicator& communicator) {
      return microseconds(own.bytes(), [&] {
        communicator.all_gather(own, all);
        communicator.reduce_scatter(sums, parts);
      });
    };
    const double kernels = time(peers_);
    print(fmt::format("dispatch and combine, {} tokens", tokens), own.bytes(), kernels,
          time(nccl_));
  }

  Device device_;
  Stream stream_;
  SharedMemoryCommunicator host_;
  NcclCommunicator nccl_;
  PeerCommunicator peers_;
  std::vector<Buffer> buffers_;
};

int run_rank(int rank) {
  SharedRegion region = SharedRegion::attach(kRankRegionFd);
  const RankGuard guard(region, rank);
  Collectives(region, rank).run();
  return 0;
}

void run(int size) {
  RankProcesses ranks(size, run_program({"/proc/self/exe", "rank"}));
  // A rank is told its number.
  for (int rank = 1; rank < size; ++rank)
    (void)ranks.socket(rank).send(static_cast<std::uint32_t>(rank), {});
  Collectives(ranks.region(), 0).run();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc > 1 && std::string_view(argv[1]) == "rank") {
      MessageSocket socket(kRankSocketFd);
      Message message;
      return socket.receive(message) ? run_rank(static_cast<int>(message.kind)) : 0;
    }
    const int size = argc > 1 ? std::atoi(argv[1]) : 2;
    require(size >= 2 && size <= cuda::kMaxPeers, "2 to {} ranks, not {}", cuda::kMaxPeers,
            argc > 1 ? argv[1] : "");
    run(size);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return exit_code(error.kind());
  }
}
