// Element types and exact conversions between them.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace sluice {

enum class DType : std::uint8_t {
  kF32,
  kBF16,
  kF16,
  kF64,
  kI64,
  kI32,
  kI16,
  kI8,
  kU8,
  kBool,
  kF8E4M3,
  kF8E5M2
};

std::int64_t dtype_size(DType dtype);      // bytes of one element
std::string_view dtype_name(DType dtype);  // "float32", "bfloat16", ...

// bfloat16: the upper half of a float32. Rounds to nearest, ties to even; a NaN stays a NaN.
struct BF16 {
  std::uint16_t bits = 0;
  BF16() = default;
  explicit BF16(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    bits = (u & 0x7FFFFFFFu) > 0x7F800000u
               ? static_cast<std::uint16_t>((u >> 16) | 0x40u)
               : static_cast<std::uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

// IEEE binary16, through the F16C instructions that every CPU with AVX2 has.
struct F16 {
  std::uint16_t bits = 0;
  F16() = default;
  explicit F16(float value);
  explicit operator float() const;
};

template <class T>
inline constexpr DType dtype_of = DType::kF32;
template <>
inline constexpr DType dtype_of<BF16> = DType::kBF16;
template <>
inline constexpr DType dtype_of<F16> = DType::kF16;
template <>
inline constexpr DType dtype_of<double> = DType::kF64;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::kI64;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::kI32;
template <>
inline constexpr DType dtype_of<std::int16_t> = DType::kI16;
template <>
inline constexpr DType dtype_of<std::int8_t> = DType::kI8;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::kU8;

}  // namespace sluice
