#include "kernels/cpu/recurrent/recurrent.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/cpu/common/rows.h"
#include "kernels/cpu/cpu.h"

namespace sluice::cpu {
namespace {

constexpr std::int64_t kChannelBlock = 64;

const RecurrentKernels& recurrent_kernels(const Context& ctx) {
  return ctx.cpu_isa == CpuIsa::kAvx2 ? avx2_recurrent_kernels() : avx512_recurrent_kernels();
}

// Rows and state slot of one sequence, and the slot with the state before them.
struct Part {
  std::int64_t first = 0;
  std::int64_t tokens = 0;
  std::int64_t slot = 0;
  std::int64_t source = 0;
  bool fresh = false;

  // Brings `count` elements of the state before the part to where the part changes them.
  void begin(const Tensor& state, std::int64_t offset, std::int64_t count) const {
    if (source == slot) return;
    std::copy_n(row<float>(state, source) + offset, count, row<float>(state, slot) + offset);
  }
};

Part part(const ops::SequenceRows& rows, std::int64_t s) {
  const std::int32_t* start = rows.start_loc.ptr<std::int32_t>();
  const Tensor& sources = rows.state_sources.defined() ? rows.state_sources : rows.state_slots;
  return {.first = start[s],
          .tokens = start[s + 1] - start[s],
          .slot = rows.state_slots.ptr<std::int32_t>()[s],
          .source = sources.ptr<std::int32_t>()[s],
          .fresh = rows.prefix_lens.ptr<std::int32_t>()[s] == 0};
}

// Sequences must cover the rows of the batch in order, and have valid state slots.
void check_parts(const ops::SequenceRows& rows, std::int64_t num_rows, std::int64_t num_slots) {
  std::int64_t next = 0, slot_before = -1;
  for (std::int64_t s = 0; s < rows.state_slots.dim(0); ++s) {
    const Part p = part(rows, s);
    check(p.first == next && p.tokens >= 0 && p.slot >= 0 && p.slot < num_slots,
          "sequence {}: rows [{}, {}) behind row {}, state {} of {}", s, p.first,
          p.first + p.tokens, next, p.slot, num_slots);
    check(p.source == p.slot || (p.source == slot_before && p.tokens == 1),
          "sequence {} of {} rows continues state {}, the one before it has {}", s, p.tokens,
          p.source, slot_before);
    next += p.tokens;
    slot_before = p.slot;
  }
  check(next == num_rows, "the sequences have {} rows, the batch {}", next, num_rows);
}

}  // namespace

void causal_conv(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias, bool silu,
                 const ops::SequenceRows& rows, const Tensor& state, const Tensor& out) {
  check_parts(rows, x.dim(0), state.dim(0));
  const std::int64_t taps = weight.dim(0), channels = weight.dim(1);
  const auto kernel = recurrent_kernels(ctx).conv[taps - ops::kMinConvTaps];
  const std::int64_t blocks = (channels + kChannelBlock - 1) / kChannelBlock;
  parallel(ctx, blocks, x.dim(0) * kChannelBlock * taps, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t first = begin * kChannelBlock,
                       last = std::min(channels, end * kChannelBlock);
    for (std::int64_t s = 0; s < rows.state_slots.dim(0); ++s) {
      const Part p = part(rows, s);
      if (p.tokens == 0) continue;
      for (std::int64_t tap = 0; tap + 1 < taps; ++tap)
        p.begin(state, tap * channels + first, last - first);
      ConvArgs args{.x = row<float>(x, p.first),
                    .x_stride = x.stride[0],
                    .weight = weight.ptr<float>(),
                    .bias = bias.defined() ? bias.ptr<float>() : nullptr,
                    .state = row<float>(state, p.slot),
                    .channels = channels,
                    .fresh = p.fresh,
                    .silu = silu,
                    .out = row<float>(out, p.first),
                    .out_stride = out.stride[0],
                    .tokens = p.tokens};
      // In blocks of channels: the rows' cache lines are still cached when the next vector of a
      // block needs them.
      for (std::int64_t c = first; c < last; c += kChannelBlock)
        kernel(args, c, std::min(kChannelBlock, last - c));
    }
  });
}

