// The interpreter, found, opened and started at run time. So the plugin works with any Python 3.9
// or later and is built without its headers.
#pragma once

#include <string>

namespace sluice {

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

// Starts the interpreter in this process, once. Runs `source` as the module __main__ with two extra
// names, `sluice_address` and `sluice_settings`, and calls its start(sluice_address,
// sluice_settings). The interpreter lives as long as the process. Error{kBadInput} with the text of
// the exception when the source itself raises.
void run_python(const PythonInstallation& python, const std::string& source, const void* address,
                const std::string& settings_json);

}  // namespace sluice
