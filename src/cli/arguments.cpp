#include "cli/arguments.h"

#include <algorithm>

#include "base/nearest_name.h"
#include "cli/colours.h"
#include "cli/common_options.h"
#include "cli/config_file.h"
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
  const auto lower = [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  return !std::ranges::search(text, part, {}, lower, lower).empty() || part.empty();
}

// The verb's own flags count as near when they begin alike or are the option's nearest.
std::string nearest_flag(const Verb& verb, std::string_view name) {
  std::vector<std::string_view> own;
  for (const VerbFlag& flag : verb.flags) {
    if (name.size() >= 3 && (flag.name.starts_with(name) || name.starts_with(flag.name)))
      return std::string(flag.name);
    own.push_back(flag.name);
  }
  const std::string_view near = nearest_name(name, own);
  if (!near.empty()) return std::string(near);
  return verb.takes_options ? nearest_option(name) : "";
}

// The letters that users of other programs type.
std::string_view flag_of_letter(std::string_view word) {
  constexpr std::pair<std::string_view, std::string_view> kLetters[] = {
      {"-m", "model"}, {"-p", "prompt"}, {"-c", "max-model-len"}, {"-n", "max-new-tokens"}};
  for (const auto& [letter, name] : kLetters)
    if (word == letter) return name;
  return "";
}

// What a line of words sets, in its order.
struct GivenValue {
  const OptionRow* row;
  std::string name, value;
};

// The options of --config that the command line does not give, then those of the command line.
void apply_options(Arguments& arguments, const std::vector<GivenValue>& line) {
  const auto on_line = [&](const OptionRow* row) {
    return std::ranges::find(line, row, &GivenValue::row) != line.end();
  };
  if (arguments.has("config")) {
    const std::string path = arguments.get("config");
    for (const ConfigOption& option : read_config(path)) {
      const bool is_model = option.row == find_option("model");
      if (on_line(option.row) || (is_model && !arguments.positional.empty())) continue;
      try {
        set_option(arguments.options, option.name, option.text);
      } catch (const Error& error) {
        fail(error.kind(), "{}: {}", path, error.message());
      }
      arguments.given.emplace_back(option.row->name);
    }
  }
  for (const GivenValue& given : line) {
    set_option(arguments.options, given.name, given.value);
    arguments.given.emplace_back(given.row->name);
  }
}

// The name on the left, what it does on the right in lines of at most kWidth columns.
std::string flag_line(std::string_view left, std::string_view right) {
  constexpr std::size_t kColumn = 38, kWidth = 118;
  std::string text = left.size() + 2 >= kColumn ? fmt::format("  {}\n{:{}}", left, "", kColumn)
                                                : fmt::format("  {:<{}}", left, kColumn - 2);
  std::size_t column = kColumn;
  for (const std::string_view word : split_words(right)) {
    if (column > kColumn && column + 1 + word.size() > kWidth) {
      text += fmt::format("\n{:{}}", "", kColumn);
      column = kColumn;
    } else if (column > kColumn) {
      text += ' ';
      ++column;
    }
    text += word;
    column += word.size();
  }
  return text + '\n';
}

// "What it does. [allowed] (default d)"
std::string described(std::string_view help, std::string_view allowed,
                      std::string_view default_text) {
  std::string text(help);
  if (!allowed.empty()) text += fmt::format(" [{}]", allowed);
  return text + fmt::format(" (default {})", default_text);
}

std::string verb_flag_line(const VerbFlag& flag) {
  const std::string left =
      fmt::format("--{}{}{}", flag.name, flag.takes_value ? " " : "", flag.value_name);
  return flag_line(left, flag.takes_value ? described(flag.help, flag.allowed, flag.default_text)
                                          : described(flag.help, "", "off"));
}

std::string usage_of(const Verb& verb) {
  return fmt::format("{}\n\nusage: sluice {}{}{}\n", verb.summary, verb.name,
                     verb.usage.empty() ? "" : " ", verb.usage);
}

std::string heading(std::string_view text) {
  return coloured(stdout, Colour::kBold, text);
}

