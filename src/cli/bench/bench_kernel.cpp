// `sluice bench kernel`, on a CPU: kernels by themselves, at a model's shapes, against the read
// bandwidth right before and after each, since that of a virtual machine changes within seconds.
// Every call reads another copy of its weights or keys, so that nothing is found in a cache.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

#include "base/json.h"
#include "cli/bench/bench_kernel_gpu.h"
#include "cli/bench/roofline.h"
#include "cli/doctor/kernel_cases.h"
#include "cli/download_bars.h"
#include "cli/verbs.h"
#include "engine/machine.h"
#include "engine/model_choice.h"
#include "engine/options_parse.h"
#include "ops/attention.h"
#include "ops/gemm.h"
#include "ops/indexer.h"
#include "ops/mla.h"
#include "ops/norm.h"
#include "ops/packing.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kArenaBytes = 256 << 20;
constexpr double kSeconds = 0.2;  // of each case, at least
constexpr int kMinCalls = 5;
constexpr int kTries = 3;  // of a case, while the read bandwidth changes by more than kUnsteady
constexpr double kUnsteady = 0.1;
// Words of these bits are small numbers in every format that is read here, whatever those of
// kMantissas are.
constexpr std::uint64_t kSmallNumbers = 0x3C003C003C003C00, kMantissas = 0x00FF00FF00FF00FF;

struct Case {
  std::string kernel, shape;
  double bytes = 0;  // that a call reads and writes
  double operations = 0;
  ops::PeakInstruction instruction = ops::PeakInstruction::kFma;
};

struct Figure {
  Case what;
  double seconds = 0;  // median of a call
  double read = 0;     // the greater read bandwidth of those before and after
  bool steady = false;
};

// The greatest share of a ceiling that the call's time could be: 1 when nothing can be faster.
double share_of_roofline(const Figure& f, double peak) {
  const double floor =
      std::max(f.read > 0 ? f.what.bytes / f.read : 0, peak > 0 ? f.what.operations / peak : 0);
  return floor / f.seconds;
}

class KernelBench {
 public:
  // `roofline` must outlive it.
  KernelBench(int threads, std::int64_t rotate_bytes, Roofline& roofline)
      : pool_(threads), arena_(kArenaBytes), rotate_bytes_(rotate_bytes), roofline_(roofline) {
    ctx_.pool = &pool_;
    ctx_.arena = &arena_;
    ctx_.cpu_isa = detect_cpu_isa();
  }

  // Rows against a matrix of `format`.
  void product(ops::Format format, std::string_view name, std::int64_t rows, std::int64_t n,
               std::int64_t k) {
    const bool halves = format == ops::Format::kBf16;
    ops::Weight w = ops::weight_form(ctx_, format, DType::kBF16, halves ? 0 : 32);
    w.rows = n;
    w.columns = k;
    const std::int64_t bytes = ops::packed_bytes(ctx_, w);
    const ops::PreparedRows form = ops::prepared_shape(ctx_, w, rows);
    w.data = Tensor::dense(nullptr, DType::kU8, {1, bytes});
    Arena::Scope scope(arena_);
    const Tensor x = numbers(rows, k), ready = arena_.take(form.dtype, {rows, form.elements});
    const Tensor out = arena_.take(DType::kF32, {rows, n});
    ops::prepare_rows(ctx_, x, w, ready);
    const Case what{.kernel = fmt::format("product {}", name),
                    .shape = fmt::format("{} x {} x {}", rows, n, k),
                    .bytes = static_cast<double>(
                        bytes + rows * form.elements * dtype_size(form.dtype) + 4 * rows * n),
                    .operations = 2.0 * static_cast<double>(rows) * static_cast<double>(n) *
                                  static_cast<double>(k),
                    .instruction = product_instruction(halves ? DType::kBF16 : DType::kU8)};
    measure(what, bytes, [&](std::byte* copy) {
      w.data.data = copy;
      ops::linear(ctx_, ready, w, {}, out);
    });
  }

