// The entry point that libFuzzer calls.
#include <cstddef>
#include <cstdint>

#include "fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  sluice::fuzz::run_one({reinterpret_cast<const char*>(data), size});
  return 0;
}
