// Measured ceilings of the CPU, for `sluice bench roofline` and for other benchmarks. They report a
// share of a ceiling that was measured in the same minute, because a virtual machine's neighbours
// change both.
//
// Measured on all threads of ctx.pool at once. The calling thread takes part and must own `ctx`.
#pragma once

#include "kernels/cpu/roofline/roofline.h"
#include "tensor/context.h"

namespace sluice::ops {

// Reads `buffer` `passes` times with each of kReadPatterns patterns, and keeps each pattern's best
// pass. Patterns: one, four or eight streams per thread, pages distributed to the threads in turn,
// and variants with prefetch instructions. The buffer should be many times the last-level cache (2
// GiB), with its pages already touched.
ReadBandwidth read_bandwidth(Context& ctx,
                             const Tensor& buffer,  // [bytes] u8, bytes >= 64 KiB a thread
                             int passes = 3);

// The rate of one pass with one pattern.
double read_pass(Context& ctx, const Tensor& buffer,  // as above
                 int pattern);                        // an index of ReadBandwidth::patterns

// Operations per second of independent chains of one instruction on registers, over about
// `seconds`: the best tenth. 0 if the CPU lacks the instruction.
double peak_rate(Context& ctx, PeakInstruction instruction, double seconds = 0.2);

}  // namespace sluice::ops
