#include "latents.h"

#include <array>
#include <cmath>
#include <cstring>

#include "kernels/types/latent_rows.h"
#include "ops/kv.h"
#include "ops/mla.h"

namespace sluice::oracle {
namespace {

using ops::LatentRow;

// Numbers of row t: ordinary ones, and what a scale could miss.
double number(std::int64_t t, std::int64_t i, double random) {
  const std::int64_t group = i / ops::kLatentGroup, at = i % ops::kLatentGroup;
  switch (t) {
    case 0:
      return group == 0 ? (at % 2 == 0 ? 0.0 : -0.0) : random;  // no number but zeros
    case 1:
      return at == 5 ? 448.0 * std::ldexp(1.0, static_cast<int>(group) - 9) : random * 1e-3;
    case 2:
      return at == 9 ? -std::nextafter(448.0f, 1e9f) : random;  // just above the end of a scale
    case 3:
      return random * 1e-30;
    case 4:
      return random * 1e-42;  // subnormal
    case 5:
      return random * 3e38;
    case 6:
      return group == 1 && at == 3 ? NAN : random;
    case 7:
      return group == 0 && at == 100 ? -INFINITY : random;
    case 8:
      return std::ldexp(random, -static_cast<int>(i % 24));  // sizes of a wide range
    case 9:
      return at == 0 ? 1e-44 : 0.0;  // its quotient by 448 is zero
    default:
      return random;
  }
}

std::string first_difference(const Twin& twin, const std::vector<std::byte>& wanted,
                             const std::vector<std::byte>& got) {
  const std::int64_t stride = twin.host.stride[0] * dtype_size(twin.host.dtype);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i] != got[i]) {
      const auto byte = static_cast<std::int64_t>(i);
      return fmt::format("byte {} of row {} is {}, not {}", byte % stride, byte / stride,
                         std::to_integer<int>(got[i]), std::to_integer<int>(wanted[i]));
    }
  return "";
}

std::vector<std::byte> host_bytes(const Twin& twin) {
  const auto* first = static_cast<const std::byte*>(twin.host.data);
  return {first, first + twin.download().size()};
}

void check_bytes(Bench& bench, std::int64_t latent, std::int64_t rope) {
  const Bench::Group group(bench);
  if (!group.is_own()) return;
  constexpr std::int64_t kTokens = 75, kSlots = 256;
  const std::string label = fmt::format("{} + {}", latent, rope);
  Twin numbers(bench, DType::kF32, {kTokens, latent}, 3),
      rotated(bench, DType::kF32, {kTokens, rope}, 5), slots(bench, DType::kI64, {kTokens}),
      places(bench, DType::kI32, {kTokens}), out(bench, DType::kF32, {kTokens, latent + rope}, 2),
      plane(bench, DType::kF8E4M3, {kSlots, LatentRow{latent, rope}.bytes()});
  if (!bench.fits("write_latents")) return;
  numbers.fill(71);
  numbers.set([&](std::int64_t t, std::int64_t i, std::int64_t) {
    return number(t, i, numbers.at(numbers.host.data, t, i, 0));
  });
  rotated.fill(72, 100);
  slots.set([](std::int64_t t, std::int64_t, std::int64_t) { return t * 37 % kSlots; });
  places.set([](std::int64_t t, std::int64_t, std::int64_t) { return t * 37 % kSlots; });
  // Bytes are compared, because NaN as e4m3 is an exponent here.
  for (Context* ctx : {&bench.cpu, &bench.gpu})
    ops::write_latents(*ctx, numbers(*ctx), rotated(*ctx), slots(*ctx), plane(*ctx));
  bench.stream.synchronize();
  bench.expect("write_latents", label,
               first_difference(plane, host_bytes(plane), plane.download()));
  plane.keep();
  bench.compare("gather_latents", label, {{&out, {.exact = true}}}, [&](Context& ctx) {
    ops::gather_latents(ctx, plane(ctx), places(ctx), latent, out(ctx));
  });
  Twin from(bench, DType::kI64, {40}), to(bench, DType::kI64, {40});
  from.set([](std::int64_t t, std::int64_t, std::int64_t) { return t * 37 % kSlots; });
  to.set([](std::int64_t t, std::int64_t, std::int64_t) { return (t + 120) * 37 % kSlots; });
  for (Context* ctx : {&bench.cpu, &bench.gpu}) {
    const std::array<ops::KvPlane, 1> planes = {plane(*ctx)};
    ops::kv_move(*ctx, planes, from(*ctx), to(*ctx));
  }
  bench.stream.synchronize();
  bench.expect("kv_move", "latents of " + label + " in e4m3",
               first_difference(plane, host_bytes(plane), plane.download()));
}

}  // namespace

void store_codes(Bench& bench, std::int64_t latent, Twin& plane, Twin& codes) {
  const std::int64_t rows = plane.host.dim(0), dim = plane.host.dim(1);
  Twin numbers(bench, DType::kF32, {rows, dim}), slots(bench, DType::kI64, {rows}),
      places(bench, DType::kI32, {rows});
  numbers.set([&](std::int64_t slot, std::int64_t i, std::int64_t) {
    return plane.at(plane.host.data, slot, i, 0);
  });
  for (Twin* each : {&slots, &places})
    each->set([](std::int64_t slot, std::int64_t, std::int64_t) { return slot; });
  ops::write_latents(bench.cpu, numbers.host.slice(1, 0, latent),
                     numbers.host.slice(1, latent, dim - latent), slots.host, codes.host);
  codes.keep();
  ops::gather_latents(bench.cpu, codes.host, places.host, latent, numbers.host);
  plane.set([&](std::int64_t slot, std::int64_t i, std::int64_t) {
    return numbers.at(numbers.host.data, slot, i, 0);
  });
}

void expect_bits_of_numbers(Bench& bench, const std::string& op, const std::string& label,
                            const Twin& plane, const Twin& codes, Twin& out,
                            const std::function<void(Context&, const Tensor& plane)>& attend) {
  const Bench::Group group(bench);
  if (!group.is_own() || !bench.fits(op)) return;
  for (const bool in_order : {false, true}) {
    Context own = in_order ? deterministic(bench.gpu) : bench.gpu;
    const auto bits_over = [&](const Twin& stored) {
      out.reset();
      Arena::Scope scope(*own.arena);
      attend(own, stored.device);
      bench.stream.synchronize();
      return out.download();
    };
    const std::vector<std::byte> wanted = bits_over(plane);
    bench.expect(op, label + (in_order ? ", bits in order" : ", bits"),
                 first_difference(out, wanted, bits_over(codes)));
  }
}

void check_latent_codes(Bench& bench) {
  struct Shape {
    std::int64_t latent, rope;
  };
  for (const Shape& s : {Shape{512, 64}, Shape{300, 7}, Shape{32, 8}, Shape{1000, 24}, Shape{1, 1}})
    check_bytes(bench, s.latent, s.rope);
}

}  // namespace sluice::oracle
