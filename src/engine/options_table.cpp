#include <algorithm>
#include <iterator>

#include "engine/options_rows.h"

namespace sluice {
namespace {

std::vector<OptionRow> make_table() {
  std::vector<OptionRow> table;
  for (const auto rows :
       {model_option_rows, memory_option_rows, speculative_option_rows, runtime_option_rows,
        expert_option_rows, server_option_rows, foreign_option_rows})
    std::ranges::move(rows(), std::back_inserter(table));
  const Options defaults;
  for (OptionRow& row : table)
    if (row.get != nullptr) row.default_text = option_text(row, defaults);
  return table;
}

// A value as the command line takes it.
std::string text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  if (!value.is_array()) return dump_json(value);
  std::string list;
  for (const Json& part : value) list += (list.empty() ? "" : ",") + text_of(part);
  return list;
}

}  // namespace

const std::vector<OptionRow>& option_table() {
  static const std::vector<OptionRow> table = make_table();
  return table;
}

std::string option_text(const OptionRow& row, const Options& options) {
  return text_of(row.get(options));
}

Json option_values(const Options& options) {
  Json values = Json::object();
  for (const OptionRow& row : option_table()) {
    if (row.get == nullptr || row.secret) continue;
    std::string key(row.name);
    std::ranges::replace(key, '-', '_');
    values[key] = row.get(options);
  }
  return values;
}

std::vector<GivenOption> given_options(const Options& options) {
  std::vector<GivenOption> given;
  Options so_far;
  for (const OptionRow& row : option_table()) {
    if (row.get == nullptr || row.secret || row.get(so_far) == row.get(options)) continue;
    given.push_back({&row, option_text(row, options)});
    row.set(so_far, given.back().text);
  }
  return given;
}

bool was_given(const Options& options, std::string_view name) {
  const OptionRow* row = find_option(name);
  check(row != nullptr && row->get != nullptr, "--{} is no active option", name);
  return std::ranges::count(options.names_given, row->name) > 0 ||
         row->get(options) != row->get(Options());
}

}  // namespace sluice
