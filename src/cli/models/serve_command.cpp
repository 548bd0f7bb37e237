#include "cli/models/serve_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace sluice {
namespace {

std::string shell_word(const std::string& text) {
  const bool plain = !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_./@:+").find(c) != std::string_view::npos;
  });
  if (plain) return text;
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

std::string serve_command(const std::string& model, Options options, bool has_weights) {
  options.model.clear();
  if (!has_weights) options.load_format = "dummy";
  std::string command = fmt::format("sluice serve {}", shell_word(model));
  for (const GivenOption& given : given_options(options)) {
    command += fmt::format(" --{}", given.row->name);
    if (given.row->type != OptionType::kFlag)
      command += " " + shell_word(given.text);
    else if (given.text != "true")
      command += "=" + given.text;
  }
  return command;
}

}  // namespace sluice
