// The program: finds the verb, runs it, and turns errors into `error:` and `hint:` lines and exit
// statuses (0 ok, 1 a check failed, 2 usage or bad input, 3 no resources, 4 fatal, 5 no device).
#include <cstdio>
#include <exception>
#include <new>
#include <vector>

#include "base/log.h"
#include "base/log_format.h"
#include "base/numa.h"
#include "cli/colours.h"
#include "cli/verbs.h"
#include "engine/hosts/node.h"
#include "engine/rank_process.h"

namespace {

using namespace sluice;

int complain(int status, std::string_view message, std::string_view hint) {
  fmt::print(stderr, "{} {}\n", coloured(stderr, Colour::kRed, "error:"), message);
  if (!hint.empty()) fmt::print(stderr, "{} {}\n", coloured(stderr, Colour::kCyan, "hint:"), hint);
  return status;
}

// What a verb that loads a model can do about memory.
std::string_view memory_hint;

int run(std::span<const char* const> words) {
  if (words.size() == 1 && words[0] == kRankVerb) return run_rank();
  const std::span<const Verb> verbs = all_verbs();
  const auto asks_help = [](std::string_view word) {
    return word == "--help" || word == "-h" || word == "help";
  };
  if (words.size() == 1 && asks_help(words[0])) {
    fmt::print("{}", program_help(verbs));
    return 0;
  }
  std::vector<const char*> spelt(words.begin(), words.end());
  // `sluice help VERB` is `sluice VERB --help`.
  if (spelt.size() > 1 && asks_help(spelt[0])) {
    spelt.erase(spelt.begin());
    spelt.push_back("--help");
  }
  if (!spelt.empty()) {
    const std::string_view first = spelt[0];
    if (first == "--version" || first == "-v" || first == "-V") spelt[0] = "version";
    if (first == "chat") spelt[0] = "run";
  }
  // `sluice bench --help`: the verbs of two words.
  const std::string seconds =
      spelt.size() == 2 && asks_help(spelt[1]) ? program_help(verbs, spelt[0]) : "";
  if (!seconds.empty()) {
    fmt::print("{}", seconds);
    return 0;
  }
  const VerbMatch match = find_verb(verbs, spelt);
  Arguments arguments = parse_arguments(*match.verb, std::span(spelt).subspan(match.num_words));
  if (arguments.wants_help) {
    fmt::print("{}", arguments.wants_short_help ? short_help(*match.verb)
                                                : verb_help(*match.verb, arguments.help_keyword));
    return 0;
  }
  if (match.verb->takes_options)
    memory_hint = "lower --max-total-tokens, --context-length or --max-running-requests";
  set_log_level(
      arguments.options.log_level);  // verbs that keep quiet by themselves ask whether it was given
  set_log_format(arguments.options.log_format == "json" ? LogFormat::kJson : LogFormat::kText);
  const std::vector<std::string_view> unread = unread_options(*match.verb, arguments);
  if (!unread.empty())
    log_warning("options that change nothing for {}: --{}", match.verb->name,
                fmt::join(unread, ", --"));
  if (arguments.options.numa == "isolate") isolate_on_own_node();  // before there is another thread
  if (match.verb->takes_options) arguments.options = with_launcher(std::move(arguments.options));
  const bool has_engine = match.verb->run == run_serve || match.verb->run == run_generate;
  const int num_nodes = arguments.options.num_nodes();
  if (num_nodes > 1 && !has_engine)
    throw UsageError(fmt::format("--nnodes {}: {} runs on one host", num_nodes, match.verb->name),
                     "serve and generate run on several");
  if (has_engine && arguments.options.node() > 0) return run_node(model_options(arguments));
  return match.verb->run(arguments);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(
        std::span<const char* const>(argv + 1, static_cast<std::size_t>(argc > 0 ? argc - 1 : 0)));
  } catch (const UsageError& error) {
    return complain(2, error.message(), error.hint());
  } catch (const Error& error) {
    // A bug's place helps; elsewhere the message says it all.
    return complain(exit_code(error.kind()), error.what(),
                    error.kind() == ErrorKind::kNoResources ? memory_hint : "");
  } catch (const std::bad_alloc&) {
    return complain(3, "out of memory", memory_hint);
  } catch (const std::exception& error) {
    return complain(4, error.what(), "");
  }
}
