// Identifiers that the server makes: unguessable, so that one client cannot name another's request.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice {

// `prefix` and 32 random hexadecimal digits from the system's generator. Any thread.
std::string make_id(std::string_view prefix);
// A 64-bit random number from the same source.
std::uint64_t random_u64();
// 1 to 128 printable ASCII characters without quotes, backslash or spaces.
bool valid_request_id(std::string_view id);

}  // namespace sluice
