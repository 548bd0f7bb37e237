// The interpreter: found, opened and started at run time, so that the plugin works with any
// Python 3.9 or later and is built without its headers.
#pragma once

#include <string>

namespace sluice {

// What the plugin must know of a Python installation.
struct PythonInstallation {
  std::string executable;  // $SLUICE_PYTHON, else python3 of PATH
  std::string version;     // "3.11.2"
  std::string prefix;      // where its standard library lies
  std::string path_json;   // sys.path, as a JSON list of strings
  std::string library;     // file name or path of libpython
};

// Asks the interpreter itself, in a process of its own. Error{kBadInput} when there is none, when
// its libpython is not installed, or when it has no torch or transformers; the message says what to
// install.
PythonInstallation find_python();

// Starts the interpreter in this process, once; runs `source` as the module __main__ and gives it
// two names, `sluice_address` and `sluice_settings`; calls start(sluice_address, sluice_settings)
// of it. The interpreter lives as long as the process. Error{kBadInput} with the text of the
// exception when the source itself raises.
void run_python(const PythonInstallation& python, const std::string& source, const void* address,
                const std::string& settings_json);

}  // namespace sluice
