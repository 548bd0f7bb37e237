// The masks of grammars, and the greedy choice behind them.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "cli/doctor/kernel_cases.h"
#include "kernels/types/op_params.h"
#include "ops/logit_edits.h"
#include "ops/tokens.h"

namespace sluice {

// The largest logit is forbidden, and the largest of the allowed ones is chosen; the last row has
// no mask.
void check_masks(KernelCheck& check, const ModelConfig& config) {
  constexpr std::int64_t kRows = 3, kMasks = 2;
  const std::int64_t vocab = std::clamp<std::int64_t>(config.vocab_size, 100, 200'000),
                     words = (vocab + 31) / 32;
  Sample given(check, DType::kF32, {kRows, vocab}), logits(check, DType::kF32, {kRows, vocab});
  Sample masks(check, DType::kI32, {kMasks, words}), mask_of_row(check, DType::kI32, {kRows});
  Sample greedy(check, DType::kU8, {kRows, std::int64_t{sizeof(ops::SampleRow)}});
  Sample tokens(check, DType::kI32, {kRows});
  // A permutation of small numbers for each row, so that no two are equal.
  given.set([&](std::int64_t i) {
    const std::int64_t row = i / vocab, token = i % vocab;
    return static_cast<double>((token + 17 * row) * 7919 % 65'537) / 1024 +
           static_cast<double>(token) / 16'777'216;
  });
  // Mask m allows tokens of which bit m + 1 is set.
  masks.set([&](std::int64_t i) {
    std::uint32_t word = 0;
    for (std::uint32_t bit = 0; bit < 32; ++bit) {
      const std::int64_t token = i % words * 32 + bit;
      if (token < vocab && (token >> (i / words + 1) & 1) != 0) word |= 1U << bit;
    }
    return static_cast<double>(std::bit_cast<std::int32_t>(word));
  });
  mask_of_row.set([](std::int64_t i) { return i < kMasks ? static_cast<double>(i) : -1.0; });
  const ops::SampleRow row{.temperature = 0};
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&row);
  greedy.set([&](std::int64_t i) {
    return static_cast<double>(bytes[i % std::int64_t{sizeof(ops::SampleRow)}]);
  });
  Expected expected;
  for (std::int64_t r = 0; r < kRows; ++r) {
    std::int64_t best = -1;
    for (std::int64_t token = 0; token < vocab; ++token) {
      if (r < kMasks && (token >> (r + 1) & 1) == 0) continue;
      if (best < 0 || given.at(r * vocab + token) > given.at(r * vocab + best)) best = token;
    }
    expected.add(static_cast<double>(best), 0);
  }
  check.compare("mask_logits", fmt::format("{} x {}", kRows, vocab), tokens, expected,
                [&](Context& ctx) {
                  logits.set([&](std::int64_t i) { return given.at(i); });
                  ops::mask_logits(ctx, mask_of_row(ctx), masks(ctx), logits(ctx));
                  ops::sample_tokens(ctx, logits(ctx), greedy(ctx), tokens(ctx));
                });
}

}  // namespace sluice