  // One token of each of `seqs` sequences over `length` bfloat16 keys, as a model's decode step
  // does.
  void attention(std::int64_t seqs, std::int64_t length, const ModelConfig& config) {
    const std::int64_t heads = config.num_heads, kv = config.num_kv_heads, d = config.head_dim,
                       dv = config.value_dim();
    const std::int64_t pages = (length + kPageSize - 1) / kPageSize,
                       slots = seqs * pages * kPageSize;
    const bool panels = ops::fits_panels(DType::kBF16, d) && ops::fits_panels(DType::kBF16, dv);
    Arena::Scope scope(arena_);
    const Tensor q = numbers(seqs, heads * d), out = arena_.take(DType::kF32, {seqs, heads, dv});
    const ops::PagedRows rows = last_tokens(seqs, length, 1);
    const auto plane = [&](std::byte* at, std::int64_t dim, ops::PlaneForm form) {
      const Tensor data = Tensor::dense(at, DType::kBF16, {slots, kv * dim});
      return panels ? ops::KvPlane(data, form, kv) : ops::KvPlane(data);
    };
    const Case what{
        .kernel = "attention bfloat16",
        .shape = fmt::format("{} x {} keys, {} / {} heads of {}", seqs, length, heads, kv, d),
        .bytes = 2.0 * static_cast<double>(seqs * length * kv * (d + dv)),
        .operations = 2.0 * static_cast<double>(seqs * length * heads * (d + dv)),
        .instruction = product_instruction(DType::kBF16)};
    measure(what, 2 * slots * kv * (d + dv), [&](std::byte* copy) {
      ops::paged_attention(ctx_, ops::heads_of_rows(q, heads),
                           plane(copy, d, ops::PlaneForm::kKeyPanels),
                           plane(copy + 2 * slots * kv * d, dv, ops::PlaneForm::kValuePanels), kv,
                           rows, {.scale = 0.1f}, out);
    });
  }

  // One token's choice of keys among `length`, bfloat16, in pages of no order.
  void index(std::int64_t length, const ModelConfig& config) {
    const std::int64_t heads = config.indexer->num_heads, d = config.indexer->head_dim,
                       slots = whole_pages(length);
    Arena::Scope scope(arena_);
    const Tensor q = numbers(1, heads * d), weights = numbers(1, heads);
    const ops::PagedRows rows = last_tokens(1, length, kPageStride);
    const ops::IndexWorkspaceShape shape = ops::index_topk_workspace(ctx_, 1, length);
    const Tensor workspace = arena_.take(DType::kF32, {shape.rows, shape.max_len});
    const Tensor out =
        arena_.take(DType::kI32, {1, std::min<std::int64_t>(config.indexer->topk, length)});
    const Case what{
        .kernel = "index and top-k",
        .shape = fmt::format("{} of {} keys, {} heads of {}", out.dim(1), length, heads, d),
        .bytes = 2.0 * static_cast<double>(length * d),
        .operations = 2.0 * static_cast<double>(length * heads * d),
        .instruction = product_instruction(DType::kBF16)};
    measure(what, 2 * slots * d, [&](std::byte* copy) {
      const Tensor keys = Tensor::dense(copy, DType::kBF16, {slots, d});
      const bool panels = ops::fits_panels(DType::kBF16, d);
      ops::index_topk(
          ctx_, ops::heads_of_rows(q, heads), weights,
          panels ? ops::KvPlane(keys, ops::PlaneForm::kKeyPanels, 1) : ops::KvPlane(keys), rows,
          workspace, out);
    });
  }

  // One token's attention over the latents chosen of `length`, spread over all of them, in pages of
  // no order.
  void sparse_attention(std::int64_t length, const ModelConfig& config) {
    const std::int64_t heads = config.num_heads, latent = config.mla->kv_lora_rank,
                       rope = config.mla->qk_rope_head_dim;
    const std::int64_t slots = whole_pages(length),
                       chosen = std::min<std::int64_t>(config.indexer->topk, length),
                       each = length / chosen;
    Arena::Scope scope(arena_);
    const Tensor q = numbers(1, heads * latent), q_rope = numbers(1, heads * rope),
                 out = arena_.take(DType::kF32, {1, heads, latent});
    const Tensor indices = arena_.take(DType::kI32, {1, chosen});
    for (std::int64_t i = 0; i < chosen; ++i)
      indices.ptr<std::int32_t>()[i] = static_cast<std::int32_t>(i * each + i * 7919 % each);
    const ops::PagedRows rows = last_tokens(1, length, kPageStride);
    const Case what{.kernel = "sparse attention",
                    .shape = fmt::format("{} of {} keys, {} heads, {} + {}", chosen, length, heads,
                                         latent, rope),
                    .bytes = 2.0 * static_cast<double>(chosen * (latent + rope)),
                    .operations = 2.0 * static_cast<double>(chosen * heads * (2 * latent + rope)),
                    .instruction = product_instruction(DType::kBF16)};
    measure(what, 2 * slots * (latent + rope), [&](std::byte* copy) {
      ops::mla_sparse_attention(
          ctx_, ops::heads_of_rows(q, heads), ops::heads_of_rows(q_rope, heads),
          Tensor::dense(copy, DType::kBF16, {slots, latent + rope}), rows, indices, 0.1f, out);
    });
  }

