// The ceilings of the CPU, for `sluice bench roofline` and for judging every other figure: a figure
// is given as a share of a ceiling that was measured in the same minute, because both change with
// the neighbours of a virtual machine.
//
// Measured on ctx.pool, all of its threads at once; the calling thread takes part and must own
// `ctx`.
#pragma once

#include "kernels/cpu/roofline/roofline.h"
#include "tensor/context.h"

namespace sluice::ops {

// Reads `buffer` `passes` times in each of kReadPatterns ways and keeps each way's best pass: one,
// four or eight streams a thread, pages dealt out to the threads in turn, and with prefetch
// instructions. The buffer should be many times the last-level cache (2 GiB) and its pages touched
// before.
ReadBandwidth read_bandwidth(Context& ctx,
                             const Tensor& buffer,  // [bytes] u8, bytes >= 64 KiB a thread
                             int passes = 3);

// The rate of one pass in one of these ways.
double read_pass(Context& ctx, const Tensor& buffer,  // as above
                 int pattern);                        // an index of ReadBandwidth::patterns

// Operations a second of independent chains of one instruction held in registers, over about
// `seconds`: the best tenth. 0 where the CPU lacks the instruction.
double peak_rate(Context& ctx, PeakInstruction instruction, double seconds = 0.2);

}  // namespace sluice::ops
