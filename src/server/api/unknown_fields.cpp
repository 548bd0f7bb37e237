#include "server/api/unknown_fields.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "base/log.h"
#include "base/nearest_name.h"
#include "server/core/errors.h"

namespace sluice {
namespace {

// Clients choose these names, so neither the log nor the set of noted ones may grow with them.
constexpr std::size_t kMaxNoted = 256;
constexpr std::size_t kMaxTold = 16, kMaxNameBytes = 64;

bool first_time(const std::string& name) {
  static std::mutex mutex;
  static std::set<std::string> noted;  // guarded by mutex
  std::lock_guard lock(mutex);
  return noted.size() < kMaxNoted && noted.insert(name.substr(0, kMaxNameBytes)).second;
}

// The name as a header may hold it.
std::string header_text(std::string_view name) {
  std::string out(name.substr(0, kMaxNameBytes));
  for (char& c : out)
    if (c <= ' ' || c >= 127 || c == ',' || c == '"') c = '?';
  return out;
}

}  // namespace

void note_unknown(const Json& object, std::span<const std::string_view> known,
                  std::string_view prefix, std::vector<std::string>& ignored) {
  for (const auto& [name, value] : object.items()) {
    if (ignored.size() > kMaxTold) return;  // the time for a request full of them is bounded
    if (value.is_null() || std::ranges::find(known, name) != known.end()) continue;
    std::string path = std::string(prefix) + name;
    if (first_time(path)) {
      const std::string_view near = nearest_name(name, known);
      log_warning("request field {} is not known and has no effect{}", shown_text(path, 96),
                  near.empty() ? "" : fmt::format("; did you mean `{}`?", near));
    }
    if (std::ranges::find(ignored, path) == ignored.end()) ignored.push_back(std::move(path));
  }
}

void note_without_effect(std::string path, std::vector<std::string>& ignored) {
  if (std::ranges::find(ignored, path) != ignored.end()) return;
  if (first_time(path))
    log_info("request field {} is accepted and has no effect here", shown_text(path, 96));
  if (ignored.size() <= kMaxTold) ignored.push_back(std::move(path));
}

void tell_ignored(Responder& responder, const std::vector<std::string>& ignored) {
  if (ignored.empty()) return;
  std::string names;
  for (std::size_t i = 0; i < ignored.size() && i < kMaxTold; ++i)
    names += (i > 0 ? ", " : "") + header_text(ignored[i]);
  if (ignored.size() > kMaxTold) names += ", ...";
  responder.add_header("X-Ignored-Fields", std::move(names));
}

}  // namespace sluice
