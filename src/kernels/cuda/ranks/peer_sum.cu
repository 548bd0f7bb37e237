#include <cuda_bf16.h>

#include <algorithm>

#include "kernels/cuda/common/common.cuh"
#include "kernels/cuda/common/mma.cuh"
#include "kernels/cuda/ranks/peer_flags.cuh"
#include "kernels/cuda/ranks/peer_sum.h"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 512;
// Vectors that a thread sends before it looks for the first of the others.
constexpr int kAhead = 4;

__device__ bool is_zero(float x) {
  return __float_as_uint(x) == 0;
}
__device__ float not_zero(float x) {
  return is_zero(x) ? -0.0f : x;
}
// +0 means that a word has not come.
__device__ bool has_come(const float4& v) {
  return !is_zero(v.x) && !is_zero(v.y) && !is_zero(v.z) && !is_zero(v.w);
}

// The words of a vector may come one by one.
__device__ float4 await_slot(const float4* slot, const int* stop) {
  float4 v = read_slot(slot);
  for (int looks = 0; !has_come(v); ++looks, v = read_slot(slot))
    if (looks % kLooks == kLooks - 1 && *static_cast<const volatile int*>(stop) != 0) break;
  return v;
}

// The numbers of a vector as they travel, and as float32.
template <class Wire>
struct Numbers;

template <>
struct Numbers<float> {
  static constexpr int kCount = 4;
  static __device__ float4 pack(const float (&x)[kCount]) {
    return {not_zero(x[0]), not_zero(x[1]), not_zero(x[2]), not_zero(x[3])};
  }
  static __device__ void unpack(const float4& v, float (&x)[kCount]) {
    x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
  }
};

template <>
struct Numbers<Bf16> {
  static constexpr int kCount = 8;
  static __device__ float pair(float low, float high) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    // Only the pair +0, +0 is the word 0.
    return not_zero(__uint_as_float(*reinterpret_cast<const std::uint32_t*>(&both)));
  }
  static __device__ float4 pack(const float (&x)[kCount]) {
    return {pair(x[0], x[1]), pair(x[2], x[3]), pair(x[4], x[5]), pair(x[6], x[7])};
  }
  static __device__ void unpack(const float4& v, float (&x)[kCount]) {
    const float words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t word = __float_as_uint(words[i]);
      x[2 * i] = __uint_as_float(word << 16);
      x[2 * i + 1] = __uint_as_float(word & 0xffff0000u);
    }
  }
};

template <int kCount>
__device__ void load(const float* from, float (&x)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    const float4 v = *reinterpret_cast<const float4*>(from + i);
    x[i] = v.x, x[i + 1] = v.y, x[i + 2] = v.z, x[i + 3] = v.w;
  }
}
template <int kCount>
__device__ void store(const float (&x)[kCount], float* to) {
#pragma unroll
  for (int i = 0; i < kCount; i += 4)
    *reinterpret_cast<float4*>(to + i) = {x[i], x[i + 1], x[i + 2], x[i + 3]};
}

// A rank's memory.
struct Slots {
  float4* sums;
  float4* gatherings;
  PeerWords* words;

  __device__ Slots(const PeerSum& sum, int rank)
      : sums(reinterpret_cast<float4*>(sum.memory[rank])),
        gatherings(sums + sum.layout.sums_vectors()),
        words(reinterpret_cast<PeerWords*>(sum.memory[rank] + sum.layout.slots_bytes())) {}
};

// True in one thread of the last CTA to come.
__device__ bool is_last_to_come(std::uint32_t* ctas) {
  __syncthreads();
  if (threadIdx.x != 0 || atomicAdd(ctas, 1) != gridDim.x - 1) return false;
  *ctas = 0;
  return true;
}

// The part of each rank, in vectors.
struct PeerParts {
  std::int64_t first[kMaxPeers], count[kMaxPeers];
};

