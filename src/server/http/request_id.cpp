#include "server/http/request_id.h"

#include <sys/random.h>

#include "base/error.h"

namespace sluice {

std::uint64_t random_u64() {
  std::uint64_t value = 0;
  check(getrandom(&value, sizeof value, 0) == sizeof value, "getrandom failed");
  return value;
}

std::string make_id(std::string_view prefix) {
  return fmt::format("{}{:016x}{:016x}", prefix, random_u64(), random_u64());
}

bool valid_request_id(std::string_view id) {
  if (id.empty() || id.size() > 128) return false;
  for (const char c : id)
    if (c <= ' ' || c >= 127 || c == '"' || c == '\\') return false;
  return true;
}

}  // namespace sluice
