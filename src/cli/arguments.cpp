#include "cli/arguments.h"

#include <algorithm>

#include "engine/options_parse.h"

namespace sluice {
namespace {

std::string normalised(std::string_view name) {
  std::string text(name);
  std::ranges::replace(text, '_', '-');
  return text;
}

const VerbFlag* find_flag(const Verb& verb, std::string_view name) {
  const auto it = std::ranges::find(verb.flags, name, &VerbFlag::name);
  return it == verb.flags.end() ? nullptr : &*it;
}

bool contains_ignoring_case(std::string_view text, std::string_view part) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return !std::ranges::search(text, part, {}, lower, lower).empty() || part.empty();
}

// The verb's own flags count as near when they begin alike or are the option's nearest.
std::string nearest_name(const Verb& verb, std::string_view name) {
  for (const VerbFlag& flag : verb.flags)
    if (name.size() >= 3 && (flag.name.starts_with(name) || name.starts_with(flag.name)))
      return std::string(flag.name);
  return nearest_option(name);
}

std::string flag_line(std::string_view left, std::string_view right) {
  constexpr std::size_t kColumn = 38;
  if (left.size() + 2 >= kColumn) return fmt::format("  {}\n  {:{}}{}\n", left, "", kColumn - 2, right);
  return fmt::format("  {:<{}}{}\n", left, kColumn - 2, right);
}

std::string option_line(const OptionRow& row) {
  std::string left = fmt::format("--{}", row.name);
  for (std::size_t begin = 0; begin < row.aliases.size();) {
    const std::size_t end = std::min(row.aliases.find(' ', begin), row.aliases.size());
    left += fmt::format(", --{}", row.aliases.substr(begin, end - begin));
    begin = end + 1;
  }
  std::string right(row.help);
  if (!row.allowed.empty() && row.type != OptionType::kFlag) right += fmt::format(" [{}]", row.allowed);
  if (!row.default_text.empty() && row.effect == OptionEffect::kActive && row.type != OptionType::kFlag)
    right += fmt::format(" (default {})", row.default_text);
  return flag_line(left, right);
}

}  // namespace

std::string Arguments::get(const std::string& name, std::string otherwise) const {
  const auto it = values.find(name);
  return it == values.end() ? otherwise : it->second.back();
}

std::int64_t Arguments::get_int(const std::string& name, std::int64_t otherwise, std::int64_t low,
                                std::int64_t high) const {
  if (!has(name)) return otherwise;
  try {
    return option_parse::integer(get(name), low, high);
  } catch (const Error& error) {
    throw UsageError(fmt::format("--{}: {}", name, error.message()),
                     fmt::format("allowed: {} to {}", low, high));
  }
}

double Arguments::get_number(const std::string& name, double otherwise, double low, double high) const {
  if (!has(name)) return otherwise;
  try {
    return option_parse::number(get(name), low, high);
  } catch (const Error& error) {
    throw UsageError(fmt::format("--{}: {}", name, error.message()),
                     fmt::format("allowed: {} to {}", low, high));
  }
}

bool Arguments::was_given(std::string_view option) const {
  return std::ranges::find(given, option) != given.end();
}

Arguments parse_arguments(const Verb& verb, std::span<const char* const> words, bool read_environment) {
  Arguments arguments;
  if (read_environment) apply_environment(arguments.options);
  bool only_positional = false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (only_positional || word.size() < 2 || word[0] != '-') {
      arguments.positional.emplace_back(word);
      continue;
    }
    if (word == "--") {
      only_positional = true;
      continue;
    }
    const std::string_view body = word.substr(word.starts_with("--") ? 2 : 1);
    const std::size_t equals = body.find('=');
    const std::string name = normalised(body.substr(0, equals));
    std::string value = equals == std::string_view::npos ? "" : std::string(body.substr(equals + 1));

    if (name == "help" || word == "-h") {
      arguments.wants_help = true;
      arguments.help_keyword = value;
      continue;
    }
    const VerbFlag* flag = find_flag(verb, name);
    const OptionRow* row = flag != nullptr ? nullptr : find_option(name);
    if (flag == nullptr && row == nullptr) {
      const std::string near = nearest_name(verb, name);
      throw UsageError(fmt::format("unknown flag {}", word.substr(0, word.find('='))),
                       near.empty() ? fmt::format("sluice {} --help lists the flags", verb.name)
                                    : fmt::format("did you mean --{}?", near));
    }
    const bool takes_value = flag != nullptr ? flag->takes_value : row->type != OptionType::kFlag;
    if (takes_value && equals == std::string_view::npos) {
      if (i + 1 >= words.size())
        throw UsageError(fmt::format("--{} needs a value", name),
                         fmt::format("sluice {} --help={} says which", verb.name, name));
      value = words[++i];
    }
    if (flag != nullptr) {
      arguments.values[name].push_back(value);
    } else {
      set_option(arguments.options, name, value);
      arguments.given.emplace_back(row->name);
    }
  }
  if (!arguments.wants_help && arguments.positional.size() > static_cast<std::size_t>(verb.max_positional))
    throw UsageError(fmt::format("unexpected argument '{}'", arguments.positional[verb.max_positional]),
                     fmt::format("usage: sluice {} {}", verb.name, verb.usage));
  return arguments;
}

std::string verb_help(const Verb& verb, std::string_view keyword) {
  std::string text;
  if (keyword.empty()) text = fmt::format("{}\n\nusage: sluice {} {}\n", verb.summary, verb.name, verb.usage);
  std::string section;
  for (const VerbFlag& flag : verb.flags)
    if (contains_ignoring_case(flag.name, keyword) || contains_ignoring_case(flag.help, keyword))
      section += flag_line(fmt::format("--{}{}{}", flag.name, flag.takes_value ? " " : "", flag.value_name),
                           flag.help);
  if (!section.empty()) text += fmt::format("\nOf this verb\n{}", section);

  std::string_view group;
  for (const OptionRow& row : option_table()) {
    const bool mentioned = contains_ignoring_case(row.name, normalised(keyword)) ||
                           contains_ignoring_case(row.aliases, normalised(keyword)) ||
                           contains_ignoring_case(row.help, keyword) ||
                           contains_ignoring_case(row.group, keyword);
    if (!mentioned) continue;
    if (row.group != group) text += fmt::format("\n{}\n", row.group);
    group = row.group;
    text += option_line(row);
  }
  if (keyword.empty())
    text +=
        "\nEvery option is also read from the environment as SLUICE_ARG_NAME (dashes become underscores).\n"
        "--help=WORD shows only what mentions WORD.\n";
  return text.empty() ? fmt::format("no flag mentions '{}'\n", keyword) : text;
}

std::string program_help(std::span<const Verb> verbs) {
  std::string text = "sluice serves language models over the OpenAI interface.\n\nusage: sluice VERB ...\n\n";
  for (const Verb& verb : verbs) text += fmt::format("  {:<14}{}\n", verb.name, verb.summary);
  text += "\n`sluice VERB --help` lists its flags. For a start:\n  sluice serve --model models/sluice-tiny\n";
  return text;
}

}  // namespace sluice