// `each`: vectors of one CTA, of `count` in all, or in the longest part.
template <class Wire, bool kParts>
__global__ void __launch_bounds__(kThreads, 2)
    sum_peers(PeerSum sum, PeerParts parts, float* x, float* to, std::int64_t count,
              std::int64_t each) {
  begin_dependent();
  using Vector = Numbers<Wire>;
  const PeerLayout layout = sum.layout;
  const int num_peers = layout.num_peers, rank = sum.rank;
  const Slots own(sum, rank);
  const std::uint32_t turn = *static_cast<volatile std::uint32_t*>(&own.words->sum_set);
  const std::int64_t slot = layout.sum_vectors, set = (num_peers - 1) * slot, at = turn * set,
                     first = blockIdx.x * each, last = min(count, first + each),
                     own_count = kParts ? parts.count[rank] : count;
  if (kParts) to = x + parts.first[rank] * Vector::kCount;

  const auto send = [&](std::int64_t i) {
    float4 vector;
    const auto pack = [&](std::int64_t of) {
      float mine[Vector::kCount];
      load(x + of * Vector::kCount, mine);
      vector = Vector::pack(mine);
    };
    if (!kParts) pack(i);
    for (int step = 1; step < num_peers; ++step) {
      const int peer = (rank + step) % num_peers;
      if (kParts && i >= parts.count[peer]) continue;
      if (kParts) pack(parts.first[peer] + i);
      write_slot(Slots(sum, peer).sums + at + layout.slot_of(rank, peer) * slot + i, vector);
    }
  };
  const auto receive = [&](std::int64_t i) {
    float mine[Vector::kCount], total[Vector::kCount], other[Vector::kCount];
    load((kParts ? to : x) + i * Vector::kCount, mine);
    Vector::unpack(Vector::pack(mine), mine);  // rounded as the others see it
    for (int peer = 0; peer < num_peers; ++peer) {
      if (peer != rank)
        Vector::unpack(await_slot(own.sums + at + layout.slot_of(peer, rank) * slot + i, sum.stop),
                       other);
#pragma unroll
      for (int j = 0; j < Vector::kCount; ++j) {
        const float part = peer == rank ? mine[j] : other[j];
        total[j] = peer == 0 ? part : total[j] + part;
      }
    }
    if (!kParts && to != nullptr) {
      load(to + i * Vector::kCount, other);
#pragma unroll
      for (int j = 0; j < Vector::kCount; ++j) total[j] += other[j];
    }
    store(total, (to != nullptr ? to : x) + i * Vector::kCount);
  };

  std::int64_t next = first + threadIdx.x;  // to send
  for (int i = 0; i < kAhead && next < last; ++i, next += kThreads) send(next);
  // While they are on their way: the set of the sum before is for the sum after the next one.
  const std::int64_t last_count = own.words->last_vectors,
                     step = std::int64_t{gridDim.x} * kThreads;
  float4* const before = own.sums + (turn + kSumSets - 1) % kSumSets * set;
  for (int other = 0; other < num_peers - 1; ++other)
    for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < last_count;
         i += step)
      before[other * slot + i] = {};
  for (std::int64_t i = first + threadIdx.x; i < last; i += kThreads, next += kThreads) {
    if (next < last) send(next);
    if (i < own_count) receive(i);
  }
  if (is_last_to_come(&own.words->summing_ctas)) {
    own.words->sum_set = (turn + 1) % kSumSets;
    own.words->last_vectors = static_cast<std::uint32_t>(own_count);
  }
}

// Where gathered vectors go: from `first` on, in rows of which those of all ranks lie side by side.
struct GatherPlace {
  std::int64_t first, row_vectors, row_stride, rank_stride;

  __device__ std::int64_t of(int rank, std::int64_t i) const {
    const auto at = static_cast<std::uint32_t>(first + i),
               row = at / static_cast<std::uint32_t>(row_vectors);
    return row * row_stride + rank * rank_stride + (at - row * row_vectors);
  }
};

