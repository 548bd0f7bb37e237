// Blocks of 256 values in sub-blocks of 16 or 32, each with a scale of a few bits. Private to
// checkpoint/tensors/.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice {

// Values of the nibbles of IQ4_NL and IQ4_XS (ggml-common.h, kvalues_iq4nl).
inline constexpr float kIQ4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                         1,    13,   25,  38,  53,  69,  89,  113};

// Each writes num_blocks x 256 values.
void dequantize_q2_k(const std::byte* blocks, std::int64_t num_blocks, float* out);
void dequantize_q3_k(const std::byte* blocks, std::int64_t num_blocks, float* out);
void dequantize_q4_k(const std::byte* blocks, std::int64_t num_blocks, float* out);
void dequantize_q5_k(const std::byte* blocks, std::int64_t num_blocks, float* out);
void dequantize_q6_k(const std::byte* blocks, std::int64_t num_blocks, float* out);
void dequantize_iq4_xs(const std::byte* blocks, std::int64_t num_blocks, float* out);

}  // namespace sluice
