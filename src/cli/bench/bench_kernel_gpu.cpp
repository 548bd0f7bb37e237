// Every launch reads another copy of its weights or keys, so that nothing is found in the L2 cache,
// and launches are recorded as a graph, so that the host is not measured. "chain": launches behind
// each other, of which each may begin while the one before still runs, as in a step. "alone": with
// a memset between two, whose own time is taken off.
#include "cli/bench/bench_kernel_gpu.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "base/build.h"
#include "base/json.h"
#include "cli/bench/gpu_machine.h"
#include "ops/attention.h"
#include "ops/moe.h"
#include "ops/norm.h"
#include "tensor/cuda_runtime.h"

namespace sluice {
namespace {

constexpr int kLaunches = 24, kMaxSets = 64;
constexpr std::int64_t kWorkspaceBytes = std::int64_t{1} << 30;

struct Figure {
  std::string kernel, shape;
  double bytes = 0, operations = 0;  // of a launch
  double alone_s = 0, chain_s = 0;
};

class Bench {
 public:
  Bench(Device device, std::int64_t rotate_bytes)
      : machine_(device),
        arena_(kWorkspaceBytes, device),
        pad_(64, device),
        rotate_bytes_(rotate_bytes) {
    machine_.ctx.arena = &arena_;
    copy_rate = machine_.copy_rate();
    flops = machine_.product(DType::kBF16, 8192);
    pause_s_ = seconds([&](int) { pause(); });
  }

  void products(const std::string& name, std::int64_t n, std::int64_t k,
                const std::vector<std::int64_t>& rows) {
    const std::int64_t sets = sets_for(2 * n * k);
    const Tensor weights = take(DType::kBF16, {sets, n, k});
    for (const std::int64_t m : rows) {
      const Tensor x = take(DType::kBF16, {m, k}), out = take(DType::kF32, {m, n});
      const auto area = static_cast<double>(n * k);
      measure({"product " + name, fmt::format("{} x {} x {}", m, n, k),
               2 * area + static_cast<double>(2 * m * k + 4 * m * n),
               2 * static_cast<double>(m) * area},
              [&](int i) { ops::linear(machine_.ctx, x, weights.at(i % sets), {}, out); });
    }
    buffers_.clear();
  }

  // One token of each of `seqs` sequences over `length` keys whose pages are in no order.
  void attention(std::int64_t seqs, std::int64_t length, const ModelConfig& c) {
    const std::int64_t pages = (length + kPageSize - 1) / kPageSize,
                       slots = seqs * pages * kPageSize;
    const std::int64_t row_bytes = 2 * c.num_kv_heads * (c.head_dim + c.value_dim()),
                       sets = sets_for(slots * row_bytes);
    const Tensor k = take(DType::kBF16, {sets, slots, c.num_kv_heads * c.head_dim});
    const Tensor v = take(DType::kBF16, {sets, slots, c.num_kv_heads * c.value_dim()});
    const Tensor q = take(DType::kF32, {seqs, c.num_heads, c.head_dim}),
                 out = take(DType::kF32, {seqs, c.num_heads, c.value_dim()});
    const auto last = [&](std::int64_t) { return static_cast<std::int32_t>(length - 1); };
    const auto itself = [](std::int64_t i) { return static_cast<std::int32_t>(i); };
    const ops::PagedRows rows{
        integers(
            {seqs, pages},
            [&](std::int64_t i) { return static_cast<std::int32_t>(i * 7919 % (seqs * pages)); }),
        integers({seqs}, itself), integers({seqs}, last)};
    const auto keys = static_cast<double>(seqs * length);
    measure({"attention",
             fmt::format("{} x {} keys, {} / {} heads of {}", seqs, length, c.num_heads,
                         c.num_kv_heads, c.head_dim),
             keys * static_cast<double>(row_bytes),
             2 * keys * static_cast<double>(c.num_heads * (c.head_dim + c.value_dim()))},
            [&](int i) {
              ops::paged_attention(machine_.ctx, q, k.at(i % sets), v.at(i % sets), c.num_kv_heads,
                                   rows, {.scale = 0.1f}, out);
            });
    buffers_.clear();
  }

