// The rows of the table of options, a function for each group, and what they are made of: readers
// and writers of the fields of Options.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "engine/options.h"
#include "engine/options_parse.h"

namespace sluice {

// In the order of --help.
std::vector<OptionRow> model_option_rows();
std::vector<OptionRow> memory_option_rows();
std::vector<OptionRow> speculative_option_rows();
std::vector<OptionRow> runtime_option_rows();
std::vector<OptionRow> expert_option_rows();
std::vector<OptionRow> server_option_rows();
std::vector<OptionRow> foreign_option_rows();

namespace option_rows {

inline constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();

template <auto Field>
Json field(const Options& o) {
  return o.*Field;
}
template <auto Field>
void set_text(Options& o, std::string_view v) {
  o.*Field = std::string(v);
}
template <auto Field>
void set_flag(Options& o, std::string_view v) {
  o.*Field = option_parse::boolean(v);
}
template <auto Field>
void set_list(Options& o, std::string_view v) {
  option_parse::append_list(o.*Field, v);
}
template <auto Field, std::int64_t kLow, std::int64_t kHigh>
void set_int(Options& o, std::string_view v) {
  o.*Field = static_cast<std::remove_reference_t<decltype(o.*Field)>>(
      option_parse::integer(v, kLow, kHigh));
}
// Seconds, up to a day.
template <auto Field>
void set_seconds(Options& o, std::string_view v) {
  o.*Field = option_parse::number(v, 0, 86400);
}

}  // namespace option_rows
}  // namespace sluice
