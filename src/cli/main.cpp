// The program: finds the verb, runs it, and turns errors into `error:` and `hint:` lines and exit statuses
// (0 ok, 1 a check failed, 2 usage or bad input, 3 no resources, 4 fatal, 5 no device).
#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>

#include "cli/verbs.h"

namespace {

using namespace sluice;

int complain(int status, std::string_view message, std::string_view hint) {
  fmt::print(stderr, "error: {}\n", message);
  if (!hint.empty()) fmt::print(stderr, "hint: {}\n", hint);
  return status;
}

int run(std::span<const char* const> words) {
  const std::span<const Verb> verbs = all_verbs();
  const std::string_view first = words.empty() ? "" : words[0];
  if (first == "--help" || first == "-h" || first == "help") {
    fmt::print("{}", program_help(verbs));
    return 0;
  }
  const std::string_view name = first == "--version" ? "version" : first;
  const auto verb = std::ranges::find(verbs, name, &Verb::name);
  if (verb == verbs.end()) {
    std::string names;
    for (const Verb& v : verbs) names += fmt::format("{}{}", names.empty() ? "" : ", ", v.name);
    return complain(2, first.empty() ? "no verb was given" : fmt::format("unknown verb '{}'", first),
                    fmt::format("verbs: {}; sluice --help says more", names));
  }
  const Arguments arguments = parse_arguments(*verb, words.subspan(1));
  if (arguments.wants_help) {
    fmt::print("{}", verb_help(*verb, arguments.help_keyword));
    return 0;
  }
  return verb->run(arguments);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(std::span<const char* const>(argv + 1, static_cast<std::size_t>(argc > 0 ? argc - 1 : 0)));
  } catch (const UsageError& error) {
    return complain(2, error.message(), error.hint());
  } catch (const Error& error) {
    // A bug's place helps; elsewhere the message says it all.
    return complain(exit_code(error.kind()), error.what(),
                    error.kind() == ErrorKind::kNoResources
                        ? "lower --max-total-tokens, --context-length or --max-running-requests"
                        : "");
  } catch (const std::bad_alloc&) {
    return complain(3, "out of memory",
                    "lower --max-total-tokens, --context-length or --max-running-requests");
  } catch (const std::exception& error) {
    return complain(4, error.what(), "");
  }
}
