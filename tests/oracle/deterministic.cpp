// Deterministic operations: a row has the same bits whatever rows are beside it.
#include <cstring>

#include "batch.h"
#include "ops/attention.h"
#include "ops/gemm.h"
#include "ops/moe.h"
#include "oracle.h"

namespace sluice::oracle {
namespace {

double element(const Twin& twin, const std::vector<std::byte>& bytes, std::int64_t row,
               std::int64_t j) {
  const std::int64_t last = twin.host.rank == 3 ? twin.host.dim(2) : 1;
  return twin.at(bytes.data(), row, j / last, j % last);
}

// Whether rows [first, first + count) of `whole` are rows [at, at + count) of `part`, bit for bit;
// both as downloaded.
std::string compare_rows(const Twin& whole, const std::vector<std::byte>& whole_bytes,
                         std::int64_t first, const Twin& part,
                         const std::vector<std::byte>& part_bytes, std::int64_t at,
                         std::int64_t count) {
  const Tensor& t = whole.host;
  const std::int64_t elements = t.rank == 3 ? t.dim(1) * t.dim(2) : t.dim(1),
                     size = dtype_size(t.dtype);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::byte* wanted = whole_bytes.data() + whole.offset(first + i, 0, 0) * size;
    const std::byte* got = part_bytes.data() + part.offset(at + i, 0, 0) * size;
    for (std::int64_t j = 0; j < elements; ++j)
      if (std::memcmp(wanted + j * size, got + j * size, static_cast<std::size_t>(size)) != 0)
        return fmt::format("element {} of row {} of {} is {}, among other rows it is {}", j, i,
                           count, element(part, part_bytes, at + i, j),
                           element(whole, whole_bytes, first + i, j));
  }
  return "";
}

void check_gemms_of_rows(Bench& bench) {
  constexpr std::int64_t kRows = 700;
  struct Shape {
    std::int64_t n, k;
  };
  // Tiles of every size, whole ones and ends; few columns and many.
  for (const Shape& s : {Shape{4100, 1032}, Shape{2056, 520}, Shape{513, 72}, Shape{6144, 4096},
                         Shape{40, 8}, Shape{4096, 12288}, Shape{20000, 264}}) {
    Twin x(bench, DType::kBF16, {kRows, s.k}, 8), w(bench, DType::kBF16, {s.n, s.k}),
        out(bench, DType::kF32, {kRows, s.n}, 4 - s.n % 4);
    Twin bias(bench, DType::kF32, {s.n}), magnitude(bench, DType::kF32, {kRows, s.n}, 4 - s.n % 4);
    x.fill(141);
    w.fill(142);
    bias.fill(143);
    magnitude.set([&](std::int64_t, std::int64_t, std::int64_t) {
      return 1.0 + 0.3 * static_cast<double>(s.k);
    });
    const std::string label = fmt::format("{} x {} x {}", kRows, s.n, s.k);
    // Tensor cores truncate terms below 2^-24 of the maximum of 16 terms and the sum.
    const Allowed allowed{.bound = 2 * sum_error(s.k) + 4 * kUnit, .scale = &magnitude};
    const auto multiply = [&](const Context& ctx, std::int64_t first, std::int64_t count,
                              const Tensor& to) {
      Context own = deterministic(ctx);
      ops::linear(own, x(ctx).rows(first, count), w(ctx), bias(ctx), to);
    };
    bench.compare("linear, in order", label, {{&out, allowed}},
                  [&](Context& ctx) { multiply(ctx, 0, kRows, out(ctx)); });
    const Bench::Group group(bench);
    if (!group.is_own() || !bench.fits("linear, alone")) continue;
    out.reset();
    multiply(bench.gpu, 0, kRows, out.device);
    bench.stream.synchronize();
    const std::vector<std::byte> whole = out.download();
    for (const std::int64_t count : {1, 2, 7, 8, 9, 32, 64, 65, 128, 300})
      for (const std::int64_t first : {std::int64_t{0}, kRows - count}) {
        Twin part(bench, DType::kF32, {count, s.n}, 4 - s.n % 4);
        multiply(bench.gpu, first, count, part.device);
        bench.stream.synchronize();
        bench.expect("linear, alone", fmt::format("{}: {} rows from {}", label, count, first),
                     compare_rows(out, whole, first, part, part.download(), 0, count));
      }
  }
}

void check_attention_of_rows(Bench& bench) {
  const std::vector<std::int64_t> lengths{1000, 333, 64, 1};
  std::vector<RowRun> all;
  std::vector<std::int64_t> begins;  // first row of each sequence among all rows
  std::int64_t total = 0;
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    all.push_back({static_cast<std::int64_t>(s), 0, lengths[s]});
    begins.push_back(total);
    total += lengths[s];
  }
  const Batch batch(bench, lengths, all);
  const std::vector<std::vector<RowRun>> parts{
      {{0, 999, 1000}},
      {{0, 0, 1000}},
      {{0, 600, 700}},
      {{0, 511, 518}},
      {{0, 100, 101}, {1, 332, 333}, {2, 63, 64}, {3, 0, 1}},
      {{1, 5, 300}, {0, 999, 1000}, {2, 10, 11}},
      {{2, 0, 64}, {0, 64, 90}, {1, 128, 333}}};
  struct Heads {
    std::int64_t heads, kv_heads, dim;
    DType dtype;
  };
  for (const Heads& h : {Heads{8, 2, 128, DType::kBF16}, Heads{5, 1, 128, DType::kBF16},
                         Heads{8, 1, 64, DType::kBF16}, Heads{3, 3, 64, DType::kBF16},
                         Heads{4, 2, 96, DType::kBF16}, Heads{4, 2, 64, DType::kF32},
                         Heads{8, 2, 128, DType::kF8E4M3}, Heads{5, 1, 64, DType::kF8E4M3},
                         Heads{4, 2, 256, DType::kF8E4M3}, Heads{3, 3, 40, DType::kF8E4M3}})
    for (const std::int64_t window : {0, 90, 300}) {
      Twin k(bench, h.dtype, {batch.slots(), h.kv_heads * h.dim}),
          v(bench, h.dtype, {batch.slots(), h.kv_heads * h.dim});
      Twin q(bench, DType::kF32, {total, h.heads, h.dim}),
          out(bench, DType::kF32, {total, h.heads, h.dim});
      const Bench::Group group(bench);
      if (!group.is_own() || !bench.fits("attention, alone")) continue;
      q.fill(151, 2);
      batch.fill_keys(k, 152);
      batch.fill_keys(v, 153);
      const auto attend = [&](const Batch& rows, const Twin& queries, const Twin& to) {
        Context own = deterministic(bench.gpu);
        Arena::Scope scope(*own.arena);
        ops::paged_attention(own, queries.device, k.device, v.device, h.kv_heads, rows.rows(own),
                             {.scale = 0.1f, .window = window}, to.device);
        bench.stream.synchronize();
      };
      attend(batch, q, out);
      const std::vector<std::byte> whole = out.download();
      for (const std::vector<RowRun>& runs : parts) {
        const Batch some(bench, lengths, runs);
        std::vector<std::int64_t> rows;  // row numbers of its rows among all rows
        for (const RowRun& run : runs)
          for (std::int64_t p = run.first; p < run.end; ++p)
            rows.push_back(begins[static_cast<std::size_t>(run.seq)] + p);
        Twin queries(bench, DType::kF32, {some.tokens(), h.heads, h.dim}),
            part(bench, DType::kF32, {some.tokens(), h.heads, h.dim});
        queries.set([&](std::int64_t t, std::int64_t head, std::int64_t i) {
          return q.at(q.host.data, rows[static_cast<std::size_t>(t)], head, i);
        });
        attend(some, queries, part);
        const std::vector<std::byte> got = part.download();
        std::string problem;
        for (std::int64_t t = 0; t < some.tokens() && problem.empty(); ++t)
          problem = compare_rows(out, whole, rows[static_cast<std::size_t>(t)], part, got, t, 1);
        bench.expect("attention, alone",
                     fmt::format("{} of {} heads of {} {}, window {}: {} rows, the first at {}",
                                 h.heads, h.kv_heads, h.dim, dtype_name(h.dtype), window,
                                 some.tokens(), some.position(0)),
                     problem);
      }
    }
}

