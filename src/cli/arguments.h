// The command line: `sluice VERB [flags] [arguments]`.
//
// Flags come from two tables: the options of the program (engine/options.h) and the few of the verb
// itself, which win where names meet. The environment comes first, then the file of --config, then
// the command line. `-` and `_` are equal; values follow after a space or `=`;
// single-dash spellings (-tp 2) are read too.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "engine/options.h"

namespace sluice {

// A flag that only one verb knows.
struct VerbFlag {
  std::string_view name;
  bool takes_value = true;
  std::string_view value_name;  // for the help: "N", "FILE"
  std::string_view help;
  std::string_view default_text;  // what happens without the flag; "none": nothing
  std::string_view allowed;       // the range of its values; empty for a flag without one
};

struct Arguments {
  Options options;  // environment, then command line
  std::map<std::string, std::vector<std::string>>
      values;                      // of the verb's flags, in the order given
  std::vector<std::string> given;  // names of the program's options that were set
  std::vector<std::string> positional;

  bool has(const std::string& name) const { return values.contains(name); }
  // The last value given, or `otherwise`.
  std::string get(const std::string& name, std::string otherwise = "") const;
  // The last value as a whole number in [low, high]; UsageError names the flag.
  std::int64_t get_int(const std::string& name, std::int64_t otherwise, std::int64_t low,
                       std::int64_t high) const;
  double get_number(const std::string& name, double otherwise, double low, double high) const;
  bool was_given(std::string_view option) const;
  // Verbs that keep quiet by themselves ask this.
  bool log_level_was_given() const { return was_given("log-level"); }
  bool wants_help = false;
  bool wants_short_help = false;  // -h
  std::string help_keyword;
};

// A mistake on the command line; exits with 2. `hint` says what to do.
class UsageError : public Error {
 public:
  UsageError(std::string message, std::string hint)
      : Error(ErrorKind::kBadInput, std::move(message)), hint_(std::move(hint)) {}
  const std::string& hint() const { return hint_; }

 private:
  std::string hint_;
};

struct Verb {
  std::string_view name;     // one word, or two: "bench serve"
  std::string_view usage;    // what follows the name
  std::string_view summary;  // one line
  std::span<const VerbFlag> flags;
  int max_positional = 0;
  int (*run)(const Arguments& arguments);
  bool takes_options = true;  // the program's options, beside its own flags
  // Those of the server that it reads, space-separated; "*": all.
  std::string_view server_options = {};

  bool reads(const OptionRow& row) const;
};

// A verb and how many words its name takes.
struct VerbMatch {
  const Verb* verb = nullptr;
  std::size_t num_words = 0;
};
// The verb that `words` begin with. UsageError lists the verbs, or the second words of one that
// needs one.
VerbMatch find_verb(std::span<const Verb> verbs, std::span<const char* const> words);

// Reads what follows the verb. Reads the environment unless the caller wants none (tests). Throws
// UsageError.
Arguments parse_arguments(const Verb& verb, std::span<const char* const> words,
                          bool read_environment = true);

// The options of the command line and of --config that change nothing for the verb.
std::vector<std::string_view> unread_options(const Verb& verb, const Arguments& arguments);

// The help of a verb: its flags and the options that it reads by group, without those of other
// programs that change nothing here. With `all` those, too; with another keyword only what mentions
// it.
std::string verb_help(const Verb& verb, std::string_view keyword = {});
// The verb's flags and the options that most users need, on one screen.
std::string short_help(const Verb& verb);
// The verbs, and how to go on. With `first_word` only those of two words that begin with it; empty
// when none does.
std::string program_help(std::span<const Verb> verbs, std::string_view first_word = {});

// The words of a space-separated list: the aliases of an option. Another separator splits likewise.
std::vector<std::string_view> split_words(std::string_view text, char separator = ' ');

// What an option does, and what happens without it, in words where the table has no value to show:
// "none", or what its help says after "default:".
struct OptionWords {
  std::string help, default_text;
};
OptionWords option_words(const OptionRow& row);

}  // namespace sluice
