// The command line: `sluice VERB [flags] [arguments]`.
//
// Flags come from two tables: the options of the program (engine/options.h) and the few of the verb itself,
// which win where names meet. `-` and `_` are equal; values follow after a space or `=`; single-dash
// spellings (-tp 2) are read too.
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
};

struct Arguments {
  Options options;                                         // environment, then command line
  std::map<std::string, std::vector<std::string>> values;  // of the verb's flags, in the order given
  std::vector<std::string> given;                          // names of the program's options that were set
  std::vector<std::string> positional;

  bool has(const std::string& name) const { return values.contains(name); }
  // The last value given, or `otherwise`.
  std::string get(const std::string& name, std::string otherwise = "") const;
  // The last value as a whole number in [low, high]; UsageError names the flag.
  std::int64_t get_int(const std::string& name, std::int64_t otherwise, std::int64_t low,
                       std::int64_t high) const;
  double get_number(const std::string& name, double otherwise, double low, double high) const;
  bool was_given(std::string_view option) const;
  bool wants_help = false;
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
  std::string_view name;
  std::string_view usage;    // what follows the name
  std::string_view summary;  // one line
  std::span<const VerbFlag> flags;
  int max_positional = 0;
  int (*run)(const Arguments& arguments);
};

// Reads what follows the verb. Reads the environment unless the caller wants none (tests). Throws UsageError.
Arguments parse_arguments(const Verb& verb, std::span<const char* const> words, bool read_environment = true);

// The help of a verb: its flags and the program's options by group. With a keyword only what mentions it.
std::string verb_help(const Verb& verb, std::string_view keyword = {});
// The verbs, and how to go on.
std::string program_help(std::span<const Verb> verbs);

}  // namespace sluice
