#include "models/plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/error.h"

namespace sluice {

std::string transformers_plugin() {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path path;
  if (const char* named = std::getenv("SLUICE_TRANSFORMERS_PLUGIN");
      named != nullptr && *named != '\0') {
    path = named;
  } else {
    const fs::path program = fs::read_symlink("/proc/self/exe", error);
    if (error) return "";
    path = program.parent_path().parent_path() / "lib" / "libsluice_transformers.so";
  }
  return fs::is_regular_file(path, error) ? path.string() : "";
}

std::unique_ptr<Model> load_foreign_model(Context& ctx, const ModelConfig& config,
                                          const WeightSource& source, const ModelOptions& options) {
  using Load = Model* (*)(Context&, const ModelConfig&, const WeightSource&, const ModelOptions&);
  const std::string path = transformers_plugin();
  require(!path.empty(),
          "--model-impl transformers needs the plugin libsluice_transformers.so in the folder lib "
          "beside the program's "
          "bin, or its path in SLUICE_TRANSFORMERS_PLUGIN");
  // The plugin uses the program's own symbols, so it must be of the same build.
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  require(library != nullptr, "the Transformers plugin {} cannot be opened: {}", path, ::dlerror());
  const auto layout = static_cast<const std::uint64_t*>(::dlsym(library, "sluice_plugin_layout"));
  require(layout != nullptr && *layout == plugin_layout(),
          "the Transformers plugin {} is of another build of this program", path);
  const auto load = reinterpret_cast<Load>(::dlsym(library, "sluice_load_foreign_model"));
  require(load != nullptr, "{} is not the Transformers plugin of this program", path);
  return std::unique_ptr<Model>(load(ctx, config, source, options));
}

}  // namespace sluice
