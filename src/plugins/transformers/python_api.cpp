#include "plugins/transformers/python_api.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "base/error.h"
#include "base/json.h"
#include "plugins/transformers/bridge_source.h"

namespace sluice {
namespace {

// Prints one line of JSON. The working folder may be that of a model and must not provide modules
// (R3); Python puts it first in the path of a program given by -c. If torch or transformers is
// missing, its version is null. Importing them takes seconds and is left to the process that needs
// them.
constexpr std::string_view kQuestions = R"py(
import sys
sys.path = [p for p in sys.path if p]
import json, sysconfig
from importlib import metadata
def version(name):
    try: return metadata.version(name)
    except metadata.PackageNotFoundError: return None
get = sysconfig.get_config_var
name = get("INSTSONAME") or get("LDLIBRARY") or ""
folders = [get("LIBDIR"), get("LIBPL"), sys.base_prefix + "/lib"]
if get("MULTIARCH"): folders.append(sys.base_prefix + "/lib/" + get("MULTIARCH"))
print(json.dumps({"version": sys.version.split()[0], "prefix": sys.base_prefix,
                  "executable": sys.executable,
    "path": sys.path, "name": name, "folders": [f for f in folders if f],
    "torch": version("torch"), "transformers": version("transformers")}))
)py";

std::string output_of(const std::string& executable) {
  // The program's text goes through an environment variable, so the shell never parses it.
  ::setenv("SLUICE_PYTHON_QUESTIONS", std::string(kQuestions).c_str(), 1);
  ::setenv("SLUICE_PYTHON_ASKED", executable.c_str(), 1);
  const std::string command =
      "\"$SLUICE_PYTHON_ASKED\" -c 'import os; exec(os.environ[\"SLUICE_PYTHON_QUESTIONS\"])' "
      "2>/dev/null";
  std::string out;
  if (std::FILE* pipe = ::popen(command.c_str(), "r")) {
    std::array<char, 4096> piece;
    for (std::size_t n;
         (n = std::fread(piece.data(), 1, piece.size(), pipe)) > 0 && out.size() < (1 << 20);)
      out.append(piece.data(), n);
    if (::pclose(pipe) != 0) out.clear();
  }
  ::unsetenv("SLUICE_PYTHON_QUESTIONS");
  ::unsetenv("SLUICE_PYTHON_ASKED");
  return out;
}

// The functions of Python's C interface in use, under their own names.
struct Python {
  void (*Py_InitializeEx)(int);
  int (*Py_IsInitialized)();
  void* (*PyEval_SaveThread)();
  int (*PyGILState_Ensure)();
  void (*PyGILState_Release)(int);
  int (*PyRun_SimpleString)(const char*);
};

template <class F>
void take(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(::dlsym(library, name));
  require(function != nullptr, "the Python library has no {}; Python 3.9 or later is needed", name);
}

const Python& open_python(const PythonInstallation& installation) {
  static Python python;
  static std::once_flag opened;
  std::call_once(opened, [&] {
    // Extension modules need the interpreter's symbols to be global.
    void* library = ::dlopen(installation.library.c_str(), RTLD_NOW | RTLD_GLOBAL);
    require(library != nullptr, "{} cannot be opened: {}", installation.library, ::dlerror());
    take(library, "Py_InitializeEx", python.Py_InitializeEx);
    take(library, "Py_IsInitialized", python.Py_IsInitialized);
    take(library, "PyEval_SaveThread", python.PyEval_SaveThread);
    take(library, "PyGILState_Ensure", python.PyGILState_Ensure);
    take(library, "PyGILState_Release", python.PyGILState_Release);
    take(library, "PyRun_SimpleString", python.PyRun_SimpleString);
    ::setenv("PYTHONHOME", installation.prefix.c_str(), 1);
    python.Py_InitializeEx(0);  // the program keeps its signal handlers
    ::unsetenv("PYTHONHOME");
    require(python.Py_IsInitialized() != 0, "Python {} of {} does not start", installation.version,
            installation.executable);
    python.PyEval_SaveThread();  // from here on any thread may take the interpreter
  });
  return python;
}

// "3.11.2" of a libpython; empty when it cannot be opened. A libpython of another release than the
// interpreter would break its extension modules.
std::string library_version(const std::string& path) {
  void* library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return "";
  const auto version = reinterpret_cast<const char* (*)()>(::dlsym(library, "Py_GetVersion"));
  const std::string text = version == nullptr ? "" : version();
  ::dlclose(library);
  return text.substr(0, text.find(' '));
}

// A Python expression in ASCII for any UTF-8 text.
std::string literal(std::string_view text) {
  std::string out = "b'";
  for (const unsigned char c : text) fmt::format_to(std::back_inserter(out), "\\x{:02x}", c);
  return out + "'.decode()";
}

}  // namespace

