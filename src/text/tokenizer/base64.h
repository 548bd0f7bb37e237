// Base64 (RFC 4648, section 4), as tokenizer files hold bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// The bytes; nullopt for text that is no base64. Padding may be left out; white space is not
// allowed.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace sluice
