#include "cli/config_file.h"

#include <algorithm>

#include "base/yaml.h"
#include "cli/files.h"

namespace sluice {
namespace {

// A value that is no list, as a command line has it.
std::string scalar_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  return dump_json(value);
}

std::string value_text(const OptionRow& row, const Json& value, std::string_view where) {
  require(!value.is_null(), "{}: it has no value; write one, or leave the line out", where);
  if (!value.is_array() || row.type != OptionType::kList) return scalar_text(value);
  std::string list;
  for (const Json& part : value) {
    require(!part.is_structured() && !part.is_null(), "{}: a list of it holds words or numbers",
            where);
    list += (list.empty() ? "" : ",") + scalar_text(part);
  }
  return list;
}

}  // namespace

std::vector<ConfigOption> parse_config(std::string_view text, std::string_view what) {
  const Json file = parse_yaml_or_throw(text, what);
  std::vector<ConfigOption> options;
  if (file.is_null()) return options;
  require(file.is_object(), "{}: expected options by name, as `port: 8000`, not {}", what,
          file.type_name());
  for (const auto& [name, value] : file.items()) {
    const OptionRow* const row = find_option(name);
    if (row == nullptr) {
      const std::string near = nearest_option(name);
      fail(ErrorKind::kBadInput, "{}: unknown option `{}`{}", what, name,
           near.empty() ? "; `sluice serve --help` lists the options"
                        : fmt::format("; did you mean `{}`?", near));
    }
    const auto same = std::ranges::find(options, row, &ConfigOption::row);
    require(same == options.end(), "{}: `{}` and `{}` are the same option; keep one of them", what,
            same == options.end() ? "" : same->name, name);
    options.push_back({row, name, value_text(*row, value, fmt::format("{}, `{}`", what, name))});
  }
  return options;
}

std::vector<ConfigOption> read_config(const std::string& path) {
  return parse_config(read_text_file(path), path);
}

}  // namespace sluice
