// Input and output of a captured step: the graph itself reads its inputs from pinned host memory
// and writes its tokens there, so that no copy stands between two steps.
//   1. fetch_kernel          inputs and page tables of the step, from one of two host buffers
//   2. store_tokens_kernel   sampled tokens to the host, and the step counter
#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/cuda.h"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 256;

// Host buffers alternate: step `counter` reads sides[counter & 1].
struct FetchArgs {
  const unsigned char* sides[2];
  const std::int64_t* counter;
  unsigned char* inputs;
  std::int64_t num_vectors;        // of 16 bytes
  std::int64_t first_id, num_ids;  // of the int32 in inputs
  std::int64_t lengths_at;         // byte in inputs
  std::int64_t seqs;
  int num_tables;
  std::int64_t table_at[ops::kMaxInputTables];  // bytes from inputs
  std::int64_t table_pages[ops::kMaxInputTables];
  const std::int32_t* slot_tokens;
  std::int64_t slots;
};

// Hazard: host memory changes from step to step, so the load must not hit a cached line.
template <class T>
__device__ T from_host(const unsigned char* at) {
  return __ldcv(reinterpret_cast<const T*>(at));
}

// Token ids below 0 name a slot: the token that the step before sampled there.
__device__ void resolve(std::int32_t& word, std::int64_t index, const FetchArgs& args) {
  if (word >= 0 || index < args.first_id || index >= args.first_id + args.num_ids) return;
  const std::int64_t slot = -1 - std::int64_t{word};
  expect_below(slot, args.slots);
  word = args.slot_tokens[slot];
}

// 1. The first threads take 16 bytes of the inputs each. The last warps take a row of a page table
// each: a lane reads its first entry before the length of the row is known. So with few rows all
// loads of host memory are in flight at once.
__global__ void __launch_bounds__(kThreads) fetch_kernel(const __grid_constant__ FetchArgs args) {
  start_next_kernel();
  const std::int64_t number = *args.counter;
  const unsigned char* side = args.sides[number & 1];
  const std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x,
                     all = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = first; i < args.num_vectors; i += all) {
    int4 words = from_host<int4>(side + 16 * i);
    if (i == 0 &&
        (static_cast<std::int64_t>(words.y) << 32 | static_cast<std::uint32_t>(words.x)) != number)
      __trap();  // the host buffer belongs to another step
    resolve(words.x, 4 * i, args);
    resolve(words.y, 4 * i + 1, args);
    resolve(words.z, 4 * i + 2, args);
    resolve(words.w, 4 * i + 3, args);
    reinterpret_cast<int4*>(args.inputs)[i] = words;
  }
  // Only the pages of a sequence are copied, not the whole row.
  const std::int64_t rows = args.seqs * args.num_tables;
  const int lane = threadIdx.x % kWarp;
  for (std::int64_t r = (all - 1 - first) / kWarp; r < rows; r += all / kWarp) {
    const std::int64_t table = r / args.seqs, s = r % args.seqs, width = args.table_pages[table];
    const std::int64_t at = args.table_at[table] + 4 * s * width;
    const auto page = [&](std::int64_t j) { return from_host<int>(side + at + 4 * j); };
    const int page_of_lane = lane < width ? page(lane) : 0;
    const std::int64_t length = from_host<int>(side + args.lengths_at + 4 * s);
    const std::int64_t pages = min((length + 63) / 64, width);
    auto* to = reinterpret_cast<int*>(args.inputs + at);
    if (lane < pages) to[lane] = page_of_lane;
    for (std::int64_t j = lane + kWarp; j < pages; j += kWarp) to[j] = page(j);
  }
}

// 2. One CTA, because the counter must not change before all threads have read it.
__global__ void __launch_bounds__(kThreads)
    store_tokens_kernel(const std::int32_t* tokens, const std::int32_t* slots, std::int64_t n,
                        std::int32_t* slot_tokens, std::int64_t limit, std::int64_t* counter,
                        std::int32_t* box0, std::int32_t* box1) {
  begin_dependent();
  const std::int64_t number = *counter;
  // The box of this step; the host reads the other one meanwhile.
  std::int32_t* box = number & 1 ? box1 : box0;
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) {
    const std::int32_t token = tokens[i];
    box[i] = token;
    if (slots[i] < 0) continue;
    expect_below(slots[i], limit);
    // A row without a token (-1) leaves a valid id.
    slot_tokens[slots[i]] = max(token, 0);
  }
  __syncthreads();
  if (threadIdx.x == 0) *counter = number + 1;
}

}  // namespace

void load_step_inputs(Context& ctx, const ops::StepInputs& fetch) {
  // Byte offset of a part within the inputs.
  const auto at = [&](const Tensor& part) {
    return static_cast<const std::byte*>(part.data) -
           static_cast<const std::byte*>(fetch.inputs.data);
  };
  FetchArgs args{};
  for (int i = 0; i < 2; ++i)
    args.sides[i] =
        static_cast<const unsigned char*>(fetch.sides[static_cast<std::size_t>(i)].data);
  args.counter = fetch.counter.ptr<std::int64_t>();
  args.inputs = static_cast<unsigned char*>(fetch.inputs.data);
  args.num_vectors = fetch.inputs.bytes() / 16;
  args.first_id = at(fetch.ids) / 4;
  args.num_ids = fetch.ids.dim(0);
  args.lengths_at = at(fetch.seq_lens);
  args.seqs = fetch.seq_lens.dim(0);
  for (const Tensor& table : fetch.page_tables) {
    args.table_at[args.num_tables] = at(table);
    args.table_pages[args.num_tables++] = table.dim(1);
  }
  args.slot_tokens = fetch.slot_tokens.ptr<std::int32_t>();
  args.slots = fetch.slot_tokens.dim(0);
  const std::int64_t threads = args.num_vectors + args.seqs * args.num_tables * kWarp;
  // The first kernel of a graph waits for the graph before. The kernels after it may be set up
  // meanwhile.
  fetch_kernel<<<std::min(blocks_for(std::max<std::int64_t>(threads, 1), kThreads), 128u), kThreads,
                 0, stream_of(ctx)>>>(args);
  check_launch("load_step_inputs");
}

void store_step_tokens(Context& ctx, const Tensor& tokens, const Tensor& slots,
                       const Tensor& slot_tokens, const Tensor& counter,
                       const std::array<Tensor, 2>& boxes) {
  launch_dependent(ctx, "store_step_tokens", store_tokens_kernel, dim3(1), kThreads, 0,
                   tokens.ptr<std::int32_t>(), slots.ptr<std::int32_t>(), tokens.dim(0),
                   slot_tokens.ptr<std::int32_t>(), slot_tokens.dim(0), counter.ptr<std::int64_t>(),
                   boxes[0].ptr<std::int32_t>(), boxes[1].ptr<std::int32_t>());
}

}  // namespace sluice::cuda
