#include "cli/man_and_completions.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/build.h"
#include "cli/verbs.h"

namespace sluice {
namespace {

// One flag as completions and the manual know it, whichever table it came from.
struct Flag {
  std::vector<std::string> names;  // without dashes
  bool takes_value = false;
  std::string value_name;
  std::string help, allowed, default_text;
  std::string_view group;
};

std::vector<Flag> verb_flags_of(const Verb& verb) {
  std::vector<Flag> flags;
  for (const VerbFlag& f : verb.flags)
    flags.push_back({{std::string(f.name)},
                     f.takes_value,
                     std::string(f.value_name),
                     std::string(f.help),
                     std::string(f.allowed),
                     f.takes_value ? std::string(f.default_text) : "off",
                     ""});
  return flags;
}

std::vector<Flag> program_flags() {
  std::vector<Flag> flags;
  for (const OptionRow& row : option_table()) {
    const OptionWords words = option_words(row);
    Flag flag{{std::string(row.name)},
              row.type != OptionType::kFlag,
              "VALUE",
              words.help,
              std::string(row.allowed),
              words.default_text,
              row.group};
    for (std::string_view alias : split_words(row.aliases)) flag.names.emplace_back(alias);
    flags.push_back(std::move(flag));
  }
  return flags;
}

// Whether the verb has a flag of its own under the option's name.
bool overrides(const Verb& verb, std::string_view option) {
  return std::ranges::find(verb.flags, option, &VerbFlag::name) != verb.flags.end();
}

std::vector<Flag> all_flags(const Verb& verb) {
  std::vector<Flag> flags = verb_flags_of(verb);
  for (Flag& flag : program_flags())
    if (verb.reads(*find_option(flag.names[0])) && !overrides(verb, flag.names[0]))
      flags.push_back(std::move(flag));
  return flags;
}

// In single quotes of any shell.
std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string first_words(std::span<const Verb> verbs) {
  std::vector<std::string_view> words;
  for (const Verb& verb : verbs) {
    const std::string_view word = split_words(verb.name)[0];
    if (std::ranges::find(words, word) == words.end()) words.push_back(word);
  }
  return fmt::format("{}", fmt::join(words, " "));
}

std::string second_words(std::span<const Verb> verbs, std::string_view first) {
  std::vector<std::string_view> words;
  for (const Verb& verb : verbs) {
    const std::vector<std::string_view> name = split_words(verb.name);
    if (name.size() == 2 && name[0] == first) words.push_back(name[1]);
  }
  return fmt::format("{}", fmt::join(words, " "));
}

std::string bash(std::span<const Verb> verbs) {
  std::string text =
      "# Completions of sluice for bash: source <(sluice completion bash)\n"
      "_sluice() {\n"
      "  local word=\"${COMP_WORDS[COMP_CWORD]}\" before=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
      "  local verb=\"${COMP_WORDS[1]}\" flags=\"\"\n"
      "  COMPREPLY=()\n";
  text += fmt::format(
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then COMPREPLY=($(compgen -W '{}' -- \"$word\")); return; "
      "fi\n",
      first_words(verbs));
  const std::string benches = second_words(verbs, "bench");
  text += fmt::format(
      "  if [ \"$verb\" = bench ]; then\n"
      "    if [ \"$COMP_CWORD\" -eq 2 ]; then COMPREPLY=($(compgen -W '{}' -- \"$word\")); return; "
      "fi\n"
      "    verb=\"bench ${{COMP_WORDS[2]}}\"\n"
      "  fi\n",
      benches);
  text += "  case \"$verb $before\" in\n";
  for (const Verb& verb : verbs)
    for (const Flag& flag : all_flags(verb))
      if (const auto values = listed_values(flag.allowed); flag.takes_value && !values.empty())
        text += fmt::format(
            "    '{} --{}') COMPREPLY=($(compgen -W '{}' -- \"$word\")); return ;;\n", verb.name,
            fmt::join(flag.names, fmt::format("'|'{} --", verb.name)), fmt::join(values, " "));
  text += "  esac\n  case \"$verb\" in\n";
  for (const Verb& verb : verbs) {
    text += fmt::format("    '{}') flags='--help", verb.name);
    for (const Flag& flag : all_flags(verb))
      text += fmt::format(" --{}", fmt::join(flag.names, " --"));
    text += "' ;;\n";
  }
  text +=
      "  esac\n"
      "  case \"$verb\" in\n"
      "    completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- \"$word\")); return ;;\n"
      "  esac\n"
      "  case \"$word\" in\n"
      "    -*) COMPREPLY=($(compgen -W \"$flags\" -- \"$word\")) ;;\n"
      "    *) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n"
      "  esac\n"
      "}\n"
      "complete -o filenames -F _sluice sluice\n";
  return text;
}

// A description inside _arguments' brackets.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

// The specifications of a flag for _arguments, each on a line of its own.
std::string zsh_specs(const Flag& flag, std::string_view before, std::string_view after) {
  std::string text, action;
  if (flag.takes_value) {
    const auto values = listed_values(flag.allowed);
    action = values.empty()
                 ? fmt::format(":{}:_files", zsh_text(flag.value_name))
                 : fmt::format(":{}:({})", zsh_text(flag.value_name), fmt::join(values, " "));
  }
  for (const std::string& name : flag.names)
    text += fmt::format("{}{}{}", before,
                        shell_quoted(fmt::format("--{}[{}]{}", name, zsh_text(flag.help), action)),
                        after);
  return text;
}

// The options of the program stand there once; a verb takes all but those that it has for itself.
std::string zsh(std::span<const Verb> verbs) {
  std::string text =
      "#compdef sluice\n"
      "# Completions of sluice for zsh: sluice completion zsh > \"${fpath[1]}/_sluice\"\n"
      "_sluice() {\n"
      "  local verb=\"$words[2]\"\n";
  text += fmt::format("  if (( CURRENT == 2 )); then compadd {}; return; fi\n", first_words(verbs));
  text += fmt::format(
      "  if [[ \"$verb\" == bench ]]; then\n"
      "    if (( CURRENT == 3 )); then compadd {}; return; fi\n"
      "    verb=\"bench $words[3]\"\n"
      "  fi\n"
      "  local -a options\n"
      "  options=(\n",
      second_words(verbs, "bench"));
  for (const Flag& flag : program_flags()) text += zsh_specs(flag, "    ", "\n");
  text += "  )\n  case \"$verb\" in\n";
  for (const Verb& verb : verbs) {
    text += fmt::format("    '{}') _arguments '--help[what the flags mean]'", verb.name);
    for (const Flag& flag : verb_flags_of(verb)) text += zsh_specs(flag, " \\\n      ", "");
    if (verb.takes_options) {
      std::vector<std::string> own;
      for (const Flag& flag : program_flags())
        if (overrides(verb, flag.names[0]))
          for (const std::string& name : flag.names) own.push_back("--" + name);
      text += own.empty()
                  ? " \\\n      \"${options[@]}\""
                  : fmt::format(" \\\n      \"${{(@)options:#({})\\[*}}\"", fmt::join(own, "|"));
    }
    text += verb.name == "completion" ? " '*:shell:(bash zsh fish)' ;;\n" : " '*:file:_files' ;;\n";
  }
  return text + "  esac\n}\n_sluice \"$@\"\n";
}

// The lines of a flag that is completed where `condition` holds.
std::string fish_lines(const Flag& flag, std::string_view condition) {
  std::string text;
  for (const std::string& word : flag.names) {
    text += fmt::format("complete -c sluice -n {} -l {}", shell_quoted(condition), word);
    if (flag.takes_value) text += " -r";
    if (const auto values = listed_values(flag.allowed); flag.takes_value && !values.empty())
      text += fmt::format(" -f -a {}", shell_quoted(fmt::format("{}", fmt::join(values, " "))));
    text += fmt::format(" -d {}\n", shell_quoted(flag.help));
  }
  return text;
}

std::string fish(std::span<const Verb> verbs) {
  std::vector<std::string> takers;
  for (const Verb& verb : verbs)
    if (verb.takes_options) takers.push_back(fmt::format("'{}'", verb.name));
  std::string text = fmt::format(
      "# Completions of sluice for fish: sluice completion fish > "
      "~/.config/fish/completions/sluice.fish\n"
      "function __sluice_verb\n"
      "  set -l words (commandline -opc)\n"
      "  if test \"$words[2]\" = bench\n"
      "    echo \"bench $words[3]\"\n"
      "  else\n"
      "    echo \"$words[2]\"\n"
      "  end\n"
      "end\n"
      "# Whether the verb takes the options of the program, and is none of the arguments.\n"
      "function __sluice_takes_options\n"
      "  set -l verb (__sluice_verb)\n"
      "  contains -- \"$verb\" {}; and not contains -- \"$verb\" $argv\n"
      "end\n"
      "complete -c sluice -n __fish_use_subcommand -f\n",
      fmt::join(takers, " "));
  std::vector<std::string_view> seen;
  for (const Verb& verb : verbs) {
    const std::vector<std::string_view> name = split_words(verb.name);
    if (std::ranges::find(seen, name[0]) == seen.end()) {
      seen.push_back(name[0]);
      text += fmt::format("complete -c sluice -n __fish_use_subcommand -a {} -d {}\n", name[0],
                          shell_quoted(name.size() == 2 ? "Measures speed" : verb.summary));
    }
    if (name.size() == 2)
      text += fmt::format("complete -c sluice -f -n 'test (__sluice_verb) = \"{} \"' -a {} -d {}\n",
                          name[0], name[1], shell_quoted(verb.summary));
    const std::string condition = fmt::format("test (__sluice_verb) = \"{}\"", verb.name);
    if (verb.name == "completion")
      text += fmt::format("complete -c sluice -f -n '{}' -a 'bash zsh fish'\n", condition);
    for (const Flag& flag : verb_flags_of(verb)) text += fish_lines(flag, condition);
  }
  for (const Flag& flag : program_flags()) {
    std::string condition = "__sluice_takes_options";
    for (const Verb& verb : verbs)
      if (verb.takes_options && overrides(verb, flag.names[0]))
        condition += fmt::format(" \"{}\"", verb.name);
    text += fish_lines(flag, condition);
  }
  return text;
}

// Text in which roff sees no requests.
std::string roff(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if ((c == '.' || c == '\'') && out.empty()) {
      out += std::string("\\&") + c;
    } else {
      out += c;
    }
  }
  return out;
}

std::string roff_flag(const Flag& flag) {
  std::string names;
  for (const std::string& name : flag.names)
    names += fmt::format("{}\\fB\\-\\-{}\\fR", names.empty() ? "" : ", ", roff(name));
  if (flag.takes_value) names += fmt::format(" \\fI{}\\fR", roff(flag.value_name));
  std::string text = fmt::format(".TP\n{}\n{}", names, roff(flag.help));
  if (flag.takes_value && !flag.allowed.empty())
    text += fmt::format(" Allowed: {}.", roff(flag.allowed));
  return text + fmt::format(" Default: {}.\n", roff(flag.default_text));
}

}  // namespace

std::vector<std::string_view> listed_values(std::string_view allowed) {
  std::vector<std::string_view> values;
  if (allowed.find(',') == std::string_view::npos) return values;
  for (std::size_t begin = 0; begin <= allowed.size();) {
    std::size_t end = begin;  // of the next comma that stands outside of parentheses
    for (int depth = 0; end < allowed.size() && (allowed[end] != ',' || depth > 0); ++end)
      depth += allowed[end] == '(' ? 1 : allowed[end] == ')' ? -1 : 0;
    std::string_view word = allowed.substr(begin, end - begin);
    while (word.starts_with(' ')) word.remove_prefix(1);
    // "model (auto)" lists two spellings of one value; anything else with a space is a sentence.
    word = word.substr(0, word.find(" ("));
    if (word.empty() || word.find_first_of(" ;<>:") != std::string_view::npos) return {};
    values.push_back(word);
    begin = end + 1;
  }
  return values;
}

std::string shell_completions(std::span<const Verb> verbs, std::string_view shell) {
  if (shell == "bash") return bash(verbs);
  if (shell == "zsh") return zsh(verbs);
  if (shell == "fish") return fish(verbs);
  throw UsageError(shell.empty() ? "which shell?" : fmt::format("no completions for '{}'", shell),
                   "shells: bash, zsh, fish");
}

std::string manual_page(std::span<const Verb> verbs) {
  std::string text = fmt::format(
      ".TH SLUICE 1 \"\" \"sluice {}\" \"User Commands\"\n.SH NAME\nsluice \\- serves language "
      "models\n"
      ".SH SYNOPSIS\n.B sluice\n.I VERB\n[flags] [arguments]\n.SH DESCRIPTION\n"
      "Sluice reads a model from a directory and answers over the OpenAI HTTP interface, chats in "
      "the "
      "terminal, and\n"
      "measures itself. Data goes to standard output, messages to standard error. In names of "
      "flags \\- and "
      "_ are equal;\n"
      "values follow after a space or =.\n.SH VERBS\n",
      kVersion);
  for (const Verb& verb : verbs) {
    text += fmt::format(".SS sluice {} {}\n{}\n", roff(verb.name), roff(verb.usage),
                        roff(verb.summary));
    for (const Flag& flag : verb_flags_of(verb)) text += roff_flag(flag);
    if (verb.takes_options) text += ".PP\nTakes the options below, too.\n";
  }
  text +=
      ".SH OPTIONS\nEach is also read from the environment as SLUICE_ARG_NAME, where dashes become "
      "underscores.\n";
  std::string_view group;
  for (const Flag& flag : program_flags()) {
    if (flag.group != group) text += fmt::format(".SS {}\n", roff(flag.group));
    group = flag.group;
    text += roff_flag(flag);
  }
  text +=
      ".SH ENVIRONMENT\n"
      ".TP\nSLUICE_ARG_NAME\nthe option \\-\\-NAME, where the command line and \\-\\-config "
      "give none\n"
      ".TP\nHF_HUB_CACHE, HF_HOME, HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE\nas for the hub's own "
      "tools\n"
      ".TP\nNO_COLOR\nno colours in a terminal, where it is set to anything\n"
      ".TP\nOPENAI_API_KEY\nthe key that `bench serve` sends\n"
      ".SH FILES\n"
      ".TP\n~/.cache/huggingface/hub\nmodels that were downloaded, shared with Python tools\n"
      ".TP\nthe file of \\-\\-config\noptions by name, in YAML or JSON: max\\-model\\-len: 32k\n"
      ".TP\nthe file of \\-\\-api\\-key\\-file\nkeys with names, roles and limits, in YAML or "
      "JSON; read again at SIGHUP\n"
      ".SH EXAMPLES\n"
      ".TP\nChat with a model of the hub\n.B sluice run Qwen/Qwen3\\-0.6B\n"
      ".TP\nServe a folder on another port\n.B sluice serve ./model \\-\\-port 8000 "
      "\\-\\-api\\-key KEY\n"
      ".TP\nServe what a file says\n.B sluice serve \\-\\-config server.yaml\n"
      ".TP\nSay what would fit, and load nothing\n.B sluice plan ./model \\-\\-memory 24G\n"
      ".TP\nAnswer one prompt in a pipe\n.B sluice run ./model \\(dqName a colour.\\(dq > "
      "answer.txt\n"
      ".TP\nMeasure a server\n.B sluice bench serve \\-\\-base\\-url http://127.0.0.1:30000 "
      "\\-\\-request\\-rate 4\n"
      ".SH EXIT STATUS\n"
      ".TP\n0\ndone, or drained\n.TP\n1\na check failed (verify)\n.TP\n2\nbad input: flags, "
      "configuration, "
      "tokenizer, checkpoint\n"
      ".TP\n3\nit does not fit in memory\n.TP\n4\nfatal at run time\n.TP\n5\nno device of the kind "
      "asked "
      "for\n.TP\n130\ninterrupted\n";
  return text;
}

int run_completions(const Arguments& arguments) {
  fmt::print("{}", shell_completions(all_verbs(),
                                     arguments.positional.empty() ? "" : arguments.positional[0]));
  return 0;
}

int run_man(const Arguments&) {
  fmt::print("{}", manual_page(all_verbs()));
  return 0;
}

}  // namespace sluice