  void norm(std::int64_t rows, std::int64_t n) {
    Arena::Scope scope(arena_);
    const Tensor weight = numbers(1, n).at(0), out = arena_.take(DType::kBF16, {rows, n});
    const Case what{.kernel = "rms_norm to bfloat16",
                    .shape = fmt::format("{} x {}", rows, n),
                    .bytes = 6.0 * static_cast<double>(rows * n),
                    .operations = 4.0 * static_cast<double>(rows * n),
                    .instruction = ops::PeakInstruction::kFma};
    measure(what, 4 * rows * n, [&](std::byte* copy) {
      ops::rms_norm(ctx_, Tensor::dense(copy, DType::kF32, {rows, n}), weight, 1e-5f, out);
    });
  }

  const std::vector<Figure>& figures() const { return figures_; }

 private:
  static constexpr std::int64_t kPageStride = 389;  // a prime, so that it brings up every page

  static std::int64_t whole_pages(std::int64_t tokens) {
    return (tokens + kPageSize - 1) / kPageSize * kPageSize;
  }

  // The last token of each of `seqs` sequences of `length`, whose pages lie `stride` pages apart,
  // in the arena.
  ops::PagedRows last_tokens(std::int64_t seqs, std::int64_t length, std::int64_t stride) {
    const std::int64_t pages = whole_pages(length) / kPageSize;
    ops::PagedRows rows{arena_.take(DType::kI32, {seqs, pages}), arena_.take(DType::kI32, {seqs}),
                        arena_.take(DType::kI32, {seqs})};
    for (std::int64_t i = 0; i < seqs * pages; ++i)
      rows.page_table.ptr<std::int32_t>()[i] =
          static_cast<std::int32_t>(i * stride % (seqs * pages));
    for (std::int64_t s = 0; s < seqs; ++s) {
      rows.row_seq.ptr<std::int32_t>()[s] = static_cast<std::int32_t>(s);
      rows.positions.ptr<std::int32_t>()[s] = static_cast<std::int32_t>(length - 1);
    }
    return rows;
  }

  // [rows, n] float32 between -1 and 1, in the arena.
  Tensor numbers(std::int64_t rows, std::int64_t n) {
    const Tensor x = arena_.take(DType::kF32, {rows, n});
    for (std::int64_t i = 0; i < rows * n; ++i)
      x.ptr<float>()[i] = static_cast<float>(i * 7919 % 2001 - 1000) / 1000.0f;
    return x;
  }

  void measure(const Case& what, std::int64_t bytes, const std::function<void(std::byte*)>& call) {
    constexpr std::int64_t kAlignment = 4096;
    const std::int64_t step = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    const std::int64_t copies = std::max<std::int64_t>(2, (rotate_bytes_ + step - 1) / step);
    if (memory_.bytes() < copies * step) {
      memory_ = Buffer();  // before the larger one is asked for
      memory_ = Buffer(copies * step);
      auto* const words = static_cast<std::uint64_t*>(memory_.data());
      pool_.parallel_for(memory_.bytes() / 8, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end;
             ++i)  // steps of the golden ratio: no two neighbours alike
          words[i] = kSmallNumbers |
                     (static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15u >> 7 & kMantissas);
      });
    }
    auto* const base = static_cast<std::byte*>(memory_.data());
    call(base);  // not measured: what is made once
    Figure figure{.what = what};
    for (int tries = 1; tries <= kTries && !figure.steady; ++tries) {
      const double before = roofline_.read().bytes_per_s;
      figure.seconds = median_of_calls(base, step, copies, call);
      const double after = roofline_.read().bytes_per_s;
      figure.read = std::max(before, after);
      figure.steady = std::abs(after - before) <= kUnsteady * figure.read;
    }
    figures_.push_back(figure);
  }

  static double median_of_calls(std::byte* base, std::int64_t step, std::int64_t copies,
                                const std::function<void(std::byte*)>& call) {
    std::vector<double> seconds;
    const auto start = Clock::now();
    for (std::int64_t i = 1; std::ssize(seconds) < std::max<std::int64_t>(kMinCalls, copies) ||
                             std::chrono::duration<double>(Clock::now() - start).count() < kSeconds;
         ++i) {
      const auto begin = Clock::now();
      call(base + i % copies * step);
      seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
    std::ranges::nth_element(seconds, seconds.begin() + std::ssize(seconds) / 2);
    return seconds[seconds.size() / 2];
  }

  ThreadPool pool_;
  Arena arena_;
  Context ctx_;
  const std::int64_t rotate_bytes_;
  Roofline& roofline_;
  Buffer memory_;
  std::vector<Figure> figures_;
};

