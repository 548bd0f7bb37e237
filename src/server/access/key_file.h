// The file of --api-key-file: keys with names, roles and limits, in YAML or JSON (docs/access.md).
//
//   keys:
//     - name: alice
//       key: sk-0123456789abcdef
//     - name: operator
//       key_sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//       role: admin
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/access/key_account.h"

namespace sluice {

struct ApiKey {
  std::string name;    // 1 to 64 letters, digits, `.`, `_`, `-`
  std::string digest;  // SHA-256 of the key, 64 hexadecimal digits
  bool is_admin = false;
  KeyLimits limits;
};

// SHA-256 of a key.
std::string key_digest(std::string_view key);

// The keys of the text of a file. Error{kBadInput} names `what`, the entry and the field at fault,
// but shows no key.
std::vector<ApiKey> parse_key_file(std::string_view text, std::string_view what);
// The keys of the file at `path`. Warns when others than its owner may read it.
std::vector<ApiKey> read_key_file(const std::string& path);

}  // namespace sluice
