// GEMMs: every kernel that choose_gemm knows, odd and real shapes.
#include "ops/gemm.h"
#include "ops/weight_table.h"
#include "oracle.h"

namespace sluice::oracle {
namespace {

struct Shape {
  std::int64_t m, n, k, pad;
};
constexpr Shape kShapes[] = {{1, 1, 1, 0},         {3, 5, 7, 1},        {1, 512, 1000, 0},
                             {8, 129, 4096, 8},    {9, 64, 2048, 0},    {17, 200, 333, 3},
                             {64, 768, 768, 0},    {65, 96, 130, 2},    {200, 512, 1024, 8},
                             {512, 1024, 2048, 0}, {1, 4096, 12288, 0}, {16, 513, 4096, 8},
                             {5, 20, 8, 0},        {11, 6000, 1048, 0}, {2, 16, 40, 0},
                             {130, 64, 7168, 8},   {70, 129, 1100, 4},  {33, 256, 2048, 0}};

// The types of the weights that a GPU's rows of ops/weight_table.h hold as plain numbers. FP8 is in
// fp8.cpp, int8 in rows in int8.cpp, and fragments are in int_weights.cpp. A row of another format
// or layout needs cases of its own, and fails here until it has them.
std::vector<DType> stored_types(Bench& bench) {
  const Bench::Group group(bench);
  std::vector<DType> types;
  for (const ops::WeightOps& row : ops::weight_rows(DeviceKind::kCuda))
    if (row.layout == ops::Layout::kRows && !ops::is_quantised(row.format))
      types.push_back(row.format == ops::Format::kBf16  ? DType::kBF16
                      : row.format == ops::Format::kF16 ? DType::kF16
                                                        : DType::kF32);
    else if (row.format != ops::Format::kFp8 && row.format != ops::Format::kInt8 &&
             row.layout != ops::Layout::kFragments && group.is_own())
      bench.expect("linear", std::string(row.name), "no case has weights of this row");
  return types;
}

}  // namespace

void check_gemms(Bench& bench) {
  const std::vector<DType> w_types = stored_types(bench);
  for (const Shape& s : kShapes)
    for (const DType x_type : {DType::kF32, DType::kBF16})
      for (const DType w_type : w_types) {
        Twin x(bench, x_type, {s.m, s.k}, s.pad), w(bench, w_type, {s.n, s.k}, s.pad),
            bias(bench, DType::kF32, {s.n});
        Twin out(bench, DType::kF32, {s.m, s.n}, s.pad),
            magnitude(bench, DType::kF32, {s.m, s.n}, s.pad);
        x.fill(41);
        w.fill(42);
        bias.fill(43);
        // Sum of |x| |w| for uniform numbers, K / 4: the bound of the sums without a second GEMM in
        // double.
        magnitude.set([&](std::int64_t, std::int64_t, std::int64_t) {
          return 1.0 + 0.3 * static_cast<double>(s.k);
        });
        const Allowed allowed{.bound = sum_error(s.k) + 4 * kUnit, .scale = &magnitude};
        const std::string label = fmt::format("{} x {} x {} {} by {}", s.m, s.n, s.k,
                                              dtype_name(x_type), dtype_name(w_type));
        bench.compare("linear", label, {{&out, allowed}},
                      [&](Context& ctx) { ops::linear(ctx, x(ctx), w(ctx), {}, out(ctx)); });
        bench.compare("linear", label + " and bias", {{&out, allowed}},
                      [&](Context& ctx) { ops::linear(ctx, x(ctx), w(ctx), bias(ctx), out(ctx)); });
      }
  struct Heads {
    std::int64_t m, heads, n, k;
  };
  for (const Heads& s :
       {Heads{1, 3, 5, 7}, Heads{4, 16, 512, 128}, Heads{70, 8, 128, 512}, Heads{130, 4, 192, 64}})
    for (const DType type : {DType::kF32, DType::kBF16}) {
      // Slices of wider rows, as the queries of MLA are.
      Twin x(bench, type, {s.m, s.heads, s.k}, 64), w(bench, type, {s.heads, s.n, s.k});
      Twin out(bench, DType::kF32, {s.m, s.heads, s.n}, 8),
          magnitude(bench, DType::kF32, {s.m, s.heads, s.n}, 8);
      x.fill(44);
      w.fill(45);
      magnitude.set([&](std::int64_t, std::int64_t, std::int64_t) {
        return 1.0 + 0.3 * static_cast<double>(s.k);
      });
      bench.compare("linear_heads",
                    fmt::format("{} x {} x {} x {} {}", s.m, s.heads, s.n, s.k, dtype_name(type)),
                    {{&out, {.bound = sum_error(s.k), .scale = &magnitude}}},
                    [&](Context& ctx) { ops::linear_heads(ctx, x(ctx), w(ctx), out(ctx)); });
    }
}

}  // namespace sluice::oracle
