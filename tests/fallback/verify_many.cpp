// Runs `sluice` verbs one after another in one process, so that Python and torch are imported once.
// run.py starts it. A line of its input is the file for the output and the words of the command,
// separated by tabs; the answer is a line with the exit status.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "base/log.h"
#include "cli/verbs.h"

namespace {

using namespace sluice;

int run(const std::vector<const char*>& words) {
  try {
    const VerbMatch match = find_verb(all_verbs(), words);
    const Arguments arguments =
        parse_arguments(*match.verb, std::span(words).subspan(match.num_words));
    set_log_level(arguments.options.log_level);
    return match.verb->run(arguments);
  } catch (const UsageError& error) {
    fmt::print(stderr, "error: {}\n", error.message());
    return 2;
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return exit_code(error.kind());
  }
}

}  // namespace

int main() {
  std::FILE* answers = ::fdopen(::dup(1), "w");
  std::string line;
  while (std::getline(std::cin, line)) {
    std::vector<std::string> parts;
    for (std::size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
      end = line.find('\t', begin);
      parts.push_back(line.substr(begin, end == std::string::npos ? end : end - begin));
    }
    const int log = ::open(parts[0].c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (log < 0) return 2;
    ::dup2(log, 1);
    ::dup2(log, 2);
    ::close(log);
    std::vector<const char*> words;
    for (std::size_t i = 1; i < parts.size(); ++i) words.push_back(parts[i].c_str());
    const int status = run(words);
    std::fflush(stdout);
    std::fflush(stderr);
    fmt::print(answers, "{}\n", status);
    std::fflush(answers);
  }
}