std::string option_line(const OptionRow& row) {
  std::string left = fmt::format("--{}", row.name);
  for (std::string_view alias : split_words(row.aliases)) left += fmt::format(", --{}", alias);
  const OptionWords words = option_words(row);
  return flag_line(left, described(words.help, row.allowed, words.default_text));
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

double Arguments::get_number(const std::string& name, double otherwise, double low,
                             double high) const {
  if (!has(name)) return otherwise;
  try {
    return option_parse::number(get(name), low, high);
  } catch (const Error& error) {
    throw UsageError(fmt::format("--{}: {}", name, error.message()),
                     fmt::format("allowed: {} to {}", low, high));
  }
}

OptionWords option_words(const OptionRow& row) {
  constexpr std::string_view kMark = "; default: ";
  OptionWords words{std::string(row.help), std::string(row.default_text)};
  if (!words.default_text.empty()) return words;
  const std::size_t at = words.help.rfind(kMark);
  if (at == std::string::npos || !words.help.ends_with('.')) return {words.help, "none"};
  words.default_text = words.help.substr(at + kMark.size());
  words.default_text.pop_back();
  words.help = words.help.substr(0, at) + ".";
  return words;
}

std::vector<std::string_view> split_words(std::string_view text, char separator) {
  std::vector<std::string_view> words;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

VerbMatch find_verb(std::span<const Verb> verbs, std::span<const char* const> words) {
  const std::string_view first = words.empty() ? "" : words[0];
  std::string names, seconds;
  std::vector<std::string_view> second_words;
  std::vector<std::string_view> first_words;
  for (const Verb& verb : verbs) {
    const std::vector<std::string_view> name = split_words(verb.name);
    first_words.push_back(name[0]);
    if (name.size() == 1 && name[0] == first) return {&verb, 1};
    if (name.size() == 2 && name[0] == first) {
      if (words.size() > 1 && name[1] == words[1]) return {&verb, 2};
      seconds += fmt::format("{}{}", seconds.empty() ? "" : ", ", name[1]);
      second_words.push_back(name[1]);
    }
    if (!names.ends_with(fmt::format(" {}", name[0])))
      names += fmt::format("{}{}", names.empty() ? " " : ", ", name[0]);
  }
  const std::string_view near_second =
      words.size() > 1 ? nearest_name(words[1], second_words) : std::string_view();
  if (!near_second.empty())
    throw UsageError(fmt::format("unknown verb '{} {}'", first, words[1]),
                     fmt::format("did you mean sluice {} {}?", first, near_second));
  if (!seconds.empty())
    throw UsageError(words.size() > 1 ? fmt::format("unknown verb '{} {}'", first, words[1])
                                      : fmt::format("which {}?", first),
                     fmt::format("sluice {} is followed by one of: {}", first, seconds));
  const std::string_view near = nearest_name(first, first_words);
  throw UsageError(first.empty() ? "no verb was given" : fmt::format("unknown verb '{}'", first),
                   near.empty() ? fmt::format("verbs:{}; sluice --help says more", names)
                                : fmt::format("did you mean sluice {}?", near));
}

bool Verb::reads(const OptionRow& row) const {
  if (!takes_options) return false;
  const bool is_of_server =
      row.group == "Server" || row.group == "Limits" || row.name == "served-model-name";
  return !is_of_server || server_options == "*" ||
         std::ranges::count(split_words(server_options), row.name) > 0;
}

std::vector<std::string_view> unread_options(const Verb& verb, const Arguments& arguments) {
  std::vector<std::string_view> unread;
  for (const std::string& name : arguments.given) {
    const OptionRow& row = *find_option(name);
    if (!verb.reads(row) && std::ranges::count(unread, row.name) == 0) unread.push_back(row.name);
  }
  return unread;
}

bool Arguments::was_given(std::string_view option) const {
  return std::ranges::find(given, option) != given.end();
}

Arguments parse_arguments(const Verb& verb, std::span<const char* const> words,
                          bool read_environment) {
  Arguments arguments;
  if (read_environment && verb.takes_options) apply_environment(arguments.options);
  bool only_positional = false;
  std::vector<GivenValue> line;
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
    const std::string_view whole = flag_of_letter(word.substr(0, word.find('=')));
    const std::string name =
        whole.empty() ? normalised(body.substr(0, equals)) : std::string(whole);
    std::string value =
        equals == std::string_view::npos ? "" : std::string(body.substr(equals + 1));

    if (name == "help" || word == "-h") {
      arguments.wants_help = true;
      arguments.wants_short_help = word == "-h";
      arguments.help_keyword = value;
      continue;
    }
    const VerbFlag* flag = find_flag(verb, name);
    const OptionRow* row = flag != nullptr || !verb.takes_options ? nullptr : find_option(name);
    if (flag == nullptr && row == nullptr) {
      const std::string near = nearest_flag(verb, name);
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
      line.push_back({row, name, value});
    }
  }
  if (arguments.wants_help) return arguments;
  apply_options(arguments, line);
  if (arguments.positional.size() > static_cast<std::size_t>(verb.max_positional))
    throw UsageError(
        fmt::format("unexpected argument '{}'", arguments.positional[verb.max_positional]),
        fmt::format("usage: sluice {} {}", verb.name, verb.usage));
  return arguments;
}

std::string short_help(const Verb& verb) {
  std::string text = usage_of(verb);
  std::string section;
  for (const VerbFlag& flag : verb.flags) section += verb_flag_line(flag);
  if (!section.empty()) text += fmt::format("\n{}\n{}", heading("Flags of this verb"), section);
  if (!verb.takes_options) return text;
  text += fmt::format("\n{}\n", heading("Common options"));
  for (const std::string_view name : kCommonOptions)
    if (find_flag(verb, name) == nullptr && verb.reads(*find_option(name)))
      text += option_line(*find_option(name));
  return text + fmt::format("\n`sluice {} --help` lists all options.\n", verb.name);
}

std::string verb_help(const Verb& verb, std::string_view keyword) {
  const bool is_all = keyword == "all", is_whole = keyword.empty() || is_all;
  if (is_all) keyword = {};
  std::string text;
  if (is_whole) text = usage_of(verb);
  std::string section;
  for (const VerbFlag& flag : verb.flags)
    if (contains_ignoring_case(flag.name, keyword) || contains_ignoring_case(flag.help, keyword))
      section += verb_flag_line(flag);
  if (!section.empty()) text += fmt::format("\n{}\n{}", heading("Flags of this verb"), section);

  std::string_view group;
  for (const OptionRow& row : option_table()) {
    if (!verb.reads(row) || find_flag(verb, row.name) != nullptr) continue;
    const bool mentioned = contains_ignoring_case(row.name, normalised(keyword)) ||
                           contains_ignoring_case(row.aliases, normalised(keyword)) ||
                           contains_ignoring_case(row.help, keyword) ||
                           contains_ignoring_case(row.group, keyword);
    const bool is_shown = row.effect == OptionEffect::kActive || is_all || !is_whole;
    if (!mentioned || !is_shown) continue;
    if (row.group != group) text += fmt::format("\n{}\n", heading(row.group));
    group = row.group;
    text += option_line(row);
  }
  if (is_whole && verb.takes_options)
    text +=
        "\nEvery option is also read from the environment as SLUICE_ARG_NAME (dashes become "
        "underscores).\n"
        "-h is short, --help=WORD shows what mentions WORD, and --help=all also the options of "
        "other programs.\n";
  return text.empty() ? fmt::format("no flag mentions '{}'\n", keyword) : text;
}

std::string program_help(std::span<const Verb> verbs, std::string_view first_word) {
  std::string lines;
  for (const Verb& verb : verbs)
    if (first_word.empty() || verb.name.starts_with(std::string(first_word) + " "))
      lines += fmt::format("  {:<18}{}\n", verb.name, verb.summary);
  if (lines.empty()) return "";
  if (!first_word.empty())
    return fmt::format("usage: sluice {} ...\n\n{}\n`sluice {} ... --help` lists the flags.\n",
                       first_word, lines, first_word);
  return fmt::format(
      "sluice serves language models over the OpenAI interface.\n\nusage: sluice VERB "
      "...\n\n{}\n`sluice "
      "help VERB` lists its flags, `sluice VERB -h` those that most users need. For a start:\n"
      "  sluice run models/sluice-tiny\n",
      lines);
}

}  // namespace sluice
