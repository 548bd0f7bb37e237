// A model directory -> Tokenizer.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "base/json.h"
#include "text/tokenizer.h"
#include "text/tokenizer_parts.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMaxSideFileBytes = 64u << 20;

std::string read_file(const fs::path& path, std::uintmax_t max_bytes) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  require(!error, "{}: {}", path.string(), error.message());
  require(size <= max_bytes, "{}: {} bytes; at most {} are allowed", path.string(), size, max_bytes);
  std::ifstream stream(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(size), '\0');
  stream.read(text.data(), static_cast<std::streamsize>(size));
  require(stream && stream.gcount() == static_cast<std::streamsize>(size), "{}: cannot be read whole",
          path.string());
  return text;
}

Json read_side_file(const fs::path& path) {
  if (!fs::is_regular_file(path)) return Json::object();
  Json json = parse_json_or_throw(read_file(path, kMaxSideFileBytes), path.string());
  require(json.is_object(), "{}: must be an object", path.string());
  return json;
}

// A token is a string, or an object with `content`.
std::string token_of(const Json& file, const std::string& key, const fs::path& path) {
  const auto member = file.find(key);
  if (member == file.end() || member->is_null()) return "";
  const Json& value = *member;
  if (value.is_string()) return value.get<std::string>();
  const auto content = value.is_object() ? value.find("content") : value.end();
  require(value.is_object() && content != value.end() && content->is_string(),
          "{}: {} must be a string or an object with \"content\"", path.string(), key);
  return content->get<std::string>();
}

std::string id_token_of(const Json& file, const std::string& key, const TokenizerParts& parts) {
  const auto member = file.find(key);
  if (member == file.end()) return "";
  const Json& value = member->is_array() && !member->empty() ? member->front() : *member;
  if (!value.is_number_integer()) return "";
  const auto id = value.get<std::int64_t>();
  if (id < 0 || id > TokenTable::kMaxId) return "";
  const auto added = parts.added.find(static_cast<std::int32_t>(id));
  return added != parts.added.end() ? added->second.content
                                    : std::string(parts.vocab.text(static_cast<std::int32_t>(id)));
}

void find_ends(const fs::path& directory, TokenizerParts& parts) {
  const auto resolve = [&](const std::string& name, std::string& token, std::optional<std::int32_t>& id) {
    for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"})
      if (token.empty())
        token = token_of(read_side_file(directory / file), name + "_token", directory / file);
    for (const char* file : {"generation_config.json", "config.json"})
      if (token.empty()) token = id_token_of(read_side_file(directory / file), name + "_token_id", parts);
    if (token.empty()) return;
    const auto added = parts.added_ids.find(token);
    id = added != parts.added_ids.end() ? std::optional(added->second) : parts.vocab.find(token);
  };
  resolve("bos", parts.bos_token, parts.bos_id);
  resolve("eos", parts.eos_token, parts.eos_id);
}

[[noreturn]] void refuse(const fs::path& directory) {
  static constexpr std::pair<const char*, const char*> kOthers[] = {
      {"tokenizer.model", "SentencePiece"}, {"tiktoken.model", "tiktoken"}, {"vocab.txt", "WordPiece"}};
  for (const auto& [name, kind] : kOthers)
    if (fs::exists(directory / name))
      fail(ErrorKind::kBadInput,
           "{}: there is no tokenizer.json; {} ({}) is not supported: convert it to tokenizer.json",
           directory.string(), name, kind);
  fail(ErrorKind::kBadInput, "{}: there is no tokenizer.json", directory.string());
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::load(const std::string& directory) {
  const fs::path path = fs::path(directory) / "tokenizer.json";
  if (!fs::is_regular_file(path)) refuse(directory);
  auto parts = parse_tokenizer_json(read_file(path, std::uintmax_t{512} << 20), path.string());
  find_ends(directory, *parts);
  return std::make_unique<Tokenizer>(std::move(parts));
}

}  // namespace sluice
