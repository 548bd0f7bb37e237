// GGUF's numbers of value types and tensor types. Private to checkpoint/gguf/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/tensors/quantized_blocks.h"
#include "tensor/dtype.h"

namespace sluice {

enum class GgufValueKind { kInteger, kFloat, kBool, kString, kArray };

struct GgufValueType {
  std::string_view name;
  GgufValueKind kind;
  std::uint64_t bytes;  // bytes of one value; for a string and an array the minimum
};
// Indexed by the type's number.
inline constexpr GgufValueType kGgufValueTypes[] = {
    {"uint8", GgufValueKind::kInteger, 1},  {"int8", GgufValueKind::kInteger, 1},
    {"uint16", GgufValueKind::kInteger, 2}, {"int16", GgufValueKind::kInteger, 2},
    {"uint32", GgufValueKind::kInteger, 4}, {"int32", GgufValueKind::kInteger, 4},
    {"float32", GgufValueKind::kFloat, 4},  {"bool", GgufValueKind::kBool, 1},
    {"string", GgufValueKind::kString, 8},  {"array", GgufValueKind::kArray, 12},
    {"uint64", GgufValueKind::kInteger, 8}, {"int64", GgufValueKind::kInteger, 8},
    {"float64", GgufValueKind::kFloat, 8}};
inline constexpr std::uint32_t kGgufString = 8;
inline constexpr std::uint32_t kGgufArray = 9;
inline constexpr std::uint32_t kNumGgufValueTypes = std::size(kGgufValueTypes);

// A tensor type that can be read.
struct GgufTensorType {
  std::uint32_t number;
  DType dtype;
  std::optional<BlockType> blocks;
};
inline constexpr GgufTensorType kGgufTensorTypes[] = {{0, DType::kF32, {}},
                                                      {1, DType::kF16, {}},
                                                      {30, DType::kBF16, {}},
                                                      {8, DType::kF32, BlockType::kQ8_0},
                                                      {2, DType::kF32, BlockType::kQ4_0},
                                                      {3, DType::kF32, BlockType::kQ4_1},
                                                      {6, DType::kF32, BlockType::kQ5_0},
                                                      {7, DType::kF32, BlockType::kQ5_1},
                                                      {10, DType::kF32, BlockType::kQ2K},
                                                      {11, DType::kF32, BlockType::kQ3K},
                                                      {12, DType::kF32, BlockType::kQ4K},
                                                      {13, DType::kF32, BlockType::kQ5K},
                                                      {14, DType::kF32, BlockType::kQ6K},
                                                      {20, DType::kF32, BlockType::kIQ4NL},
                                                      {23, DType::kF32, BlockType::kIQ4XS},
                                                      {39, DType::kF32, BlockType::kMxFp4}};
inline constexpr std::string_view kReadableTensorTypes =
    "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL, IQ4_XS and MXFP4";

// Names of the types that cannot be read, for messages.
struct GgufTypeName {
  std::uint32_t number;
  std::string_view name;
};
inline constexpr GgufTypeName kOtherTensorTypes[] = {
    {9, "Q8_1"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"},
    {21, "IQ3_S"}, {22, "IQ2_S"}, {24, "I8"},      {25, "I16"},    {26, "I32"},     {27, "I64"},
    {28, "F64"},   {29, "IQ1_M"}, {34, "TQ1_0"},   {35, "TQ2_0"},  {39, "MXFP4"}};

}  // namespace sluice
