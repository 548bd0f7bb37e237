#include "text/grammar/schema/uri.h"

namespace sluice::grammar {
namespace {

struct Parts {
  std::string_view scheme, authority, path, query;
  bool has_authority = false;
  bool has_query = false;
};

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

Parts split(std::string_view text) {
  Parts parts;
  text = text.substr(0, text.find('#'));
  std::size_t end = 0;
  while (end < text.size() &&
         (is_letter(text[end]) ||
          (end > 0 && (text[end] == '+' || text[end] == '-' || text[end] == '.' ||
                       (text[end] >= '0' && text[end] <= '9'))))) {
    ++end;
  }
  if (end > 0 && end < text.size() && text[end] == ':') {
    parts.scheme = text.substr(0, end);
    text.remove_prefix(end + 1);
  }
  if (text.starts_with("//")) {
    text.remove_prefix(2);
    parts.has_authority = true;
    parts.authority = text.substr(0, text.find_first_of("/?"));
    text.remove_prefix(parts.authority.size());
  }
  parts.path = text.substr(0, text.find('?'));
  text.remove_prefix(parts.path.size());
  if (!text.empty()) {
    parts.has_query = true;
    parts.query = text.substr(1);
  }
  return parts;
}

// Section 5.2.4.
std::string remove_dots(std::string_view path) {
  std::string out;
  while (!path.empty()) {
    if (path.starts_with("../")) {
      path.remove_prefix(3);
    } else if (path.starts_with("./")) {
      path.remove_prefix(2);
    } else if (path.starts_with("/./") || path == "/.") {
      path = path.size() > 2 ? path.substr(2) : std::string_view("/");
    } else if (path.starts_with("/../") || path == "/..") {
      path = path.size() > 3 ? path.substr(3) : std::string_view("/");
      const std::size_t slash = out.rfind('/');
      out.erase(slash == std::string::npos ? 0 : slash);
    } else if (path == "." || path == "..") {
      path = {};
    } else {
      const std::size_t end = path.find('/', 1);
      out += path.substr(0, end);
      path.remove_prefix(end == std::string_view::npos ? path.size() : end);
    }
  }
  return out;
}

std::string join(std::string_view scheme, bool has_authority, std::string_view authority,
                 std::string_view path, bool has_query, std::string_view query) {
  std::string out;
  if (!scheme.empty()) out += std::string(scheme) + ":";
  if (has_authority) out += "//" + std::string(authority);
  out += path;
  if (has_query) out += "?" + std::string(query);
  return out;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string resolve_uri(std::string_view base, std::string_view reference) {
  const Parts r = split(reference);
  const Parts b = split(base);
  if (!r.scheme.empty()) {
    return join(r.scheme, r.has_authority, r.authority, remove_dots(r.path), r.has_query, r.query);
  }
  if (r.has_authority) {
    return join(b.scheme, true, r.authority, remove_dots(r.path), r.has_query, r.query);
  }
  if (r.path.empty()) {
    const bool own = r.has_query;
    return join(b.scheme, b.has_authority, b.authority, b.path, own || b.has_query,
                own ? r.query : b.query);
  }
  std::string path;
  if (r.path[0] == '/') {
    path = r.path;
  } else if (b.has_authority && b.path.empty()) {
    path = "/" + std::string(r.path);
  } else {
    const std::size_t slash = b.path.rfind('/');
    if (slash != std::string_view::npos) path = b.path.substr(0, slash + 1);
    path += r.path;
  }
  return join(b.scheme, b.has_authority, b.authority, remove_dots(path), r.has_query, r.query);
}

std::string_view uri_fragment(std::string_view reference) {
  const std::size_t hash = reference.find('#');
  return hash == std::string_view::npos ? std::string_view() : reference.substr(hash + 1);
}

bool has_uri_fragment(std::string_view reference) {
  return reference.find('#') != std::string_view::npos;
}

std::string decode_percent(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
    const int low = high >= 0 ? hex_value(text[i + 2]) : -1;
    if (low >= 0) {
      out += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace sluice::grammar
