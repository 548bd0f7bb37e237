#include "hub/file_choice.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"

namespace sluice {
namespace {

constexpr std::string_view kConfig = "config.json";

// File names that readers look for; transformers looks for the same.
constexpr std::string_view kWanted[] = {
    "generation_config.json",
    "hf_quant_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "processor_config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "params.json",
};

// Endings of other files with tokenizers, templates and configurations.
constexpr std::string_view kTextEndings[] = {".json", ".jinja", ".model", ".tiktoken",
                                             ".txt",  ".py",    ".spm",   ".bpe"};
constexpr std::string_view kTemplates = "additional_chat_templates/";
constexpr std::uint64_t kMaxTextFile = 512 << 20;  // no tokenizer is larger

// A file of a module of sentence-transformers: "1_Pooling/config.json",
// "2_Dense/model.safetensors".
bool is_module_file(std::string_view path) {
  const std::size_t digits = path.find_first_not_of("0123456789");
  const std::size_t slash = path.find('/');
  if (digits == 0 || digits >= path.size() || path[digits] != '_' ||
      slash == std::string_view::npos || !is_plain_file_name(path.substr(0, slash)))
    return false;
  const std::string_view name = path.substr(slash + 1);
  return name == kConfig || (path.substr(digits + 1).starts_with("Dense") &&
                             (name == "model.safetensors" || name == "pytorch_model.bin"));
}

bool is_text_file(const RepoFile& file) {
  std::string_view name = file.path;
  if (is_module_file(name)) return file.size <= kMaxTextFile;
  if (name.starts_with(kTemplates)) name.remove_prefix(kTemplates.size());
  if (!is_plain_file_name(name) || file.size > kMaxTextFile) return false;
  return std::ranges::any_of(kTextEndings,
                             [&](std::string_view ending) { return name.ends_with(ending); });
}

}  // namespace

std::vector<std::string_view> wanted_names() {
  return {std::begin(kWanted), std::end(kWanted)};
}

bool is_tokenizer_file(std::string_view name) {
  constexpr std::string_view kNames[] = {
      "tokenizer.json", "tokenizer.model",         "vocab.json",     "vocab.txt",  "spiece.model",
      "spm.model",      "sentencepiece.bpe.model", "tiktoken.model", "tekken.json"};
  return std::ranges::find(kNames, name) != std::end(kNames) || name.ends_with(".tiktoken");
}

std::vector<RepoFile> choose_text_files(const std::vector<RepoFile>& files) {
  std::vector<RepoFile> chosen;
  for (const RepoFile& file : files)
    if (file.path != kConfig && is_text_file(file)) chosen.push_back(file);
  for (const RepoFile& file : files)
    if (file.path == kConfig) chosen.push_back(file);
  return chosen;
}

bool matches_glob(std::string_view path, std::string_view pattern) {
  if (pattern.ends_with('/')) return path.starts_with(pattern);
  std::size_t p = 0, t = 0, star = std::string_view::npos, from = 0;
  // Only the last '*' is retried, so the work is at most the two lengths multiplied.
  while (t < path.size()) {
    std::size_t next = p + 1;
    bool fits = false;
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = t;
      continue;
    }
    if (p < pattern.size() && pattern[p] == '[') {
      const bool negated = p + 1 < pattern.size() && pattern[p + 1] == '!';
      const std::size_t begin = p + 1 + (negated ? 1 : 0);
      const std::size_t close = pattern.find(']', begin + 1);
      if (close == std::string_view::npos) {
        fits = path[t] == '[';
      } else {
        const std::string_view set = pattern.substr(begin, close - begin);
        for (std::size_t i = 0; i < set.size(); ++i) {
          const bool range = i + 2 < set.size() && set[i + 1] == '-';
          fits = fits || (range ? set[i] <= path[t] && path[t] <= set[i + 2] : set[i] == path[t]);
          i += range ? 2 : 0;
        }
        fits = fits != negated;
        next = close + 1;
      }
    } else {
      fits = p < pattern.size() && (pattern[p] == '?' || pattern[p] == path[t]);
    }
    if (fits) {
      p = next;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++from;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace sluice
