// The interpreter, found, opened and started at run time. So the plugin works with any Python 3.9
// or later and is built without its headers.
#pragma once

#include <span>
#include <string>

namespace sluice {

struct PythonModule;

// The properties of a Python installation that the plugin needs.
struct PythonInstallation {
  std::string executable;  // $SLUICE_PYTHON, else python3 of PATH
  std::string version;     // "3.11.2"
  std::string prefix;      // folder of the standard library
  std::string path_json;   // sys.path, as a JSON list of strings
  std::string library;     // file name or path of libpython
};

// Queries the interpreter in a process of its own. Error{kBadInput} when there is none, when its
// libpython is not installed, or when it has no torch or transformers; the message says what to
// install.
PythonInstallation find_python();

// Starts the interpreter in this process, once, and makes `modules` there, in their order. Then
// calls start(address, settings) of the last one. The interpreter lives as long as the process.
// Error{kBadInput} when a module itself raises; Python prints the exception.
void run_python(const PythonInstallation& python, std::span<const PythonModule> modules,
                const void* address, const std::string& settings_json);

}  // namespace sluice
