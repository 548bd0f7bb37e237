#include "cli/colours.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

namespace sluice {
namespace {

std::string_view environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

bool may_colour(int descriptor) {
  return isatty(descriptor) != 0 && environment("NO_COLOR").empty() &&
         environment("TERM") != "dumb";
}

std::string coloured(std::FILE* out, Colour colour, std::string_view text) {
  if (!may_colour(fileno(out))) return std::string(text);
  const std::string_view code = colour == Colour::kRed    ? "1;31"
                                : colour == Colour::kCyan ? "36"
                                                          : "1";
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

}  // namespace sluice
