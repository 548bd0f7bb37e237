// The sources of a model's chat template.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "text/chat/chat_template.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMaxFileBytes = 16u << 20;

std::string read_text(const fs::path& path) {
  const std::uintmax_t size = fs::file_size(path);
  require(size <= kMaxFileBytes,
          "{} has {} bytes; a chat template or its configuration has at most {}", path.string(),
          size, kMaxFileBytes);
  std::ifstream file(path, std::ios::binary);
  require(file.good(), "cannot read {}", path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

Json read_object(const fs::path& path) {
  if (!fs::is_regular_file(path)) return Json::object();
  Json json = parse_json_or_throw(read_text(path), path.string());
  require(json.is_object(), "{} is no JSON object", path.string());
  return json;
}

// "bos_token": "<s>", or an object whose `content` is the token.
void add_special_tokens(std::map<std::string, std::string>& tokens, const Json& config) {
  for (const auto& [name, value] : config.items()) {
    if (!name.ends_with("_token")) continue;
    if (value.is_string()) {
      tokens[name] = value.get<std::string>();
    } else if (value.is_object() && value.contains("content") && value["content"].is_string()) {
      tokens[name] = value["content"].get<std::string>();
    }
  }
}

// A text, or a list of {name, template}.
std::map<std::string, std::string> named_templates(const Json& value, const std::string& what) {
  std::map<std::string, std::string> out;
  if (value.is_string()) {
    out["default"] = value.get<std::string>();
    return out;
  }
  if (value.is_null()) return out;
  require(value.is_array(), "{}: chat_template is neither a text nor a list", what);
  for (const Json& row : value) {
    require(row.is_object() && row.contains("name") && row.contains("template") &&
                row["name"].is_string() && row["template"].is_string(),
            "{}: a row of chat_template is no {{name, template}}", what);
    out[row["name"].get<std::string>()] = row["template"].get<std::string>();
  }
  if (!out.empty() && out.count("default") == 0) out["default"] = out.begin()->second;
  return out;
}

// A template of the model by its name, else a file, else a literal.
std::map<std::string, std::string> override_template(
    const std::string& given, const std::map<std::string, std::string>& sources) {
  if (const auto named = sources.find(given); named != sources.end())
    return {{"default", named->second}};
  std::error_code error;
  if (given.find('\n') == std::string::npos && given.size() < 4096 &&
      fs::is_regular_file(given, error))
    return {{"default", read_text(given)}};
  if (given.find("{{") != std::string::npos || given.find("{%") != std::string::npos)
    return {{"default", given}};
  std::string names;
  for (const auto& [name, source] : sources)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  fail(ErrorKind::kBadInput,
       "--chat-template '{}' is neither a file nor a template, nor one of the model's: {}",
       given.substr(0, 200), names.empty() ? "it has none" : names);
}

std::map<std::string, std::string> directory_templates(const fs::path& directory,
                                                       const Json& config) {
  std::map<std::string, std::string> out;
  if (fs::is_regular_file(directory / "chat_template.jinja"))
    out["default"] = read_text(directory / "chat_template.jinja");
  const fs::path more = directory / "additional_chat_templates";
  if (fs::is_directory(more))
    for (const auto& entry : fs::directory_iterator(more))
      if (entry.is_regular_file() && entry.path().extension() == ".jinja")
        out[entry.path().stem().string()] = read_text(entry.path());
  if (out.count("default") == 1) return out;
  const std::string file = (directory / "tokenizer_config.json").string();
  for (auto& [name, source] : named_templates(config.value("chat_template", Json()), file))
    out.try_emplace(name, std::move(source));
  if (out.count("default") == 1) return out;
  const fs::path legacy = directory / "chat_template.json";
  for (auto& [name, source] :
       named_templates(read_object(legacy).value("chat_template", Json()), legacy.string()))
    out.try_emplace(name, std::move(source));
  if (!out.empty() && out.count("default") == 0) out["default"] = out.begin()->second;
  return out;
}

}  // namespace

std::unique_ptr<ChatTemplate> ChatTemplate::load(const std::string& directory,
                                                 const std::string& override_) {
  const fs::path folder(directory);
  const Json config = read_object(folder / "tokenizer_config.json");
  std::map<std::string, std::string> tokens;
  add_special_tokens(tokens, read_object(folder / "special_tokens_map.json"));
  add_special_tokens(tokens, config);
  return load_given(directory_templates(folder, config), tokens, override_);
}

std::unique_ptr<ChatTemplate> ChatTemplate::load_given(
    const std::map<std::string, std::string>& sources,
    const std::map<std::string, std::string>& special_tokens, const std::string& override_) {
  const auto chosen = override_.empty() ? sources : override_template(override_, sources);
  return chosen.empty() ? nullptr : from_sources(chosen, special_tokens);
}

}  // namespace sluice
