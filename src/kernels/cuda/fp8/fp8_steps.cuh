// The mainloop of the FP8 GEMMs on Hopper: the MMAs of a step of 128 columns run while the sums of
// the step before are promoted.
#pragma once

namespace sluice::cuda {

// sums += all steps of a tile. Consumer has
//   kCount, Sum                   sums of a thread, and their type
//   Step                          accumulators of a step, and what else promote() needs of it
//   Scales, load(scales, step)    scales of x of four steps from `step` on
//   issue(Step)                   starts the MMAs of the next step
//   promote<kRunning, kStep>(Step, scales, sums)
//                                 adds the oldest step, which is kStep of the four, while the MMAs
//                                 of kRunning later steps run
// Scales are loaded four steps ahead, because they are a long way from memory. Four steps are
// unrolled: so no register waits for a load before its turn.
template <class Consumer>
__device__ inline void multiply_steps(Consumer& c, int steps,
                                      typename Consumer::Sum (&sums)[Consumer::kCount]) {
  typename Consumer::Step even, odd;
  typename Consumer::Scales now, next;
  c.load(now, 0);
  // No branch lies between the start and the end of an MMA: the compiler would serialise them.
  c.issue(even);
  int step = 0;
  for (; step + 4 < steps; step += 4) {
    c.load(next, step + 4);
    c.issue(odd);
    c.template promote<1, 0>(even, now, sums);
    c.issue(even);
    c.template promote<1, 1>(odd, now, sums);
    c.issue(odd);
    c.template promote<1, 2>(even, now, sums);
    c.issue(even);
    c.template promote<1, 3>(odd, now, sums);
    now = next;
  }
  // One to four steps are left.
  if (step + 3 < steps) {
    c.issue(odd);
    c.template promote<1, 0>(even, now, sums);
    c.issue(even);
    c.template promote<1, 1>(odd, now, sums);
    c.issue(odd);
    c.template promote<1, 2>(even, now, sums);
    c.template promote<0, 3>(odd, now, sums);
  } else if (step + 2 < steps) {
    c.issue(odd);
    c.template promote<1, 0>(even, now, sums);
    c.issue(even);
    c.template promote<1, 1>(odd, now, sums);
    c.template promote<0, 2>(even, now, sums);
  } else if (step + 1 < steps) {
    c.issue(odd);
    c.template promote<1, 0>(even, now, sums);
    c.template promote<0, 1>(odd, now, sums);
  } else {
    c.template promote<0, 0>(even, now, sums);
  }
}

// Of step kStep of four.
template <int kStep>
__device__ inline float part_of(const float4& four) {
  return kStep == 0 ? four.x : kStep == 1 ? four.y : kStep == 2 ? four.z : four.w;
}

}  // namespace sluice::cuda
