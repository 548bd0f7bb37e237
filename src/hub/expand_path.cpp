#include "hub/expand_path.h"

#include <pwd.h>

#include <algorithm>

#include <cstdlib>
#include <optional>

namespace sluice {
namespace {

std::optional<std::string> home_of(const std::string& account) {
  char text[4096];
  passwd entry{}, *found = nullptr;
  if (::getpwnam_r(account.c_str(), &entry, text, sizeof text, &found) != 0 || found == nullptr)
    return std::nullopt;
  return std::string(found->pw_dir);
}

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

std::string expand_user(std::string_view path, const std::string& home) {
  if (!path.starts_with('~')) return std::string(path);
  const std::size_t end = std::min(path.find('/'), path.size());
  const std::string account(path.substr(1, end - 1));
  std::optional<std::string> place = account.empty() ? home : home_of(account);
  if (!place || place->empty()) return std::string(path);
  while (place->ends_with('/')) place->pop_back();
  *place += path.substr(end);
  return place->empty() ? "/" : *place;
}

}  // namespace

std::string expand_path(std::string_view path, const std::string& home) {
  const std::string with_home = expand_user(path, home);
  const std::string_view text = with_home;
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t begin = at + 1, end = begin;
    const bool braced = text[at] == '$' && begin < text.size() && text[begin] == '{';
    if (text[at] == '$' && !braced)
      while (end < text.size() && is_name(text[end])) ++end;
    if (braced) end = std::min(text.find('}', ++begin), text.size());
    const std::string name(text.substr(begin, end - begin));
    const std::size_t past = braced ? end + 1 : end;
    const char* value = name.empty() || past > text.size() ? nullptr : std::getenv(name.c_str());
    if (value != nullptr) {
      out += value;
      at = past;
    } else {
      // The whole match stays, so that nothing inside of it is taken for a variable.
      const std::size_t kept = name.empty() || past > text.size() ? at + 1 : past;
      out += text.substr(at, kept - at);
      at = kept;
    }
  }
  return out;
}

}  // namespace sluice
