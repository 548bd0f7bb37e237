// The text that a model gave a custom tool. The model sees a function with one text, `input`.
//
//   custom_input(R"({"input": "ls -l)")   // ls -l
//
// A pure function. It never fails: arguments of another form are the text as they stand.
#pragma once

#include <string>

namespace sluice {

// `arguments`: JSON text, whole or cut at any byte. An escape that was cut is none.
std::string custom_input(const std::string& arguments);

}  // namespace sluice
