// What a group of ranks chose in a step, as bytes for the engine's process.
//
//   ByteWriter out;
//   write_result(result, out);
//   ByteReader in(out.bytes());
//   const BatchResult same = read_result(in);
//
// Error{kFatal}: the bytes are no result.
#pragma once

#include "base/byte_stream.h"
#include "batch/step_result.h"

namespace sluice {

void write_result(const BatchResult& result, ByteWriter& out);
BatchResult read_result(ByteReader& in);

}  // namespace sluice