void recurrent_scan(Context& ctx, const ops::ScanInputs& in, const ops::SequenceRows& rows,
                    const Tensor& state, const Tensor& out) {
  check_parts(rows, in.v.dim(0), state.dim(0));
  const std::int64_t heads = in.v.dim(1), dk = in.k.dim(2), dv = in.v.dim(2),
                     repeat = heads / in.k.dim(1);
  const std::int64_t blocks = (dv + ops::kStateColumns - 1) / ops::kStateColumns;
  // One decay per head, or one per channel of the keys.
  const bool by_key = in.decay.dim(1) != heads;
  const auto scan = recurrent_kernels(ctx).scan;
  // A task is one block of state columns of one head; it runs over all sequences.
  parallel(ctx, heads * blocks, 4 * in.v.dim(0) * dk * ops::kStateColumns,
           [&](std::int64_t begin, std::int64_t end) {
             for (std::int64_t task = begin; task < end; ++task) {
               const std::int64_t head = task / blocks, block = task % blocks,
                                  column = block * ops::kStateColumns;
               for (std::int64_t s = 0; s < rows.state_slots.dim(0); ++s) {
                 const Part p = part(rows, s);
                 if (p.tokens == 0) continue;
                 p.begin(state, task * dk * ops::kStateColumns, dk * ops::kStateColumns);
                 scan({.q = at<float>(in.q, p.first, head / repeat),
                       .q_stride = in.q.stride[0],
                       .k = at<float>(in.k, p.first, head / repeat),
                       .k_stride = in.k.stride[0],
                       .v = at<float>(in.v, p.first, head) + column,
                       .v_stride = in.v.stride[0],
                       .decay = row<float>(in.decay, p.first) + (by_key ? head * dk : head),
                       .decay_stride = in.decay.stride[0],
                       .decay_by_key = by_key,
                       .beta = row<float>(in.beta, p.first) + head,
                       .beta_stride = in.beta.stride[0],
                       .skip = in.skip.defined() ? in.skip.ptr<float>()[head] : 0.0f,
                       .delta = in.delta,
                       .fresh = p.fresh,
                       .state = row<float>(state, p.slot) + task * dk * ops::kStateColumns,
                       .out = at<float>(out, p.first, head) + column,
                       .out_stride = out.stride[0],
                       .dk = dk,
                       .columns = static_cast<int>(std::min(ops::kStateColumns, dv - column)),
                       .tokens = p.tokens});
               }
             }
           });
}

void decay_gates(Context& ctx, const Tensor& x, const Tensor& bias, const Tensor& rate,
                 float min_step, float max_step, const Tensor& step, const Tensor& decay) {
  const std::int64_t n = x.dim(1);
  parallel(ctx, x.dim(0), 16 * n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      recurrent_kernels(ctx).gates(row<float>(x, t), bias.ptr<float>(), rate.ptr<float>(), min_step,
                                   max_step, step.defined() ? row<float>(step, t) : nullptr,
                                   row<float>(decay, t), n);
  });
}

void sigmoid(Context& ctx, const Tensor& x, const Tensor& out) {
  parallel(ctx, num_rows(x), 8 * x.dim(-1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      recurrent_kernels(ctx).sigmoid(row<float>(x, t), row<float>(out, t), x.dim(-1));
  });
}

void gated_mul(Context& ctx, ops::Gate fn, const Tensor& x, const Tensor& gate, const Tensor& out) {
  parallel(ctx, num_rows(x), 8 * x.dim(-1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      recurrent_kernels(ctx).gated_mul(fn, row<float>(x, t), row<float>(gate, t),
                                       row<float>(out, t), x.dim(-1));
  });
}

}  // namespace sluice::cpu