PythonInstallation find_python() {
  const char* named = std::getenv("SLUICE_PYTHON");
  const std::string executable = named != nullptr && *named != '\0' ? named : "python3";
  const std::string answer = output_of(executable);
  constexpr std::string_view kInstall =
      "install Python 3.9 or later with `pip install torch transformers`, and name its interpreter "
      "in SLUICE_PYTHON "
      "if it is not the python3 of PATH";
  require(!answer.empty(), "the Transformers fallback needs Python, and {} does not run; {}",
          executable, kInstall);
  const Json info = parse_json_or_throw(answer, "what Python says of itself");
  for (const char* package : {"torch", "transformers"})
    require(
        !info[package].is_null(),
        "the Transformers fallback needs the package {}, which {} (Python {}) does not have; {}",
        package, info["executable"].get<std::string>(), info["version"].get<std::string>(),
        kInstall);

  PythonInstallation python;
  python.executable = info["executable"].get<std::string>();
  python.version = info["version"].get<std::string>();
  python.prefix = info["prefix"].get<std::string>();
  python.path_json = dump_json(info["path"]);
  std::string name = info["name"].get<std::string>();
  // A statically linked Python names its archive; the shared library may still be beside it.
  if (name.find(".so") == std::string::npos) {
    const std::size_t minor_end = python.version.rfind('.');
    name = "libpython" + python.version.substr(0, minor_end) + ".so.1.0";
  }
  std::vector<std::string> candidates;
  for (const Json& folder : info["folders"])
    candidates.push_back(folder.get<std::string>() + "/" + name);
  candidates.push_back(name);
  for (const std::string& candidate : candidates)
    if (library_version(candidate) == python.version) {
      python.library = candidate;
      return python;
    }
  fail(ErrorKind::kBadInput,
       "Python {} of {} has no shared library {} of the same version; on Debian install "
       "libpython{}, or name in "
       "SLUICE_PYTHON an interpreter that was built with --enable-shared",
       python.version, python.executable, name,
       python.version.substr(0, python.version.rfind('.')));
}

void run_python(const PythonInstallation& installation, std::span<const PythonModule> modules,
                const void* address, const std::string& settings_json) {
  const Python& python = open_python(installation);
  const int state = python.PyGILState_Ensure();
  std::string program = fmt::format(
      "import sys, json, types\n"
      "for entry in json.loads({}):\n"
      "    if entry not in sys.path: sys.path.append(entry)\n",
      literal(installation.path_json));
  for (const PythonModule& module : modules)
    program += fmt::format(
        "if {0} not in sys.modules:\n"
        "    module = types.ModuleType({0})\n"
        "    exec(compile({1}, {0}, 'exec'), module.__dict__)\n"
        "    sys.modules[{0}] = module\n",
        literal(module.name), literal(module.source));
  program += fmt::format("sys.modules[{}].start({}, {})\n", literal(modules.back().name),
                         reinterpret_cast<std::uintptr_t>(address), literal(settings_json));
  const int status = python.PyRun_SimpleString(program.c_str());
  python.PyGILState_Release(state);
  require(status == 0,
          "the Python side of the Transformers plugin could not be started; its message is above");
}

}  // namespace sluice
