// Recurrent layers: their short convolution, and the scan of a head's state.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cli/doctor/kernel_cases.h"
#include "ops/recurrent.h"

namespace sluice {
namespace {

// A prompt that begins, and a sequence that decodes.
constexpr std::int64_t kTokens[] = {21, 1}, kRows = 22, kSlots[] = {2, 0}, kStates = 3;

struct Sequences {
  explicit Sequences(KernelCheck& check)
      : start(check, DType::kI32, {3}),
        before(check, DType::kI32, {2}),
        slots(check, DType::kI32, {2}) {
    start.set([](std::int64_t i) { return i == 0 ? 0 : i == 1 ? kTokens[0] : kRows; });
    before.set([](std::int64_t i) { return i == 0 ? 0 : 40; });
    slots.set([](std::int64_t i) { return static_cast<double>(kSlots[i]); });
  }
  ops::SequenceRows operator()(const Context& ctx) const {
    return {start(ctx), before(ctx), slots(ctx)};
  }
  Sample start, before, slots;
};

void check_convolution(KernelCheck& check, const RecurrentConfig& recurrent,
                       std::int64_t channels) {
  const std::int64_t taps = recurrent.conv_kernel;
  const Sequences sequences(check);
  Sample x(check, DType::kF32, {kRows, channels}), weight(check, DType::kF32, {taps, channels});
  Sample state(check, DType::kF32, {kStates, (taps - 1) * channels}),
      out(check, DType::kF32, {kRows, channels});
  x.fill(71);
  weight.fill(72);
  Sample past(check, DType::kF32, {kStates, (taps - 1) * channels});
  past.fill(73);
  Expected expected;
  for (std::int64_t t = 0; t < kRows; ++t)
    for (std::int64_t c = 0; c < channels; ++c) {
      const bool decodes = t >= kTokens[0];
      const std::int64_t first = decodes ? kTokens[0] : 0;
      double sum = 0, size = 0;
      for (std::int64_t j = 0; j < taps; ++j) {
        const std::int64_t from = t - taps + 1 + j;
        double value = 0;
        if (from >= first)
          value = x.at(from * channels + c);
        else if (decodes)
          value = past.at((kSlots[1] * (taps - 1) + (taps - 1) + (from - first)) * channels + c);
        sum += weight.at(j * channels + c) * value;
        size += std::abs(weight.at(j * channels + c) * value);
      }
      const double want = sum / (1 + std::exp(-sum));
      // The slope of SiLU is below 1.1.
      expected.add(want, 1.1 * sum_error(taps) * size + 48 * kFloatUnit * std::abs(want) + 1e-30);
    }
  check.compare("causal_conv", fmt::format("{} channels, {} taps", channels, taps), out, expected,
                [&](Context& ctx) {
                  state.set([&](std::int64_t i) { return past.at(i); });
                  ops::causal_conv(ctx, x(ctx), weight(ctx), {}, true, sequences(ctx), state(ctx),
                                   out(ctx));
                });
}

// Errors follow the recurrence to first order, as do the numbers.
void check_scan(KernelCheck& check, const RecurrentConfig& recurrent) {
  const bool by_key = recurrent.kind == RecurrentKind::kKeyDelta,
             delta = recurrent.kind != RecurrentKind::kMamba2;
  const std::int64_t dk = recurrent.key_head_dim, dv = recurrent.value_head_dim,
                     repeat = recurrent.num_value_heads / recurrent.num_key_heads;
  // Heads are alike.
  const std::int64_t key_heads = std::min(recurrent.num_key_heads, 2), heads = key_heads * repeat;
  const Sequences sequences(check);
  const std::int64_t elements = ops::recurrent_state_elements(heads, dk, dv);
  Sample q(check, DType::kF32, {kRows, key_heads, dk}),
      k(check, DType::kF32, {kRows, key_heads, dk});
  Sample v(check, DType::kF32, {kRows, heads, dv}), beta(check, DType::kF32, {kRows, heads});
  Sample decay(check, DType::kF32, {kRows, by_key ? heads * dk : heads});
  Sample past(check, DType::kF32, {kStates, elements}),
      state(check, DType::kF32, {kStates, elements}), out(check, DType::kF32, {kRows, heads, dv});
  const double size = std::sqrt(3.0 / static_cast<double>(dk));
  q.fill(74, size);
  k.fill(75, size);
  v.fill(76);
  past.fill(77);
  const std::int64_t width = ops::kStateColumns, blocks = (dv + width - 1) / width;
  // Padding columns of a block are zero.
  past.set([&](std::int64_t i) {
    const std::int64_t column = i / (width * dk) % blocks * width + i % width;
    return column < dv ? std::sin(static_cast<double>(i)) : 0.0;
  });
  decay.set([](std::int64_t i) { return 0.5 + 0.5 * std::abs(std::sin(static_cast<double>(i))); });
  beta.set([](std::int64_t i) { return std::abs(std::cos(static_cast<double>(i))); });
  std::vector<double> wanted(static_cast<std::size_t>(out.size())), allowed(wanted.size());
  const double sums = sum_error(dk) + 4 * kFloatUnit;
  for (std::int64_t head = 0; head < heads; ++head)
    for (std::int64_t column = 0; column < dv; ++column) {
      std::vector<double> s(static_cast<std::size_t>(dk)), e(s);
      for (std::int64_t t = 0; t < kRows; ++t) {
        for (std::int64_t i = 0; t == kTokens[0] && i < dk; ++i) {
          const std::int64_t place =
              ((head * blocks + column / width) * dk + i) * width + column % width;
          s[static_cast<std::size_t>(i)] = past.at(kSlots[1] * elements + place);
          e[static_cast<std::size_t>(i)] = 0;
        }
        const std::int64_t row = (t * key_heads + head / repeat) * dk;
        double seen = 0, seen_size = 0, seen_error = 0;
        for (std::int64_t i = 0; i < dk; ++i) {
          const auto n = static_cast<std::size_t>(i);
          const double factor =
              decay.at(by_key ? t * heads * dk + head * dk + i : t * heads + head);
          s[n] *= factor;
          e[n] = e[n] * factor + kFloatUnit * std::abs(s[n]);
          seen += k.at(row + i) * s[n];
          seen_size += std::abs(k.at(row + i) * s[n]);
          seen_error += std::abs(k.at(row + i)) * e[n];
        }
        const double value = v.at((t * heads + head) * dv + column),
                     rate = beta.at(t * heads + head), u = rate * (delta ? value - seen : value);
        const double u_error = (delta ? rate * (seen_error + sums * seen_size) : 0) +
                               2 * kFloatUnit * (std::abs(u) + rate * std::abs(value));
        double read = 0, read_size = 0, read_error = 0;
        for (std::int64_t i = 0; i < dk; ++i) {
          const auto n = static_cast<std::size_t>(i);
          const double key = k.at(row + i), query = q.at(row + i);
          s[n] += key * u;
          e[n] += std::abs(key) * u_error + 2 * kFloatUnit * (std::abs(s[n]) + std::abs(key * u));
          read += query * s[n];
          read_size += std::abs(query * s[n]);
          read_error += std::abs(query) * e[n];
        }
        const auto at = static_cast<std::size_t>((t * heads + head) * dv + column);
        wanted[at] = read;
        allowed[at] = 2 * (read_error + sums * read_size) + 1e-30;
      }
    }
  check.compare("recurrent_scan", fmt::format("{} heads of {} x {}", heads, dk, dv), out,
                Expected{std::move(wanted), std::move(allowed)}, [&](Context& ctx) {
                  state.set([&](std::int64_t i) { return past.at(i); });
                  ops::recurrent_scan(ctx,
                                      {.q = q(ctx),
                                       .k = k(ctx),
                                       .v = v(ctx),
                                       .decay = decay(ctx),
                                       .beta = beta(ctx),
                                       .skip = {},
                                       .delta = delta},
                                      sequences(ctx), state(ctx), out(ctx));
                });
}

}  // namespace

void check_recurrent_kernels(KernelCheck& check, const ModelConfig& config) {
  if (!config.recurrent) return;
  check_convolution(check, *config.recurrent, std::min<std::int64_t>(config.hidden_size, 1024));
  if (config.recurrent->kind != RecurrentKind::kShortConv) check_scan(check, *config.recurrent);
}

}  // namespace sluice
