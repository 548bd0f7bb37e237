// References between schemas: RFC 3986, as far as `$id` and `$ref` need it.
#pragma once

#include <string>
#include <string_view>

namespace sluice::grammar {

// `reference` resolved against `base` (section 5.2), without its fragment. An empty base leaves a
// relative reference as it is.
std::string resolve_uri(std::string_view base, std::string_view reference);
// What follows the first '#', or nothing.
std::string_view uri_fragment(std::string_view reference);
bool has_uri_fragment(std::string_view reference);
// %XX decoded; a '%' without two hexadecimal digits stays.
std::string decode_percent(std::string_view text);

}  // namespace sluice::grammar
