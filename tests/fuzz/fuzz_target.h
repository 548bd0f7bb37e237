// A fuzz target: one parser of untrusted bytes.
//
// Each fuzz_NAME.cpp of this folder defines these two functions. It is linked in two ways. With
// replay_main.cpp it is an ordinary program that CTest runs for a few seconds (every seed, then
// seeded mutations of the seeds). With -DSLUICE_FUZZ=ON and clang it is linked with libFuzzer
// (docs/testing.md).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice::fuzz {

// Feeds `input` to the parser. Expected errors of a bad input are caught here; any other error, or
// a property that does not hold, ends the program.
void run_one(std::string_view input);

// Initial inputs: valid inputs of each kind.
std::vector<std::string> seeds();

}  // namespace sluice::fuzz