  // Rows whose experts are drawn anew for each set.
  void experts(const ModelConfig& c, const std::vector<std::int64_t>& rows) {
    const std::int64_t count = c.moe->num_experts, top_k = c.moe->top_k,
                       width = c.moe->moe_intermediate_size, hidden = c.hidden_size;
    constexpr std::int64_t kChoices = 16;
    const Tensor w13 = take(DType::kBF16, {count, 2 * width, hidden}),
                 w2 = take(DType::kBF16, {count, hidden, width});
    std::mt19937 random(3);
    for (const std::int64_t m : rows) {
      const Tensor x = take(DType::kBF16, {m, hidden}), out = take(DType::kF32, {m, hidden}),
                   weights = take(DType::kF32, {m, top_k});
      std::vector<Tensor> ids;
      double used = 0;
      for (std::int64_t set = 0; set < kChoices; ++set) {
        std::vector<std::int32_t> all(static_cast<std::size_t>(count)), chosen;
        std::iota(all.begin(), all.end(), 0);
        for (std::int64_t t = 0; t < m; ++t)
          std::sample(all.begin(), all.end(), std::back_inserter(chosen), top_k, random);
        ids.push_back(integers(
            {m, top_k}, [&](std::int64_t i) { return chosen[static_cast<std::size_t>(i)]; }));
        std::ranges::sort(chosen);
        used += static_cast<double>(std::unique(chosen.begin(), chosen.end()) - chosen.begin()) /
                kChoices;
      }
      Arena::Scope scope(arena_);
      const ops::MoeWorkspace workspace =
          ops::take_moe_workspace(arena_, m, top_k, count, hidden, width, {DType::kBF16, width});
      const auto each = 3 * static_cast<double>(width * hidden);
      measure({"experts", fmt::format("{} rows, {} of {}, {} x {}", m, top_k, count, width, hidden),
               2 * used * each, 2 * each * static_cast<double>(m * top_k)},
              [&](int i) {
                ops::fused_experts(machine_.ctx, x, w13, w2, weights,
                                   ids[static_cast<std::size_t>(i % kChoices)], Activation::kSilu,
                                   workspace, out);
              });
    }
    buffers_.clear();
  }

  void norm(std::int64_t m, std::int64_t n) {
    const std::int64_t sets = sets_for(4 * m * n);
    const Tensor x = take(DType::kF32, {sets, m, n}), weight = take(DType::kF32, {n}),
                 out = take(DType::kBF16, {m, n});
    const auto elements = static_cast<double>(m * n);
    measure({"rms_norm to bfloat16", fmt::format("{} x {}", m, n), 6 * elements, 4 * elements},
            [&](int i) { ops::rms_norm(machine_.ctx, x.at(i % sets), weight, 1e-5f, out); });
    buffers_.clear();
  }

  double copy_rate = 0, flops = 0;
  const std::vector<Figure>& figures() const { return figures_; }

 private:
  std::int64_t sets_for(std::int64_t bytes) const {
    return std::clamp<std::int64_t>((rotate_bytes_ + bytes - 1) / bytes, 2, kMaxSets);
  }

  Tensor take(DType dtype, std::initializer_list<std::int64_t> shape) {
    const Tensor sized = Tensor::dense(nullptr, dtype, shape);
    buffers_.emplace_back(sized.bytes(), machine_.ctx.device);
    const Tensor made = buffers_.back().tensor(dtype, shape);
    if (dtype != DType::kI32) machine_.randomise(made);
    return made;
  }
  Tensor integers(std::initializer_list<std::int64_t> shape,
                  const std::function<std::int32_t(std::int64_t)>& value) {
    const Tensor made = take(DType::kI32, shape);
    HostImage image(made);
    for (std::int64_t i = 0; i < made.numel(); ++i)
      image.tensor().ptr<std::int32_t>()[i] = value(i);
    image.put();
    return made;
  }

  void pause() {
    if constexpr (kHasCuda) cuda::fill_async(pad_.data(), 0, 4, machine_.stream().handle());
  }

  // Of one of kLaunches calls, as a graph.
  double seconds(const std::function<void(int)>& work) {
    const Graph graph = Graph::capture(machine_.stream(), [&] {
      for (int i = 0; i < kLaunches; ++i) work(i);
    });
    return machine_.seconds([&] { graph.launch(machine_.stream()); }, 9) / kLaunches;
  }

