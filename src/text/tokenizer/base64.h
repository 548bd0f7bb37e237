// Base64 (RFC 4648, section 4), the encoding of bytes in tokenizer files.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice {

// The bytes; nullopt for text that is not base64. Padding is optional; white space is not allowed.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace sluice
