// Who may call what (R17): a route's access class is looked up after routing, and what is not
// allowed is refused.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "server/http/http.h"

namespace sluice {

enum class Access : std::uint8_t {
  kOpen,     // anybody
  kUser,     // an API key or the admin key, where keys are configured
  kAdmin,    // the admin key; without any key configured, callers on this machine
  kMetrics,  // as kUser
};

// Keys are kept and compared as 256-bit digests, in constant time. Immutable; any thread.
class KeyPipeline {
 public:
  KeyPipeline(const std::vector<std::string>& api_keys, const std::string& admin_key);

  bool has_keys() const { return !api_.empty() || admin_.has_value(); }
  // Sets head.key_id (0 without keys), owner and admin; a fault (401, 403) says why the caller may
  // not.
  std::optional<Fault> authorize(Access access, HttpRequest& head) const;

 private:
  using Digest = std::array<std::uint64_t, 4>;
  Digest digest(std::string_view key) const;

  std::array<std::uint64_t, 8> secret_;  // of this process: digests say nothing to an observer
  std::vector<Digest> api_;
  std::optional<Digest> admin_;
};

}  // namespace sluice
