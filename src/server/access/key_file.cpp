#include "server/access/key_file.h"

#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <span>

#include "base/digest.h"
#include "base/file.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "base/yaml.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxFileBytes = 1 << 20;
constexpr std::size_t kMaxKeys = 4096;
constexpr std::size_t kMaxNameLength = 64;
// A request line and its headers hold no longer one.
constexpr std::size_t kMaxKeyLength = 4096;
constexpr std::string_view kFileFields[] = {"keys"};
constexpr std::string_view kKeyFields[] = {
    "name", "key", "key_sha256", "role", "max_concurrent_requests", "max_tokens_per_minute"};

bool is_name(std::string_view text) {
  const auto fits = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_' || c == '-';
  };
  return !text.empty() && text.size() <= kMaxNameLength && std::ranges::all_of(text, fits);
}

bool is_digest(std::string_view text) {
  const auto fits = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return text.size() == 64 && std::ranges::all_of(text, fits);
}

// `where` names the file and the entry.
void check_fields(const Json& object, std::span<const std::string_view> known,
                  std::string_view where) {
  require(object.is_object(), "{}: expected fields ({}), not {}", where, fmt::join(known, ", "),
          object.type_name());
  for (const auto& [name, value] : object.items()) {
    if (std::ranges::find(known, name) != known.end()) continue;
    const std::string_view near = nearest_name(name, known);
    fail(ErrorKind::kBadInput, "{}: unknown field `{}`{}; known: {}", where, name,
         near.empty() ? "" : fmt::format(", did you mean `{}`?", near), fmt::join(known, ", "));
  }
}

// A field's text; empty where it is absent.
std::string text_field(const Json& object, const char* name, std::string_view where) {
  const auto found = object.find(name);
  if (found == object.end()) return "";
  // The value may be a key, so it is not shown.
  require(found->is_string(), "{}: `{}` must be text; write it in quotes", where, name);
  return found->get<std::string>();
}

std::int64_t limit_field(const Json& object, const char* name, std::int64_t most,
                         std::string_view where) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return 0;
  const bool fits = found->is_number_integer() &&
                    (!found->is_number_unsigned() ||
                     found->get<std::uint64_t>() <= static_cast<std::uint64_t>(most)) &&
                    found->get<std::int64_t>() >= 1 && found->get<std::int64_t>() <= most;
  require(fits, "{}: `{}` is {}; allowed: 1 to {}, or nothing for no limit", where, name,
          dump_json(*found), most);
  return found->get<std::int64_t>();
}

ApiKey read_key(const Json& object, std::string_view where) {
  check_fields(object, kKeyFields, where);
  ApiKey out;
  out.name = text_field(object, "name", where);
  require(is_name(out.name),
          "{}: `name` must be 1 to {} letters, digits, `.`, `_` or `-`; logs show it", where,
          kMaxNameLength);
  const std::string key = text_field(object, "key", where);
  out.digest = text_field(object, "key_sha256", where);
  require(key.empty() != out.digest.empty(), "{}: give `key` or `key_sha256`, one of them", where);
  if (!key.empty()) {
    const bool is_visible = std::ranges::all_of(key, [](char c) { return c > ' ' && c < 127; });
    require(key.size() <= kMaxKeyLength && is_visible,
            "{}: `key` must be at most {} visible ASCII characters without blanks, as a header "
            "carries it",
            where, kMaxKeyLength);
    out.digest = key_digest(key);
  }
  require(is_digest(out.digest), "{}: `key_sha256` must be 64 hexadecimal digits in lower case",
          where);
  const std::string role = text_field(object, "role", where);
  require(role.empty() || role == "user" || role == "admin",
          "{}: `role` is `{}`; allowed: user, admin", where, role);
  out.is_admin = role == "admin";
  out.limits.max_concurrent_requests =
      static_cast<int>(limit_field(object, "max_concurrent_requests", 1'000'000, where));
  out.limits.max_tokens_per_minute =
      limit_field(object, "max_tokens_per_minute", 1'000'000'000'000, where);
  return out;
}

}  // namespace

std::string key_digest(std::string_view key) {
  Sha256 digest;
  digest.update(std::as_bytes(std::span(key)));
  return digest.hex();
}

std::vector<ApiKey> parse_key_file(std::string_view text, std::string_view what) {
  const Json file = parse_yaml_or_throw(text, what);
  check_fields(file, kFileFields, what);
  const auto list = file.find("keys");
  require(list != file.end() && list->is_array() && !list->empty(),
          "{}: `keys` must be a list of at least one key", what);
  require(list->size() <= kMaxKeys, "{}: {} keys; allowed are at most {}", what, list->size(),
          kMaxKeys);
  std::vector<ApiKey> keys;
  std::set<std::string> names, digests;
  for (const Json& entry : *list) {
    const bool is_named = entry.is_object() && entry.contains("name") &&
                          entry["name"].is_string() && is_name(entry["name"].get<std::string>());
    const std::string where =
        fmt::format("{}, key {}{}", what, keys.size() + 1,
                    is_named ? fmt::format(" (`{}`)", entry["name"].get<std::string>()) : "");
    keys.push_back(read_key(entry, where));
    require(names.insert(keys.back().name).second, "{}: another key has that name", where);
    require(digests.insert(keys.back().digest).second, "{}: another entry has the same key", where);
  }
  return keys;
}

std::vector<ApiKey> read_key_file(const std::string& path) {
  const File file = open_regular_file(path);
  require(file.size() <= kMaxFileBytes, "{}: {} bytes; a file of keys has at most {}", path,
          file.size(), kMaxFileBytes);
  std::string text(file.size(), '\0');
  require(file.read(0, std::as_writable_bytes(std::span(text))), "{} changed while it was read",
          path);
  struct stat status{};
  if (stat(path.c_str(), &status) == 0 && (status.st_mode & 077) != 0)
    log_warning("{} holds keys, and others than its owner may use it (mode {:o}): chmod 600 {}",
                path, status.st_mode & 0777, path);
  return parse_key_file(text, path);
}

}  // namespace sluice
