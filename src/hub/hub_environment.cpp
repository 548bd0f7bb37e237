#include "hub/hub_environment.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <string_view>

#include "base/error.h"
#include "hub/expand_path.h"

namespace sluice {
namespace {

constexpr std::string_view kDefaultEndpoint = "https://huggingface.co";
constexpr std::size_t kMaxToken = 4096;

// The first variable with a value.
std::string variable(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return value;
  return "";
}

// The rule of huggingface_hub for its switches.
bool is_true(std::string_view text) {
  std::string upper(text);
  std::ranges::transform(upper, upper.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return upper == "1" || upper == "ON" || upper == "YES" || upper == "TRUE";
}

std::string trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return std::string(text);
}

std::chrono::seconds seconds_of(const char* name, const std::string& text, int otherwise) {
  if (text.empty()) return std::chrono::seconds(otherwise);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require(error == std::errc{} && end == text.data() + text.size() && value >= 1 && value <= 86400,
          "{} is \"{}\"; it must be a whole number of seconds from 1 to 86400", name,
          text.substr(0, 40));
  return std::chrono::seconds(value);
}

std::string read_token_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxToken, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return trimmed(text);
}

// Messages show no part of the token: it is a secret.
void check_token(const std::string& token, const std::string& source) {
  require(token.size() < kMaxToken &&
              std::ranges::all_of(token, [](char c) { return c > ' ' && c < 127; }),
          "the token of {} has a character that no token has (a space, a line break, a letter "
          "beyond ASCII) or is longer "
          "than {} bytes; copy it again from https://huggingface.co/settings/tokens",
          source, kMaxToken);
}

std::string checked_endpoint(std::string text) {
  if (text.empty()) return std::string(kDefaultEndpoint);
  while (text.ends_with('/')) text.pop_back();
  const bool has_scheme = text.starts_with("https://") || text.starts_with("http://");
  const bool plain = std::ranges::all_of(text, [](char c) {
    return c > ' ' && c < 127 && c != '"' && c != '?' && c != '#' && c != '@';
  });
  require(has_scheme && plain && text.size() < 2000 && !text.ends_with(':'),
          "HF_ENDPOINT is \"{}\"; it must be a URL such as {}, without a user, a query or spaces",
          text.substr(0, 200), kDefaultEndpoint);
  return text;
}

std::string home_of_account() {
  char text[4096];
  passwd entry{}, *found = nullptr;
  return ::getpwuid_r(::geteuid(), &entry, text, sizeof text, &found) == 0 && found != nullptr
             ? found->pw_dir
             : "";
}

}  // namespace

HubEnvironment HubEnvironment::of_process(const std::string& cache) {
  HubEnvironment e;
  e.hf_hub_cache = cache.empty() ? variable({"HF_HUB_CACHE"}) : cache;
  e.huggingface_hub_cache = variable({"HUGGINGFACE_HUB_CACHE"});
  e.hf_home = variable({"HF_HOME"});
  e.xdg_cache_home = variable({"XDG_CACHE_HOME"});
  e.home = variable({"HOME"});
  if (e.home.empty()) e.home = home_of_account();  // for example for services
  e.hf_endpoint = variable({"HF_ENDPOINT"});
  e.hf_token = variable({"HF_TOKEN"});
  e.hugging_face_hub_token = variable({"HUGGING_FACE_HUB_TOKEN"});
  e.hf_token_path = variable({"HF_TOKEN_PATH"});
  e.disable_implicit_token = variable({"HF_HUB_DISABLE_IMPLICIT_TOKEN"});
  e.hf_hub_offline = variable({"HF_HUB_OFFLINE"});
  e.transformers_offline = variable({"TRANSFORMERS_OFFLINE"});
  e.etag_timeout = variable({"HF_HUB_ETAG_TIMEOUT"});
  e.download_timeout = variable({"HF_HUB_DOWNLOAD_TIMEOUT"});
  e.disable_symlinks = variable({"HF_HUB_DISABLE_SYMLINKS"});
  e.disable_progress_bars = variable({"HF_HUB_DISABLE_PROGRESS_BARS"});
  e.http_proxy = variable({"http_proxy", "HTTP_PROXY"});
  e.ssl_cert_file = variable({"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"});
  return e;
}

std::string HubEnvironment::expanded(const std::string& path) const {
  return expand_path(path, home);
}

std::string HubEnvironment::huggingface_home() const {
  if (!hf_home.empty()) return expanded(hf_home);
  if (xdg_cache_home.empty()) return home + "/.cache/huggingface";
  return expanded(xdg_cache_home + (xdg_cache_home.ends_with('/') ? "" : "/") + "huggingface");
}

std::string HubEnvironment::cache_directory() const {
  if (!hf_hub_cache.empty()) return expanded(hf_hub_cache);
  if (!huggingface_hub_cache.empty()) return expanded(huggingface_hub_cache);
  return huggingface_home() + "/hub";
}

std::string HubEnvironment::offline_variable() const {
  // TRANSFORMERS_OFFLINE counts only if HF_HUB_OFFLINE is not set.
  if (!hf_hub_offline.empty()) return is_true(hf_hub_offline) ? "HF_HUB_OFFLINE" : "";
  return is_true(transformers_offline) ? "TRANSFORMERS_OFFLINE" : "";
}

bool HubEnvironment::shows_progress() const {
  return !is_true(disable_progress_bars);
}

HubSettings HubEnvironment::settings() const {
  HubSettings s;
  s.cache = cache_directory();
  s.endpoint = checked_endpoint(trimmed(hf_endpoint));
  s.offline_variable = offline_variable();
  s.offline = !s.offline_variable.empty();
  s.symlinks = !is_true(disable_symlinks);
  s.etag_timeout = seconds_of("HF_HUB_ETAG_TIMEOUT", etag_timeout, 10);
  s.download_timeout = seconds_of("HF_HUB_DOWNLOAD_TIMEOUT", download_timeout, 10);
  s.http_proxy = http_proxy;
  s.certificates = expanded(ssl_cert_file);
  if (is_true(disable_implicit_token)) return s;
  const std::string path =
      hf_token_path.empty() ? huggingface_home() + "/token" : expanded(hf_token_path);
  const std::pair<std::string, std::string> places[] = {
      {trimmed(hf_token), "HF_TOKEN"},
      {trimmed(hugging_face_hub_token), "HUGGING_FACE_HUB_TOKEN"},
      {read_token_file(path), path}};
  for (const auto& [token, source] : places) {
    if (token.empty()) continue;
    check_token(token, source);
    s.token = token;
    s.token_source = source;
    break;
  }
  return s;
}

}  // namespace sluice
