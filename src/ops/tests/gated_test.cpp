// gated_linear() against its parts: the same bits.
#include "ops/activation.h"
#include "ops/gemm.h"
#include "ops/packing.h"
#include "ops/testing/support.h"
#include "tensor/buffer.h"

namespace sluice::ops {
namespace {

struct Packed {
  Packed(const Context& ctx, Format format, std::int64_t group, const Tensor& plain)
      : w(weight_form(ctx, format, DType::kBF16, group)) {
    w.rows = plain.dim(0);
    w.columns = plain.dim(1);
    memory = Buffer(packed_bytes(ctx, w));
    w.data = memory.tensor(DType::kU8, {1, packed_bytes(ctx, w)});
    pack_rows(ctx, plain, w, 0, 0);
  }
  Weight w;
  Buffer memory;
};

// Rows of x in the input form of w, in memory with poisoned gaps.
struct Rows {
  Rows(const Context& ctx, const Weight& w, std::int64_t count)
      : rows(prepared_shape(ctx, w, count).dtype, {count, prepared_shape(ctx, w, count).elements},
             64) {}
  Owned rows;
};

TEST(GatedLinear, HasTheBitsOfItsParts) {
  struct Form {
    Format first, second;
    std::int64_t group;
  };
  const Form forms[] = {{Format::kBf16, Format::kBf16, 0},
                        {Format::kInt8, Format::kInt8, 32},
                        {Format::kInt4, Format::kInt8, 128},
                        {Format::kBf16, Format::kInt4, 32}};
  on_every_machine([&](Context& ctx, Context&) {
    unsigned seed = 0;
    for (const Form& form : forms)
      for (const std::int64_t width :
           {24, 80, 272, 528})  // within a tile, few columns, two kinds of last ranges
        for (const std::int64_t m : {1, 5, 19}) {
          constexpr std::int64_t kHidden = 70, kOut = 40;
          Owned x(DType::kF32, {m, kHidden}), w(DType::kBF16, {2 * width, kHidden}),
              down(DType::kBF16, {kOut, width});
          Owned bias(DType::kF32, {2 * width}), both(DType::kF32, {m, 2 * width}, 5),
              workspace(DType::kF32, {m, 2 * width}, 5);
          Owned hidden(DType::kF32, {m, width});
          fill(x, ++seed, 2.0);
          fill(w, ++seed);
          fill(down, ++seed);
          fill(bias, ++seed);
          const auto group_of = [&](Format format) {
            return format == Format::kBf16 ? 0 : form.group;
          };
          const Packed first(ctx, form.first, group_of(form.first), w),
              second(ctx, form.second, group_of(form.second), down);
          const Tensor b = m == 5 ? bias.view : Tensor{};
          const Activation activation = m == 1 ? Activation::kGeluTanh : Activation::kSilu;
          Rows in(ctx, first.w, m), want(ctx, second.w, m), got(ctx, second.w, m);
          prepare_rows(ctx, x, first.w, in.rows);
          linear(ctx, in.rows, first.w, b, both);
          act_and_mul(ctx, activation, both, hidden);
          prepare_rows(ctx, hidden, second.w, want.rows);
          weight_ops(ctx, first.w)
              .gate_up(ctx, in.rows, first.w, b, activation, workspace, second.w, got.rows);
          for (std::int64_t t = 0; t < m; ++t)
            ASSERT_EQ(std::memcmp(static_cast<std::byte*>(got.rows->data) +
                                      t * got.rows->stride[0] * dtype_size(got.rows->dtype),
                                  static_cast<std::byte*>(want.rows->data) +
                                      t * want.rows->stride[0] * dtype_size(want.rows->dtype),
                                  static_cast<std::size_t>(want.rows->dim(1) *
                                                           dtype_size(want.rows->dtype))),
                      0)
                << "width " << width << ", row " << t << " of " << m;
          ASSERT_TRUE(gaps_untouched(got.rows));
          ASSERT_TRUE(gaps_untouched(workspace));
        }
  });
}

}  // namespace
}  // namespace sluice::ops
