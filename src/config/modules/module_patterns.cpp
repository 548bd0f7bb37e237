#include "config/modules/module_patterns.h"

#include <algorithm>
#include <optional>

#include "base/log.h"

namespace sluice {
namespace {

constexpr std::string_view kRegex = "re:", kBody = "model.";
// Names of a text model within another one (models/wrapped_names.h).
constexpr std::string_view kWrappers[] = {"language_model", "text_model"};

// '*': any characters. Only the last '*' is retried: the work is at most both lengths multiplied.
bool matches_stars(std::string_view name, std::string_view pattern) {
  std::size_t at = 0, in_name = 0, star = std::string_view::npos, from = 0;
  while (in_name < name.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      from = in_name;
    } else if (at < pattern.size() && pattern[at] == name[in_name]) {
      ++at;
      ++in_name;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      in_name = ++from;
    } else {
      return false;
    }
  }
  while (at < pattern.size() && pattern[at] == '*') ++at;
  return at == pattern.size();
}

}  // namespace

ModulePatterns::ModulePatterns(const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    for (const std::string_view wrapper : kWrappers)
      has_wrapped_ = has_wrapped_ || pattern.find(wrapper) != std::string::npos;
    if (pattern.starts_with(kRegex)) {
      if (std::optional<NameRegex> regex = NameRegex::read(pattern.substr(kRegex.size())))
        regexes_.push_back(*std::move(regex));
      else
        log_warning(
            "quantization_config: the pattern \"{}\" cannot be read, so it counts for no module",
            pattern.substr(0, 200));
    } else if (pattern.find('*') != std::string::npos) {
      globs_.push_back(pattern);
      globs_.push_back(pattern + ".*");
    } else {
      parts_.insert(pattern);
    }
  }
}

bool ModulePatterns::match_one(std::string_view name) const {
  for (std::size_t begin = 0; !parts_.empty() && begin < name.size();) {
    for (std::size_t end = begin; end < name.size();) {
      end = std::min(name.find('.', end + 1), name.size());
      if (parts_.contains(name.substr(begin, end - begin))) return true;
    }
    const std::size_t dot = name.find('.', begin);
    begin = dot == std::string_view::npos ? name.size() : dot + 1;
  }
  for (const std::string& glob : globs_)
    if (matches_stars(name, glob)) return true;
  for (const NameRegex& regex : regexes_)
    if (regex.matches(name)) return true;
  return false;
}

bool ModulePatterns::match(std::string_view name) const {
  if (match_one(name)) return true;
  if (!has_wrapped_) return false;
  for (const std::string_view wrapper : kWrappers) {
    const std::string before = std::string(wrapper) + '.';
    if (match_one(before + std::string(name))) return true;
    if (name.starts_with(kBody) &&
        match_one(std::string(kBody) + before + std::string(name.substr(kBody.size()))))
      return true;
  }
  return false;
}

}  // namespace sluice
