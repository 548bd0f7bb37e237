// Collectives of the ranks of one host with a GPU each, by NCCL over the memory of the GPUs.
//
//   SharedMemoryCommunicator host(region, rank);
//   NcclCommunicator communicator(host, device);    // all ranks at once
//   communicator.bind(stream);
//   communicator.all_reduce(x);                     // in the order of the stream, also recorded
//
// libnccl.so.2 is opened when the first communicator is made, and never linked. Host memory goes
// through `host`. NVLink multicast (NVLS) stays off unless NCCL_NVLS_ENABLE says otherwise.
//
// A rank that dies leaves the others in the middle of a collective. A thread sees the failure of
// the region and lets NCCL abandon its work, so no stream waits for ever. The work's results are
// worthless, and the next step finds the failure.
//
// Sums are NCCL's: of two ranks they have the same bits in any order; of more ranks bits may depend
// on the size of the tensor, and on who needs which part. One thread. Error{kFatal}: NCCL failed;
// Error{kNoDevice}: there is no NCCL.
#pragma once

#include <atomic>
#include <thread>

#include "distributed/shared_memory.h"
#include "tensor/stream.h"

namespace sluice {

struct NcclCalls;  // the functions of the library

class NcclCommunicator final : public Communicator {
 public:
  // `host` outlives the communicator. `device`: a GPU of this rank alone.
  NcclCommunicator(SharedMemoryCommunicator& host, Device device);
  ~NcclCommunicator() override;

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  // Float32 or bfloat16.
  void all_reduce(const Tensor& x) override;
  void reduce_scatter(const Tensor& x, std::span<const RowPart> parts) override;
  void all_gather(const Tensor& x, const Tensor& out) override;
  void broadcast(const Tensor& x, int root) override;
  // Of the hosts' threads.
  void barrier() override { host_.barrier(); }
  // The stream in which the collectives of the GPU's memory take their turn.
  void bind(const Stream& stream) { stream_ = &stream; }

 private:
  void* stream() const;

  SharedMemoryCommunicator& host_;
  const NcclCalls& calls_;
  // The ranks meet; throws where one fails meanwhile.
  void join(Device device);
  void watch();

  void* handle_ = nullptr;
  const Stream* stream_ = nullptr;
  std::atomic<bool> stopping_{false}, abandoned_{false};
  std::thread watcher_;
};

}  // namespace sluice