void check_experts_of_rows(Bench& bench) {
  constexpr std::int64_t kTokens = 300;
  struct Shape {
    std::int64_t experts, top_k, hidden, width;
  };
  for (const Shape& s : {Shape{16, 4, 256, 264}, Shape{4, 2, 200, 72}, Shape{60, 4, 1024, 96},
                         Shape{5, 3, 33, 17}}) {
    Twin x(bench, DType::kBF16, {kTokens, s.hidden}, s.hidden % 8 == 0 ? 8 : 0),
        w13(bench, DType::kBF16, {s.experts, 2 * s.width, s.hidden});
    Twin w2(bench, DType::kBF16, {s.experts, s.hidden, s.width}),
        weights(bench, DType::kF32, {kTokens, s.top_k});
    Twin ids(bench, DType::kI32, {kTokens, s.top_k}), out(bench, DType::kF32, {kTokens, s.hidden});
    const Bench::Group group(bench);
    if (!group.is_own() || !bench.fits("fused_experts, alone")) continue;
    x.fill(161);
    w13.fill(162, 0.1);
    w2.fill(163);
    weights.fill(164);
    ids.set([&](std::int64_t t, std::int64_t j, std::int64_t) {
      return static_cast<double>(j + (s.experts - s.top_k) * (t % 7) / 7);
    });
    const auto mix = [&](std::int64_t first, std::int64_t count, const Tensor& to) {
      Context own = deterministic(bench.gpu);
      Arena::Scope scope(*own.arena);
      const ops::MoeWorkspace workspace = ops::take_moe_workspace(
          *own.arena, count, s.top_k, s.experts, s.hidden, s.width, {DType::kBF16, s.width});
      ops::fused_experts(own, x.device.rows(first, count), w13.device, w2.device,
                         weights.device.rows(first, count), ids.device.rows(first, count),
                         Activation::kSilu, workspace, to);
      bench.stream.synchronize();
    };
    mix(0, kTokens, out.device);
    const std::vector<std::byte> whole = out.download();
    for (const std::int64_t count : {1, 2, 7, 32, 65, 200})
      for (const std::int64_t first : {std::int64_t{0}, kTokens - count}) {
        Twin part(bench, DType::kF32, {count, s.hidden});
        mix(first, count, part.device);
        bench.expect("fused_experts, alone",
                     fmt::format("{} of {}, {} x {}: {} tokens from {}", s.top_k, s.experts,
                                 s.hidden, s.width, count, first),
                     compare_rows(out, whole, first, part, part.download(), 0, count));
      }
  }
}

}  // namespace

void check_deterministic(Bench& bench) {
  check_experts_of_rows(bench);
  check_gemms_of_rows(bench);
  check_attention_of_rows(bench);
}

}  // namespace sluice::oracle
