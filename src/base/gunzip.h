// Reads gzip files (RFC 1952, RFC 1951).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sluice {

bool is_gzip(std::string_view bytes);

// The contents of all members of a gzip file. Error{kBadInput} with `what` where the file is
// damaged, or where there are more than max_bytes. Checksums are not looked at; lengths are.
std::string gunzip(std::string_view bytes, std::string_view what,
                   std::size_t max_bytes = std::size_t{1} << 30);

}  // namespace sluice
