// Outputs as models write them, in the format of each tool parser: right, slightly wrong, cut off.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "base/json.h"

namespace sluice {

struct ExpectedCall {
  std::string name, arguments;  // arguments: JSON text, compared as values
};

struct ScriptedOutput {
  std::string tool_parser, reasoning_parser;
  std::string prompt;
  std::string text;
  bool is_cut = false;     // the engine ended it
  bool is_marred = false;  // a fault was put in: only the rules that hold for any text count
  std::string reasoning, content;
  std::vector<ExpectedCall> calls;
};

// The tools that the outputs call, as a request gives them.
const Json& scripted_tools();

ScriptedOutput make_output(const std::string& tool_parser, std::mt19937& random);

}  // namespace sluice
