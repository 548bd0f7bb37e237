// Steps, and what their sampling takes, as bytes for the ranks in other processes.
//
//   ByteWriter out;
//   write_step(step, out);
//   ByteReader in(out.bytes());
//   const Step same = read_step(in);     // hash_step(same) == step.hash
//
// Error{kFatal}: the bytes are no step.
#pragma once

#include <vector>

#include "base/byte_stream.h"
#include "batch/batch.h"
#include "batch/sample_inputs.h"

namespace sluice {

void write_step(const Step& step, ByteWriter& out);
Step read_step(ByteReader& in);

void write_sample_inputs(const std::vector<SampleInputs>& inputs, ByteWriter& out);
std::vector<SampleInputs> read_sample_inputs(ByteReader& in);

}  // namespace sluice
