// The keys of a tokenizer's files that change nothing.
#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "text/tokenizer/files/tokenizer_files.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_parts.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMaxBytes = std::uint64_t{512} << 20;

// Keys that are read whatever the vocabulary's file is.
constexpr std::string_view kAlways[] = {"additional_special_tokens", "extra_special_tokens",
                                        "added_tokens_decoder", "chat_template",
                                        "split_special_tokens"};
// Keys that are read for one kind of file only; a tokenizer.json says the same in its own words.
struct KindRow {
  std::string_view ending;
  std::string_view keys[6];
};
constexpr KindRow kKinds[] = {
    {".model", {"add_bos_token", "add_eos_token", "legacy", "tokenizer_class"}},
    {"merges.txt", {"add_prefix_space", "tokenizer_class"}},
    {"vocab.txt", {"tokenize_chinese_chars", "strip_accents", "do_lower_case"}}};

bool is_token_name(std::string_view key, const Json& value) {
  return key.ends_with("_token") && (value.is_string() || value.is_object());
}

bool is_read(std::string_view key, const Json& value, const std::string& vocabulary) {
  if (is_token_name(key, value)) return true;
  if (std::find(std::begin(kAlways), std::end(kAlways), key) != std::end(kAlways)) return true;
  for (const KindRow& kind : kKinds)
    if (vocabulary.ends_with(kind.ending) &&
        std::find(std::begin(kind.keys), std::end(kind.keys), key) != std::end(kind.keys))
      return true;
  return false;
}

// Nothing where the file is missing or is refused.
Json read_object(const std::string& directory, const char* name) {
  const auto text = read_text_beneath(directory, name, kMaxBytes);
  if (!text) return Json::object();
  Result<Json> json = parse_json(*text);
  return json.ok() && json->is_object() ? std::move(*json) : Json::object();
}

// The members of a tokenizer.json by simdjson, because a vocabulary is large.
std::vector<std::string> ignored_of_json(const std::string& directory) {
  constexpr std::string_view kRead[] = {"version",       "added_tokens",   "normalizer",
                                        "pre_tokenizer", "post_processor", "decoder",
                                        "model"};
  std::vector<std::string> ignored;
  for (const auto& [key, is_null] : tokenizer_json_members(
           read_text_beneath(directory, "tokenizer.json", kMaxBytes).value_or("{}")))
    if (!is_null && std::find(std::begin(kRead), std::end(kRead), key) == std::end(kRead))
      ignored.push_back(key);
  return ignored;
}

}  // namespace

std::vector<std::pair<std::string, std::vector<std::string>>> Tokenizer::ignored_keys(
    const std::string& directory, TokenizerMode mode) {
  std::vector<std::pair<std::string, std::vector<std::string>>> out;
  const std::string vocabulary =
      std::filesystem::path(file_of(directory, mode)).filename().string();
  if (vocabulary == "tokenizer.json")
    if (auto keys = ignored_of_json(directory); !keys.empty())
      out.emplace_back(vocabulary, std::move(keys));
  const Json config = read_object(directory, "tokenizer_config.json");
  const auto list = [&](const char* name, const Json& file, const auto& changes) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : file.items())
      if (!value.is_null() && !changes(key, value)) keys.push_back(key);
    if (!keys.empty()) out.emplace_back(name, std::move(keys));
  };
  list("tokenizer_config.json", config,
       [&](const std::string& key, const Json& value) { return is_read(key, value, vocabulary); });
  // Where tokenizer_config.json lists the added tokens, the other files only name bos and eos.
  const bool has_decoder = config.contains("added_tokens_decoder");
  list("special_tokens_map.json", read_object(directory, "special_tokens_map.json"),
       [&](const std::string& key, const Json& value) {
         if (has_decoder && vocabulary == "tokenizer.json")
           return config.contains(key) ? config[key] == value
                                       : key == "bos_token" || key == "eos_token";
         return is_token_name(key, value) || key == "additional_special_tokens" ||
                key == "extra_special_tokens";
       });
  return out;
}

}  // namespace sluice
