// A fuzz target: one parser of bytes from outside.
//
// Each fuzz_NAME.cpp of this folder defines these two functions. It is linked in two ways: with
// replay_main.cpp to an ordinary program that CTest runs for a few seconds (every seed, then seeded
// mutations of them), and, with -DSLUICE_FUZZ=ON and clang, with libFuzzer (docs/testing.md).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace sluice::fuzz {

// Feeds `input` to the parser. What the parser may throw for a bad input is caught here; anything
// else, or a property that does not hold, ends the program.
void run_one(std::string_view input);

// Inputs to begin with: valid ones of each kind.
std::vector<std::string> seeds();

}  // namespace sluice::fuzz