std::vector<std::int64_t> row_counts(const Arguments& arguments) {
  if (!arguments.has("rows")) return {1, 8, 32};
  std::vector<std::int64_t> out;
  try {
    std::vector<std::string> parts;
    option_parse::append_list(parts, arguments.get("rows"));
    for (const std::string& part : parts) out.push_back(option_parse::integer(part, 1, 256));
  } catch (const Error& error) {
    throw UsageError(fmt::format("--rows: {}", error.message()),
                     "allowed: numbers from 1 to 256, with commas");
  }
  return out;
}

}  // namespace

int bench_kernel(const Arguments& arguments) {
  Options options = arguments.options;
  const bool has_model = !arguments.positional.empty() || !options.model.empty();
  if (has_model) options = model_options(arguments);
  const std::vector<std::int64_t> rows = row_counts(arguments);
  const std::int64_t rotate_mib = arguments.get_int("rotate-mib", 1024, 1, 1 << 20);
  const std::int64_t mib = arguments.get_int("roofline-mib", 512, 1, 1 << 20);
  const ModelConfig config =
      has_model ? read_model_config(options, obtain_model(options, false).directory)
                : usual_shapes();
  require(!config.fallback,
          "{} runs through the Transformers plugin, whose kernels are torch's: name another model, "
          "or none",
          config.architecture);

  if (const Device device = serving_device(options); device.kind == DeviceKind::kCuda) {
    bench_gpu_kernels({device, has_model ? options.model : "a Llama of 2,048 columns", rows,
                       rotate_mib << 20, arguments.has("json")},
                      config);
    return 0;
  }
  const int threads = usable_threads(options.threads);
  Roofline roofline(threads, mib);
  const Ceilings before = roofline.measure();
  KernelBench bench(threads, rotate_mib << 20, roofline);
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t width = config.intermediate_size > 0 ? config.intermediate_size : hidden;
  constexpr std::pair<std::int64_t, std::int64_t> kDecodeSteps[] = {
      {1, 8192}, {16, 1024}};  // sequences, and keys of each
  constexpr std::pair<ops::Format, std::string_view> kFormats[] = {
      {ops::Format::kBf16, "bfloat16"}, {ops::Format::kInt8, "int8"}, {ops::Format::kInt4, "int4"}};
  for (const auto& [format, name] : kFormats)
    for (const std::int64_t m : rows) {
      bench.product(format, name, m, 2 * width, hidden);
      bench.product(format, name, m, hidden, width);
    }
  if (!config.mla)
    for (const auto& [seqs, length] : kDecodeSteps) bench.attention(seqs, length, config);
  if (config.mla && config.indexer)
    for (const std::int64_t length : {4096, 32768}) {
      bench.index(length, config);
      bench.sparse_attention(length, config);
    }
  bench.norm(512, hidden);
  const Ceilings after = roofline.measure();

  const auto peak = [&](const Figure& f) {
    return std::max(before.peak(f.what.instruction), after.peak(f.what.instruction));
  };
  if (arguments.has("json")) {
    for (const Figure& f : bench.figures())
      fmt::print("{}\n", dump_json(Json{{"kernel", f.what.kernel},
                                        {"shape", f.what.shape},
                                        {"microseconds", f.seconds * 1e6},
                                        {"bytes_per_s", f.what.bytes / f.seconds},
                                        {"operations_per_s", f.what.operations / f.seconds},
                                        {"read_bytes_per_s", f.read},
                                        {"steady", f.steady},
                                        {"peak_operations_per_s", peak(f)},
                                        {"share_of_roofline", share_of_roofline(f, peak(f))},
                                        {"threads", threads}}));
    return 0;
  }
  fmt::print("{} threads, {}, shapes of {}; every call reads another copy out of {} MiB\n", threads,
             cpu_isa_name(detect_cpu_isa()), has_model ? options.model : "a Llama of 2,048 columns",
             rotate_mib);
  fmt::print("\n{:<22}{:<40}{:>11}{:>9}{:>9}{:>9}{:>10}\n", "kernel", "shape", "us", "Gop/s",
             "GB/s", "of GB/s", "roofline");
  for (const Figure& f : bench.figures())
    fmt::print("{:<22}{:<40}{:>11.1f}{:>9.0f}{:>9.1f}{:>9.1f}{:>8.1f} %{}\n", f.what.kernel,
               f.what.shape, f.seconds * 1e6, f.what.operations / f.seconds / 1e9,
               f.what.bytes / f.seconds / 1e9, f.read / 1e9, 100 * share_of_roofline(f, peak(f)),
               f.steady ? "" : "  unsteady");
  fmt::print(
      "\nroofline: the time that reading at that bandwidth, or computing at the measured peak of "
      "the kernel's instruction, takes at "
      "least, as a share of the time taken; of GB/s: the read bandwidth right before or after, "
      "unsteady where the two differ by "
      "a tenth in {} tries\n",
      kTries);
  return 0;
}

}  // namespace sluice
