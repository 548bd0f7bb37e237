#include "server/http/request_target.h"

#include <algorithm>

namespace sluice {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_alphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// `scheme` is in lower case.
bool starts_with_scheme(std::string_view text, std::string_view scheme) {
  if (text.size() < scheme.size()) return false;
  for (std::size_t i = 0; i < scheme.size(); ++i) {
    const char c = text[i] >= 'A' && text[i] <= 'Z' ? static_cast<char>(text[i] + 32) : text[i];
    if (c != scheme[i]) return false;
  }
  return true;
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
    if (high < 0 || low < 0 || high + low == 0) return std::nullopt;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

}  // namespace

bool valid_host(std::string_view value) {
  constexpr std::string_view kOthers = "-._~!$&'()*+,;=:[]%";
  return std::ranges::all_of(value, [&](char c) {
    return is_alphanumeric(c) || kOthers.find(c) != std::string_view::npos;
  });
}

std::optional<RequestTarget> read_request_target(std::string_view method, std::string_view target) {
  if (target == "*" && method == "OPTIONS") return RequestTarget{"*", ""};
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!starts_with_scheme(target, scheme)) continue;
    target.remove_prefix(scheme.size());
    const std::size_t end = std::min(target.find_first_of("/?"), target.size());
    if (end == 0 || !valid_host(target.substr(0, end))) return std::nullopt;
    target.remove_prefix(end);
    if (target.empty() || target[0] == '?') {
      const std::string_view query = target.empty() ? target : target.substr(1);
      return RequestTarget{"/", std::string(query)};
    }
    break;
  }
  if (target.empty() || target[0] != '/') return std::nullopt;
  const std::size_t mark = std::min(target.find('?'), target.size());
  std::optional<std::string> path = percent_decoded(target.substr(0, mark));
  if (!path) return std::nullopt;
  const std::string_view query = mark < target.size() ? target.substr(mark + 1) : "";
  return RequestTarget{std::move(*path), std::string(query)};
}

std::string without_extra_slashes(std::string_view path) {
  std::string out;
  for (const char c : path)
    if (c != '/' || out.empty() || out.back() != '/') out += c;
  if (out.size() > 1 && out.back() == '/') out.pop_back();
  return out;
}

}  // namespace sluice