__global__ void __launch_bounds__(kThreads, 2)
    gather_peers(PeerSum sum, GatherPlace place, const float4* x, float4* out, std::int64_t count,
                 std::int64_t each) {
  begin_dependent();
  const PeerLayout layout = sum.layout;
  const int num_peers = layout.num_peers, rank = sum.rank;
  const Slots own(sum, rank);
  const std::uint32_t number = *static_cast<volatile std::uint32_t*>(&own.words->num_gathered) + 1;
  const std::int64_t slot = layout.gather_vectors,
                     at = number % kGatherSets * (num_peers - 1) * slot, first = blockIdx.x * each,
                     last = min(count, first + each);
  for (int step = 1; step < num_peers; ++step) {
    const int peer = (rank + step) % num_peers;
    float4* const to = Slots(sum, peer).gatherings + at + layout.slot_of(rank, peer) * slot;
#pragma unroll 4
    for (std::int64_t i = first + threadIdx.x; i < last; i += kThreads) to[i] = x[i];
  }
  __syncthreads();
  const int peer = static_cast<int>(threadIdx.x);
  if (peer < num_peers && peer != rank) {
    __threadfence_system();
    raise_flag(&Slots(sum, peer).words->flags[blockIdx.x][rank], number);
    wait_for_flag(&own.words->flags[blockIdx.x][peer], number, sum.stop);
  }
  __syncthreads();
  for (std::int64_t i = first + threadIdx.x; i < last; i += kThreads)
    for (int other = 0; other < num_peers; ++other)
      out[place.of(other, i)] =
          other == rank ? x[i]
                        : read_slot(own.gatherings + at + layout.slot_of(other, rank) * slot + i);
  if (is_last_to_come(&own.words->gathering_ctas)) own.words->num_gathered = number;
}

// Launches a kernel above for `vectors` of each rank.
template <class Kernel, class Places, class... Pointers>
void launch(Kernel kernel, const PeerSum& sum, const Places& places, std::int64_t vectors,
            int max_blocks, const Stream& stream, Pointers... pointers) {
  const std::int64_t blocks = peer_sum_blocks(vectors, max_blocks);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(kThreads);
  config.stream = static_cast<cudaStream_t>(stream.handle());
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = sum.sm >= 90 ? 1 : 0;  // see kernels/cuda/common/launch.cuh
  cudaLaunchKernelEx(&config, kernel, sum, places, pointers..., vectors,
                     (vectors + blocks - 1) / blocks);
}

}  // namespace

void sum_over_peers(const PeerSum& sum, const Tensor& x, const Tensor& to, DType wire,
                    const Stream& stream) {
  launch(wire == DType::kBF16 ? sum_peers<Bf16, false> : sum_peers<float, false>, sum, PeerParts{},
         x.numel() / numbers_of_vector(wire), kSumBlocks, stream, static_cast<float*>(x.data),
         static_cast<float*>(to.data));
  check_launch("sum over peers");
}

void sum_parts_over_peers(const PeerSum& sum, const Tensor& x, std::span<const RowPart> parts,
                          DType wire, const Stream& stream) {
  const std::int64_t numbers = numbers_of_vector(wire),
                     num_pieces = peer_part_pieces(sum.layout, parts, wire);
  for (std::int64_t piece = 0; piece < num_pieces; ++piece) {
    PeerParts pieces{};
    std::int64_t longest = 0;
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      const std::int64_t count = parts[rank].count / numbers, from = count * piece / num_pieces;
      pieces.first[rank] = parts[rank].first / numbers + from;
      pieces.count[rank] = count * (piece + 1) / num_pieces - from;
      longest = std::max(longest, pieces.count[rank]);
    }
    launch(wire == DType::kBF16 ? sum_peers<Bf16, true> : sum_peers<float, true>, sum, pieces,
           longest, kSumBlocks, stream, static_cast<float*>(x.data), static_cast<float*>(nullptr));
  }
  check_launch("sum of parts over peers");
}

void gather_over_peers(const PeerSum& sum, const Tensor& x, const Tensor& out,
                       const Stream& stream) {
  const std::int64_t vectors = x.bytes() / 16, slot = sum.layout.gather_vectors;
  const auto vectors_of = [&](std::int64_t elements) {
    return elements * dtype_size(x.dtype) / 16;
  };
  GatherPlace place{.first = 0, .row_vectors = vectors, .row_stride = 0, .rank_stride = vectors};
  if (!out.dense())
    place = {.first = 0,
             .row_vectors = vectors_of(x.dim(1)),
             .row_stride = vectors_of(out.stride[1]),
             .rank_stride = vectors_of(out.stride[0])};
  for (; place.first < vectors; place.first += slot)
    launch(gather_peers, sum, place, std::min(slot, vectors - place.first), kGatherBlocks, stream,
           static_cast<const float4*>(x.data) + place.first, static_cast<float4*>(out.data));
  check_launch("gather over peers");
}

}  // namespace sluice::cuda
