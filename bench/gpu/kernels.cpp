// gpu_kernels: single kernels at the shapes of real models. The work rotates through buffers that
// together exceed the L2 cache, in a graph of many launches. So neither cached data nor the host's
// calls are measured. Prints one JSON object per line: microseconds, and the share of the rate of a
// copy (bytes) or of a large GEMM (operations) in the same run.
//
//   gpu_kernels [FAMILY...]     fused prefill experts small attention drafts products fp8 int
//                               index mla dsa
#include "gpu/kernels.h"

namespace {

using namespace sluice;

void products(Bench& bench) {
  struct Matrix {
    const char* name;
    std::int64_t n, k;
  };
  for (const Matrix& w :
       {Matrix{"qwen3-8b qkv", 6144, 4096}, Matrix{"qwen3-8b o", 4096, 4096},
        Matrix{"qwen3-8b gate_up", 24576, 4096}, Matrix{"qwen3-8b down", 4096, 12288},
        Matrix{"qwen3-8b head", 151936, 4096}, Matrix{"llama-1b qkv", 3072, 2048},
        Matrix{"llama-1b o", 2048, 2048}, Matrix{"llama-1b gate_up", 16384, 2048},
        Matrix{"llama-1b down", 2048, 8192}, Matrix{"qwen3-30b qkv", 5120, 2048},
        Matrix{"qwen3-30b o", 2048, 4096}}) {
    const int sets = sets_for(w.n * w.k * 2);
    const Tensor weights = bench.take(DType::kBF16, {sets, w.n, w.k});
    for (const std::int64_t m : {1, 8, 16, 64, 256}) {
      const Tensor x = bench.take(DType::kBF16, {m, w.k}),
                   out = bench.take(DType::kF32, {m, w.n}, false);
      const double bytes = 2.0 * w.n * w.k + 2.0 * m * w.k + 4.0 * m * w.n;
      bench.time("linear", fmt::format("{} x {}", m, w.name), bytes, 2.0 * m * w.n * w.k, sets,
                 [&](int i) { ops::linear(bench.machine.ctx, x, weights.at(i), {}, out); });
    }
    bench.clear();
  }
}

// `tokens` rows at the end of each of `seqs` sequences of `length` tokens.
void attend(Bench& bench, const char* model, std::int64_t seqs, std::int64_t tokens,
            std::int64_t length, std::int64_t heads, std::int64_t kv_heads, std::int64_t dim,
            DType cache = DType::kBF16) {
  const std::int64_t pages = (length + 63) / 64, slots = seqs * pages * 64,
                     element = dtype_size(cache);
  const int sets = sets_for(slots * kv_heads * dim * 2 * element);
  // Random bytes: times do not depend on the numbers of e4m3.
  const auto plane = [&] {
    const Tensor bytes = bench.take(DType::kBF16, {sets, slots, kv_heads * dim * element / 2});
    return Tensor::dense(bytes.data, cache, {sets, slots, kv_heads * dim}, bytes.device);
  };
  const Tensor k = plane(), v = plane();
  const Tensor q = bench.take(DType::kF32, {seqs * tokens, heads, dim}),
               out = bench.take(DType::kF32, {seqs * tokens, heads, dim}, false);
  // As in a server: the table is as wide as the context, and pages are not in order.
  const std::int64_t width = std::max<std::int64_t>(pages, 640);
  ops::PagedRows rows{
      bench.integers({seqs, width},
                     [&](std::int64_t i) {
                       const std::int64_t place = i / width * pages + i % width;
                       return i % width < pages
                                  ? static_cast<std::int32_t>(place * 7919 % (seqs * pages))
                                  : -1;
                     }),
      bench.integers({seqs * tokens},
                     [&](std::int64_t t) { return static_cast<std::int32_t>(t / tokens); }),
      bench.integers({seqs * tokens}, [&](std::int64_t t) {
        return static_cast<std::int32_t>(length - tokens + t % tokens);
      })};
  if (tokens > 1) rows.prefill = {.seqs = seqs, .pages = seqs * pages};
  if (const std::int64_t wanted =
          ops::prefill_bytes(bench.machine.ctx, q, k.at(0), v.at(0), kv_heads, rows, {});
      wanted > 0)
    rows.prefill.memory = bench.take(DType::kU8, {wanted}, false);
  double pairs = 0;
  for (std::int64_t t = 0; t < tokens; ++t) pairs += static_cast<double>(length - tokens + t + 1);
  const double bytes = static_cast<double>(seqs * length * kv_heads * dim * 2 * element),
               operations = 4.0 * dim * heads * pairs * seqs;
  bench.time(
      "paged_attention",
      fmt::format("{}: {} x {} tokens of {} in {}", model, seqs, tokens, length, dtype_name(cache)),
      bytes, operations, sets, [&](int i) {
        ops::paged_attention(bench.machine.ctx, q, k.at(i), v.at(i), kv_heads, rows,
                             {.scale = 0.1f}, out);
      });
  bench.clear();
}

// A matrix or stack in rows whose GEMM reads bfloat16.
ops::Weight reads_bf16(ops::Weight w) {
  w.input = DType::kBF16;
  return w;
}

void attention(Bench& bench) {
  for (const auto& [seqs, length] :
       {std::pair{1, 2048}, {1, 8192}, {1, 32768}, {8, 2048}, {64, 2048}, {256, 2048}}) {
    attend(bench, "qwen3-8b", seqs, 1, length, 32, 8, 128);
    attend(bench, "llama-1b", seqs, 1, length, 32, 8, 64);
    attend(bench, "qwen3-30b", seqs, 1, length, 32, 4, 128);
  }
  for (const auto& [seqs, length] : {std::pair{1, 8192}, {1, 32768}, {32, 32768}, {64, 2048}})
    for (const DType cache : {DType::kBF16, DType::kF8E4M3})
      attend(bench, "qwen3-8b", seqs, 1, length, 32, 8, 128, cache);
}

void prefill(Bench& bench) {
  for (const std::int64_t length : {128, 1024, 8192}) {
    attend(bench, "qwen3-8b", 1, length, length, 32, 8, 128);
    attend(bench, "llama-1b", 1, length, length, 32, 8, 64);
  }
  attend(bench, "qwen3-8b", 8, 1024, 1024, 32, 8, 128);
  attend(bench, "qwen3-8b", 1, 512, 8192, 32, 8, 128);
  // The same pages in either type.
  for (const auto& [seqs, tokens, length] : {std::tuple{1, 32, 8192},
                                             {1, 128, 8192},
                                             {1, 2048, 2048},
                                             {1, 8192, 8192},
                                             {1, 2048, 32768},
                                             {1, 8192, 32768},
                                             {1, 8192, 131072},
                                             {8, 1024, 8192}})
    for (const DType cache : {DType::kBF16, DType::kF8E4M3})
      attend(bench, "qwen3-8b", seqs, tokens, length, 32, 8, 128, cache);
  // The GEMMs of a layer of qwen3-8b with the ops fused to them.
  Context& ctx = bench.machine.ctx;
  constexpr std::int64_t kTokens = 8192, kHidden = 4096, kQkv = 6144, kWidth = 12288;
  const Tensor x = bench.take(DType::kBF16, {kTokens, kHidden}),
               wide = bench.take(DType::kF32, {kTokens, kHidden});
  const Tensor weight = bench.take(DType::kF32, {kHidden}),
               qkv = bench.take(DType::kF32, {kTokens, kQkv});
  const Tensor inner = bench.take(DType::kBF16, {kTokens, kWidth});
  const Tensor w = bench.take(DType::kBF16, {2 * kWidth, kHidden});
  const ops::Weight gate_up = reads_bf16(w),
                    down = reads_bf16(bench.take(DType::kBF16, {kHidden, kWidth}));
  Arena arena(std::int64_t{2} << 30, ctx.device);
  ctx.arena = &arena;
  const auto operations = [](std::int64_t n, std::int64_t k) {
    return 2.0 * kTokens * static_cast<double>(n * k);
  };
  bench.time("linear", "8192 x qkv", 0, operations(kQkv, kHidden), 1,
             [&](int) { ops::linear(ctx, x, w.rows(0, kQkv), {}, qkv); });
  bench.time("linear_add", "8192 x o", 0, operations(kHidden, kHidden), 1, [&](int) {
    ops::Residual stream{.hidden = wide, .branch = qkv.slice(1, 0, kHidden)};
    ops::linear_add(ctx, x, reads_bf16(w.rows(0, kHidden)), {}, false, stream);
  });
  bench.time("norm_gate_up", "8192 x gate_up", 0, operations(2 * kWidth, kHidden), 1,
             [&](int) { ops::norm_gate_up(ctx, x, gate_up, {}, Activation::kSilu, down, inner); });
  bench.time("linear_add", "8192 x down", 0, operations(kHidden, kWidth), 1, [&](int) {
    ops::Residual stream{.hidden = wide, .branch = qkv.slice(1, 0, kHidden)};
    ops::linear_add(ctx, inner, down, {}, false, stream);
  });
  bench.time("rms_norm", "8192 x 4096", 6.0 * kTokens * kHidden, 0, 1,
             [&](int) { ops::rms_norm(ctx, wide, weight, 1e-6f, x); });
  ctx.arena = nullptr;
  bench.clear();
}

// The other kernels of a layer: their time is that of a launch.
void small(Bench& bench) {
  Context& ctx = bench.machine.ctx;
  for (const std::int64_t tokens : {1, 64, 8192}) {
    const Tensor x = bench.take(DType::kF32, {tokens, 4096}),
                 y = bench.take(DType::kF32, {tokens, 4096});
    const Tensor out = bench.take(DType::kF32, {tokens, 4096}, false),
                 half = bench.take(DType::kBF16, {tokens, 4096}, false);
    const Tensor weight = bench.take(DType::kF32, {4096}),
                 both = bench.take(DType::kF32, {tokens, 24576});
    const Tensor narrow = bench.take(DType::kBF16, {tokens, 12288}, false),
                 heads = bench.take(DType::kF32, {tokens, 32, 128});
    const Tensor angles = bench.take(DType::kF32, {tokens, 128});
    const std::string label = fmt::format("{} x 4096", tokens);
    const double element = 4096.0 * static_cast<double>(tokens);
    bench.time("add_rms_norm", label, 16 * element, 0, 1,
               [&](int) { ops::add_rms_norm(ctx, x, y, weight, 1e-6f, out); });
    bench.time("convert", label, 6 * element, 0, 1, [&](int) { ops::convert(ctx, x, half); });
    bench.time("rope", label, 8 * element, 0, 1,
               [&](int) { ops::rope(ctx, angles, heads, false); });
    bench.time("act_and_mul", fmt::format("{} x 12288", tokens), 10 * 3 * element, 0, 1,
               [&](int) { ops::act_and_mul(ctx, Activation::kSilu, both, narrow); });
    bench.clear();
  }
}

// The last rows of one sequence in a step of drafts. Either a launch before attention writes all
// keys, or each row prepares those of the rows before it.
void draft_rows(Bench& bench) {
  constexpr std::int64_t kHeads = 32, kKvHeads = 8, kDim = 128, kQWidth = kHeads * kDim,
                         kKvWidth = kKvHeads * kDim, kMaxPages = 640;
  Context& ctx = bench.machine.ctx;
  for (const std::int64_t length : {512, 8192})
    for (const std::int64_t tokens : {1, 4, 8}) {
      const std::int64_t pages = length / 64;
      const int sets = sets_for(4 * length * kKvWidth);
      const Tensor k_pool = bench.take(DType::kBF16, {sets, length, kKvWidth}),
                   v_pool = bench.take(DType::kBF16, {sets, length, kKvWidth});
      const Tensor fused = bench.take(DType::kF32, {tokens, kQWidth + 2 * kKvWidth}),
                   angles = bench.take(DType::kF32, {tokens, kDim}),
                   weight = bench.take(DType::kF32, {kDim});
      const Tensor mixed = bench.take(DType::kF32, {tokens, kHeads, kDim}),
                   rounded = bench.take(DType::kBF16, {tokens, kHeads, kDim});
      const auto page_of = [&](std::int64_t entry) { return entry * 7919 % pages; };
      const auto row_of = [](std::int64_t t) { return static_cast<std::int32_t>(t); };
      ops::PagedRows rows{
          bench.integers({tokens, kMaxPages},
                         [&](std::int64_t i) {
                           const std::int64_t entry = i % kMaxPages;
                           return static_cast<std::int32_t>(entry < pages ? page_of(entry) : -1);
                         }),
          bench.integers({tokens}, row_of), bench.integers({tokens}, [&](std::int64_t t) {
            return static_cast<std::int32_t>(length - tokens + t);
          })};
      const Tensor slots = bench.take(DType::kI64, {tokens}, false);
      HostImage image(slots);
      for (std::int64_t t = 0; t < tokens; ++t)
        image.tensor().ptr<std::int64_t>()[t] = page_of(pages - 1) * 64 + 64 - tokens + t;
      image.put();
      const ops::HeadRotation rotation{
          .q_weight = weight, .k_weight = weight, .eps = 1e-6f, .cos_sin = angles};
      const Tensor q = ops::heads_of_rows(fused.slice(1, 0, kQWidth), kHeads),
                   k = fused.slice(1, kQWidth, kKvWidth),
                   v = fused.slice(1, kQWidth + kKvWidth, kKvWidth);
      const double bytes = 4.0 * static_cast<double>(length * kKvWidth);
      const auto shape = [&](const char* way) {
        return fmt::format("qwen3-8b: {} rows of {}, {}", tokens, length, way);
      };
      bench.time("draft_rows", shape("keys before"), bytes, 0, sets, [&](int i) {
        ops::rotate_write_then_attend(ctx, q, k, v, rotation, slots, k_pool.at(i), v_pool.at(i),
                                      kKvHeads, rows, {.scale = 0.1f}, mixed, rounded);
      });
      rows.runs = {.places = bench.integers({tokens}, row_of), .longest = tokens};
      bench.time("draft_rows", shape("one launch"), bytes, 0, sets, [&](int i) {
        ops::rotate_write_and_attend(ctx, q, k, v, rotation, slots, k_pool.at(i), v_pool.at(i),
                                     kKvHeads, rows, {.scale = 0.1f}, mixed, rounded);
      });
      rows.runs = {};
      bench.time("draft_rows", shape("as alone"), bytes, 0, sets, [&](int i) {
        ops::rotate_write_and_attend(ctx, q, k, v, rotation, slots, k_pool.at(i), v_pool.at(i),
                                     kKvHeads, rows, {.scale = 0.1f}, mixed, rounded);
      });
      bench.clear();
    }
}

// The parts of a layer for few rows, each in one launch; then whole layers in the order of a step.
void fused(Bench& bench) {
  Context& ctx = bench.machine.ctx;
  struct Layer {
    const char* name;
    std::int64_t hidden, heads, kv_heads, dim, width, experts, top_k;
  };
  for (const Layer& l : {Layer{"llama-1b", 2048, 32, 8, 64, 8192, 0, 0},
                         Layer{"qwen3-8b", 4096, 32, 8, 128, 12288, 0, 0},
                         Layer{"qwen3-30b", 2048, 32, 4, 128, 768, 128, 8}}) {
    const std::int64_t q_width = l.heads * l.dim, kv_width = l.kv_heads * l.dim,
                       all = q_width + 2 * kv_width, length = 2048;
    const std::int64_t gates = l.experts > 0 ? l.experts * 2 * l.width : 2 * l.width;
    const int sets = 4;
    const Tensor qkv = bench.take(DType::kBF16, {sets, all, l.hidden}),
                 o = bench.take(DType::kBF16, {sets, l.hidden, q_width});
    const Tensor w13 = bench.take(DType::kBF16, {sets, gates, l.hidden});
    const Tensor w2 =
        bench.take(DType::kBF16, {sets, l.experts > 0 ? l.experts * l.hidden : l.hidden, l.width});
    const Tensor router =
        bench.take(DType::kF32, {sets, std::max<std::int64_t>(l.experts, 1), l.hidden});
    const Tensor weight = bench.take(DType::kF32, {l.hidden}),
                 head_weight = bench.take(DType::kF32, {l.dim});
    Arena arena(std::int64_t{64} << 20, ctx.device);
    ctx.arena = &arena;
    for (const std::int64_t tokens : {1, 8}) {
      const std::int64_t pages = length / 64, slots = tokens * pages * 64;
      const Tensor k_pool = bench.take(DType::kBF16, {sets, slots, kv_width}),
                   v_pool = bench.take(DType::kBF16, {sets, slots, kv_width});
      const Tensor hidden = bench.take(DType::kF32, {tokens, l.hidden}),
                   fused = bench.take(DType::kF32, {tokens, all});
      const Tensor normed = bench.take(DType::kBF16, {tokens, l.hidden}),
                   wide = bench.take(DType::kF32, {tokens, l.hidden});
      const Tensor mixed = bench.take(DType::kF32, {tokens, l.heads, l.dim}),
                   rounded = bench.take(DType::kBF16, {tokens, l.heads, l.dim});
      const Tensor inner = bench.take(DType::kBF16, {tokens, l.width});
      const Tensor angles = bench.take(DType::kF32, {tokens, l.dim});
      const ops::PagedRows rows{
          bench.integers({tokens, 64},
                         [&](std::int64_t i) {
                           return i % 64 < pages
                                      ? static_cast<std::int32_t>((i / 64 * pages + i % 64) * 7919 %
                                                                  (tokens * pages))
                                      : -1;
                         }),
          bench.integers({tokens}, [](std::int64_t t) { return static_cast<std::int32_t>(t); }),
          bench.integers({tokens},
                         [&](std::int64_t) { return static_cast<std::int32_t>(length - 1); })};
      const Tensor new_slots = bench.take(DType::kI64, {tokens}, false);
      HostImage image(new_slots);
      for (std::int64_t t = 0; t < tokens; ++t)
        image.tensor().ptr<std::int64_t>()[t] =
            (t * pages + pages - 1) * 7919 % (tokens * pages) * 64 + 63;
      image.put();
      const ops::HeadRotation rotation{
          .q_weight = head_weight, .k_weight = head_weight, .eps = 1e-6f, .cos_sin = angles};
      const Tensor q = ops::heads_of_rows(fused.slice(1, 0, q_width), l.heads);
      const Tensor flat = rounded.reshape({tokens, q_width});
      const auto project = [&](int i) {
        ops::Residual stream{.hidden = hidden, .branch = wide};
        ops::norm_linear(ctx, {stream, {weight, 1e-6f}}, reads_bf16(qkv.at(i)), {}, fused);
      };
      const auto attend = [&](int i) {
        ops::rotate_write_and_attend(ctx, q, fused.slice(1, q_width, kv_width),
                                     fused.slice(1, q_width + kv_width, kv_width), rotation,
                                     new_slots, k_pool.at(i), v_pool.at(i), l.kv_heads, rows,
                                     {.scale = 0.1f}, mixed, rounded);
      };
      const auto join = [&](int i) {
        ops::Residual stream{.hidden = hidden, .branch = wide};
        ops::linear_add(ctx, flat, reads_bf16(o.at(i)), {}, false, stream);
      };
      const auto label = [&](const char* what) {
        return fmt::format("{} {} rows", what, tokens) + " " + l.name;
      };
      const double pairs = static_cast<double>(tokens * l.top_k);
      const double used =
          l.experts == 0
              ? 1
              : l.experts * (1 - std::pow(1 - static_cast<double>(l.top_k) / l.experts, tokens));
      const double attention_bytes = 4.0 * slots * kv_width,
                   mlp_bytes = 6.0 * used * l.width * l.hidden;
      bench.time("joined", label("norm, qkv"), 2.0 * all * l.hidden, 0, sets, project);
      bench.time("joined", label("attention"), attention_bytes, 0, sets, attend);
      bench.time("joined", label("o, sum"), 2.0 * q_width * l.hidden, 0, sets, join);
      std::function<void(int)> feed;
      Arena::Scope scope(arena);
      if (l.experts == 0) {
        const auto gate = [&](int i) {
          ops::Residual stream{.hidden = hidden, .branch = wide};
          ops::norm_gate_up(ctx, {stream, {weight, 1e-6f}}, reads_bf16(w13.at(i)), {},
                            Activation::kSilu, reads_bf16(w2.at(i)), inner);
        };
        const auto down = [&](int i) {
          ops::Residual stream{.hidden = hidden, .branch = wide};
          ops::linear_add(ctx, inner, reads_bf16(w2.at(i)), {}, false, stream);
        };
        bench.time("joined", label("norm, gate_up"), 4.0 * l.width * l.hidden, 0, sets, gate);
        bench.time("joined", label("down, sum"), 2.0 * l.width * l.hidden, 0, sets, down);
        feed = [=](int i) { gate(i), down(i); };
      } else {
        const Tensor weights = arena.take(DType::kF32, {tokens, l.top_k}),
                     ids = arena.take(DType::kI32, {tokens, l.top_k});
        const auto up = [&l, w13](int i) {
          return reads_bf16(w13.at(i).reshape({l.experts, 2 * l.width, l.hidden}));
        };
        const auto route = [&ctx, &l, hidden, weight, router, wide, up, normed, weights,
                            ids](int i) {
          ops::Residual stream{.hidden = hidden, .branch = wide};
          ops::norm_route(ctx, {stream, {weight, 1e-6f}}, router.at(i), {}, {},
                          ops::softmax_router(static_cast<int>(l.top_k), true), up(i), normed,
                          weights, ids);
        };
        const auto mix = [&ctx, &l, hidden, up, w2, normed, wide, weights, ids](int i) {
          ops::Residual stream{.hidden = hidden, .branch = wide};
          ops::experts_add(ctx, normed, up(i),
                           reads_bf16(w2.at(i).reshape({l.experts, l.hidden, l.width})), weights,
                           ids, Activation::kSilu, false, stream);
        };
        bench.time("joined", label("norm, route"), 4.0 * l.experts * l.hidden, 0, sets, route);
        // The rows are similar here, so fewer experts are read than for independent rows: at most
        // `pairs`.
        bench.time("joined", label("experts"), std::min(used, pairs) * 6.0 * l.width * l.hidden, 0,
                   sets, mix);
        feed = [=](int i) { route(i), mix(i); };
      }
      bench.time("joined", label("layer"),
                 2.0 * (all + q_width) * l.hidden + attention_bytes + mlp_bytes, 0, sets,
                 [&](int i) { project(i), attend(i), join(i), feed(i); });
    }
    ctx.arena = nullptr;
    bench.clear();
  }
}

struct Family {
  std::string_view name;
  void (*run)(Bench&);
};
constexpr Family kFamilies[] = {
    {"fused", fused},         {"prefill", prefill},   {"experts", experts}, {"small", small},
    {"attention", attention}, {"products", products}, {"fp8", fp8},         {"int", int_weights},
    {"index", index},         {"mla", mla},           {"dsa", dsa},         {"drafts", draft_rows}};

}  // namespace

int main(int argc, char** argv) {
  try {
    Bench bench(choose_device("cuda"));
    for (const Family& family : kFamilies)
      if (argc < 2 ||
          std::any_of(argv + 1, argv + argc, [&](const char* word) { return family.name == word; }))
        family.run(bench);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return exit_code(error.kind());
  }
}
