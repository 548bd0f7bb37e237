#include "server/core/model_names.h"

#include <algorithm>
#include <filesystem>

#include "checkpoint/gguf/gguf_file.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// huggingface_hub sends `dummy` where it has no name, TGI's examples `tgi`, SGLang's `default`.
constexpr const char* kNamelessClients[] = {"default", "dummy", "tgi"};

bool is_digits(std::string_view text) {
  return text.size() == 5 && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Without `-00001-of-00003`.
std::string without_part(std::string stem) {
  constexpr std::size_t kLength = std::string_view("-00001-of-00003").size();
  if (stem.size() <= kLength) return stem;
  const std::string_view end = std::string_view(stem).substr(stem.size() - kLength);
  if (end.starts_with('-') && is_digits(end.substr(1, 5)) && end.substr(6, 4) == "-of-" &&
      is_digits(end.substr(10)))
    stem.resize(stem.size() - kLength);
  return stem;
}

// The repository of a folder `.../models--ORG--NAME/snapshots/COMMIT`; empty for another one.
std::string repository_of(const fs::path& path) {
  constexpr std::string_view kPrefix = "models--";
  if (path.parent_path().filename() != "snapshots") return "";
  std::string name = path.parent_path().parent_path().filename().string();
  if (!name.starts_with(kPrefix)) return "";
  name.erase(0, kPrefix.size());
  if (const std::size_t at = name.find("--"); at != std::string::npos) name.replace(at, 2, "/");
  return name;
}

std::string own_name(const std::string& given, const ResolvedModel& model) {
  if (!model.repo_id.empty()) return model.repo_id;
  std::error_code error;
  // `.` and `models/x/` have no last part, so the whole path is asked.
  fs::path path = fs::absolute(model.directory, error).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const bool is_file = is_gguf_path(path.string());
  if (const std::string name = repository_of(is_file ? path.parent_path() : path); !name.empty())
    return name;
  const std::string name = is_file ? without_part(path.stem().string()) : path.filename().string();
  return name.empty() ? given : name;
}

}  // namespace

ModelNames model_names(const std::vector<std::string>& served, const std::string& given,
                       const ResolvedModel& model) {
  ModelNames out;
  for (const std::string& name : served) {
    if (name == "*")
      out.any = true;
    else if (std::ranges::find(out.names, name) == out.names.end())
      out.names.push_back(name);
  }
  if (out.names.empty()) out.names.push_back(own_name(given, model));
  out.aliases.push_back(given);
  for (const char* name : kNamelessClients) out.aliases.emplace_back(name);
  return out;
}

}  // namespace sluice