  void measure(Figure figure, const std::function<void(int)>& work) {
    for (int i = 0; i < 2; ++i) work(0);  // choices are made and remembered
    machine_.stream().synchronize();
    figure.chain_s = seconds(work);
    figure.alone_s = seconds([&](int i) {
                       work(i);
                       pause();
                     }) -
                     pause_s_;
    figures_.push_back(std::move(figure));
  }

  bench::Machine machine_;
  Arena arena_;
  Buffer pad_;
  std::int64_t rotate_bytes_;
  double pause_s_ = 0;
  std::vector<Buffer> buffers_;
  std::vector<Figure> figures_;
};

}  // namespace

void bench_gpu_kernels(const GpuKernelBench& wanted, const ModelConfig& config) {
  Bench bench(wanted.device, wanted.rotate_bytes);
  const std::int64_t hidden = config.hidden_size, width = config.intermediate_size;
  if (!config.mla) {
    const std::int64_t q = config.num_heads * config.head_dim,
                       kv = config.num_kv_heads * (config.head_dim + config.value_dim());
    bench.products("qkv", q + kv, hidden, wanted.rows);
    bench.products("out", hidden, config.num_heads * config.value_dim(), wanted.rows);
  }
  if (width > 0 && !config.moe) {
    bench.products("gate and up", 2 * width, hidden, wanted.rows);
    bench.products("down", hidden, width, wanted.rows);
  }
  if (config.vocab_size > 0) bench.products("head", config.vocab_size, hidden, wanted.rows);
  if (config.moe) bench.experts(config, wanted.rows);
  constexpr std::pair<std::int64_t, std::int64_t> kDecodeSteps[] = {
      {1, 2048}, {1, 32768}, {64, 2048}};  // sequences, and keys of each
  if (!config.mla)
    for (const auto& [seqs, length] : kDecodeSteps) bench.attention(seqs, length, config);
  bench.norm(512, hidden);

  const auto share = [&](const Figure& f, double seconds) {
    return std::max(f.bytes / bench.copy_rate, f.operations / bench.flops) / seconds;
  };
  if (wanted.as_json) {
    for (const Figure& f : bench.figures())
      fmt::print("{}\n", dump_json(Json{{"kernel", f.kernel},
                                        {"shape", f.shape},
                                        {"microseconds_alone", f.alone_s * 1e6},
                                        {"microseconds_in_a_chain", f.chain_s * 1e6},
                                        {"bytes_per_s", f.bytes / f.chain_s},
                                        {"operations_per_s", f.operations / f.chain_s},
                                        {"copy_bytes_per_s", bench.copy_rate},
                                        {"bfloat16_operations_per_s", bench.flops},
                                        {"share_of_ceiling_alone", share(f, f.alone_s)},
                                        {"share_of_ceiling_in_a_chain", share(f, f.chain_s)}}));
    return;
  }
  fmt::print(
      "{}, shapes of {}; a copy on the device reads and writes {:.0f} GB/s, a large product in "
      "bfloat16 reaches {:.0f} Tflop/s\n",
      describe(wanted.device), wanted.title, bench.copy_rate / 1e9, bench.flops / 1e12);
  fmt::print("\n{:<22}{:<40}{:>10}{:>10}{:>9}{:>9}{:>9}{:>9}\n", "kernel", "shape", "us alone",
             "us chain", "GB/s", "Tflop/s", "alone", "chain");
  for (const Figure& f : bench.figures())
    fmt::print("{:<22}{:<40}{:>10.2f}{:>10.2f}{:>9.0f}{:>9.1f}{:>7.1f} %{:>7.1f} %\n", f.kernel,
               f.shape, f.alone_s * 1e6, f.chain_s * 1e6, f.bytes / f.chain_s / 1e9,
               f.operations / f.chain_s / 1e12, 100 * share(f, f.alone_s),
               100 * share(f, f.chain_s));
  fmt::print(
      "\nchain: launches behind each other, as in a step; alone: with something else between two. "
      "%: the time that moving the bytes at the "
      "copy's rate, or computing at the product's, takes at least, as a share of the time taken\n");
}

}  // namespace sluice
