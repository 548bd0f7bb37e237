// A path of an environment variable, as Python's os.path.expanduser and os.path.expandvars read it.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

// First a leading `~` becomes `home`, and `~name` the home of that account. Then `$NAME` and
// `${NAME}` become the values of variables. What names no account or no variable stays as it is.
// A value is not expanded again.
std::string expand_path(std::string_view path, const std::string& home);

}  // namespace sluice
