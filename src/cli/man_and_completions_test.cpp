#include "cli/man_and_completions.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/verbs.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Lines joined, and one space wherever there are several.
std::string joined(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return fmt::format("{}", fmt::join(split_words(text), " "));
}

std::string unescaped(std::string text) {
  for (std::size_t at = 0; (at = text.find("\\-", at)) != std::string::npos;) text.erase(at, 1);
  return text;
}

TEST(Help, NamesEveryFlagWithDefaultAndRange) {
  for (const Verb& verb : all_verbs()) {
    const std::string help = verb_help(verb, "all");
    // Two lines where the names are long: look at the text from the name to the next flag.
    const auto section = [&](std::string_view name) {
      const std::string mark = fmt::format("\n  --{}", name);
      for (std::size_t at = help.find(mark); at != std::string::npos;
           at = help.find(mark, at + 1)) {
        const char next = at + mark.size() < help.size() ? help[at + mark.size()] : '\n';
        if (next == ' ' || next == '\n' || next == ',')
          return joined(help.substr(at, help.find("\n  --", at + 1) - at));
      }
      return std::string();
    };
    for (const VerbFlag& flag : verb.flags) {
      const std::string text = section(flag.name);
      EXPECT_THAT(text, HasSubstr("(default ")) << verb.name << " --" << flag.name;
      if (!flag.takes_value) continue;
      EXPECT_FALSE(flag.allowed.empty()) << verb.name << " --" << flag.name;
      EXPECT_FALSE(flag.default_text.empty()) << verb.name << " --" << flag.name;
      EXPECT_THAT(text, HasSubstr(fmt::format("[{}]", flag.allowed))) << verb.name;
      EXPECT_THAT(text, HasSubstr(fmt::format("(default {})", flag.default_text))) << verb.name;
    }
    for (const OptionRow& row : option_table()) {
      const bool own = std::ranges::find(verb.flags, row.name, &VerbFlag::name) != verb.flags.end();
      if (own) continue;
      const std::string text = section(row.name);
      EXPECT_EQ(text.empty(), !verb.reads(row)) << verb.name << " --" << row.name;
      if (text.empty()) continue;
      EXPECT_THAT(text, HasSubstr("(default ")) << row.name;
      EXPECT_THAT(text, HasSubstr(std::string(row.default_text))) << row.name;
      EXPECT_TRUE(row.effect != OptionEffect::kActive || !row.allowed.empty()) << row.name;
      EXPECT_THAT(text, HasSubstr(std::string(row.allowed))) << row.name;
    }
    for (const std::string_view line : split_words(help, '\n'))
      EXPECT_LE(line.size(), 130u) << line;
  }
}

TEST(Help, FindsAWord) {
  for (const Verb& verb : all_verbs()) {
    if (verb.name != "bench serve") continue;
    EXPECT_THAT(verb_help(verb, "goodput"), HasSubstr("--goodput"));
    EXPECT_THAT(verb_help(verb, "goodput"), testing::Not(HasSubstr("--backend")));
  }
}

TEST(Verbs, AreFoundByOneOrTwoWords) {
  const auto found = [](std::vector<const char*> words) { return find_verb(all_verbs(), words); };
  EXPECT_EQ(found({"serve", "x"}).verb->name, "serve");
  EXPECT_EQ(found({"bench", "serve", "x"}).verb->name, "bench serve");
  EXPECT_EQ(found({"bench", "serve"}).num_words, 2u);
  for (const auto& [words, hint] : std::vector<std::pair<std::vector<const char*>, std::string>>{
           {{}, "verbs: run, serve"},
           {{"sreve"}, "did you mean sluice serve?"},
           {{"qqqqqq"}, "verbs: run"},
           {{"bench"}, "latency, throughput, serve, roofline"},
           {{"bench", "nothing"}, "latency, throughput"}}) {
    try {
      found(words);
      ADD_FAILURE() << words.size();
    } catch (const UsageError& error) {
      EXPECT_THAT(error.hint(), HasSubstr(hint));
      EXPECT_EQ(error.hint().find("bench, bench"), std::string::npos);
    }
  }
}

TEST(Completions, HoldEveryVerbAndFlag) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string text = shell_completions(all_verbs(), shell);
    for (const Verb& verb : all_verbs()) {
      EXPECT_THAT(text, HasSubstr(std::string(split_words(verb.name).back()))) << shell;
      for (const VerbFlag& flag : verb.flags)
        EXPECT_THAT(text, HasSubstr(fmt::format(
                              "{}{}", std::string_view(shell) == "fish" ? "-l " : "--", flag.name)))
            << shell;
    }
    for (const OptionRow& row : option_table())
      EXPECT_THAT(text, HasSubstr(std::string(row.name))) << shell;
  }
  EXPECT_THROW(shell_completions(all_verbs(), "tcsh"), UsageError);
  EXPECT_THROW(shell_completions(all_verbs(), ""), UsageError);
}

TEST(Completions, ListsOfWordsBecomeValues) {
  EXPECT_THAT(listed_values("auto, cpu"), ElementsAre("auto", "cpu"));
  EXPECT_THAT(listed_values("model (auto), openai (vllm)"), ElementsAre("model", "openai"));
  EXPECT_THAT(listed_values("auto, pooling (embed, score)"), ElementsAre("auto", "pooling"));
  EXPECT_THAT(listed_values("0 to 5"), IsEmpty());
  EXPECT_THAT(listed_values("above 0, to 1"), IsEmpty());
  EXPECT_THAT(listed_values("a file"), IsEmpty());
}

TEST(ManualPage, HoldsEveryVerbAndFlag) {
  const std::string page = unescaped(manual_page(all_verbs()));
  for (const Verb& verb : all_verbs()) {
    EXPECT_THAT(page, HasSubstr(fmt::format(".SS sluice {} ", verb.name)));
    for (const VerbFlag& flag : verb.flags)
      EXPECT_THAT(page, HasSubstr(fmt::format("\\fB--{}\\fR", flag.name)));
  }
  for (const OptionRow& row : option_table())
    EXPECT_THAT(page, HasSubstr(fmt::format("\\fB--{}\\fR", row.name)));
  EXPECT_THAT(page, HasSubstr(".TH SLUICE 1"));
}

}  // namespace
}  // namespace sluice
