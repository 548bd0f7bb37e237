// The machine's limits as the benchmarks use them (ops/roofline.h measures).
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/thread_pool.h"
#include "ops/roofline.h"
#include "tensor/buffer.h"

namespace sluice {

struct Peak {
  std::string_view name;  // "dpbf16ps"
  ops::PeakInstruction instruction;
  double operations_per_s = 0;  // 0: this CPU lacks it
};

struct Ceilings {
  ops::ReadBandwidth read;
  std::vector<Peak> peaks;

  double peak(ops::PeakInstruction instruction) const;
  Json json() const;
};

// Owns the memory and threads of a measurement. Made once: touching the memory takes longer than
// reading it.
class Roofline {
 public:
  // Error{kNoResources} when so much memory is not free.
  Roofline(int num_threads, std::int64_t mib);
  ops::ReadBandwidth read();
  // Bytes a second now: the best of five passes in the way that the last read() found best. Shorter
  // than read(), so that a program can be stopped for it.
  double read_now();
  // Operations a second; 0: this CPU lacks the instruction.
  double peak(ops::PeakInstruction instruction);
  // All of them.
  Ceilings measure();

 private:
  ThreadPool pool_;
  Context ctx_;
  Buffer buffer_;
  int best_pattern_ = 0;
};

// The instruction that products of many rows of this type (kU8: with quantised weights) are made of
// on this CPU.
ops::PeakInstruction product_instruction(DType gemm_input);
std::string_view instruction_name(ops::PeakInstruction instruction);

}  // namespace sluice
