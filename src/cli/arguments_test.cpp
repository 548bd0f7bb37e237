#include "cli/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/verbs.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const Verb& verb(std::string_view name) {
  for (const Verb& v : all_verbs())
    if (v.name == name) return v;
  ADD_FAILURE() << "no verb " << name;
  return all_verbs().front();
}

Arguments parse(std::string_view name, std::vector<const char*> words) {
  return parse_arguments(verb(name), words, false);
}

struct Mistake {
  std::string message, hint;
};
Mistake mistake_of(std::string_view name, std::vector<const char*> words) {
  try {
    parse(name, std::move(words));
  } catch (const UsageError& error) {
    return {error.message(), error.hint()};
  } catch (const Error& error) {
    return {error.message(), ""};
  }
  return {};
}

TEST(Arguments, SpellingsAreEqual) {
  for (const std::vector<const char*>& words :
       std::vector<std::vector<const char*>>{{"--model", "m", "--context-length", "100"},
                                             {"--model-path=m", "--context_length=100"},
                                             {"--max_model_len", "100", "-model", "m"}}) {
    const Arguments a = parse("serve", words);
    EXPECT_EQ(a.options.model, "m");
    EXPECT_EQ(a.options.context_length, 100);
    EXPECT_TRUE(a.was_given("context-length"));
    EXPECT_FALSE(a.was_given("dtype"));
  }
}

TEST(Arguments, FlagsTakeNoValueUnlessGivenWithEquals) {
  const Arguments a = parse("serve", {"--disable-radix-cache", "model-dir"});
  EXPECT_TRUE(a.options.disable_radix_cache);
  EXPECT_THAT(a.positional, ElementsAre("model-dir"));
  EXPECT_FALSE(parse("serve", {"--disable-radix-cache=false"}).options.disable_radix_cache);
}

TEST(Arguments, ValuesMayLookLikeFlags) {
  EXPECT_EQ(parse("serve", {"--chunked-prefill-size", "-1"}).options.chunked_prefill_size, -1);
  EXPECT_EQ(parse("generate", {"--prompt", "--help", "--json"}).get("prompt"), "--help");
  EXPECT_THAT(parse("serve", {"--", "--odd-name"}).positional, ElementsAre("--odd-name"));
}

TEST(Arguments, VerbFlagsWinOverOptions) {
  const Arguments a = parse("verify", {"--tokenizer", "dir", "--chat-template", "other"});
  EXPECT_EQ(a.get("tokenizer"), "dir");
  EXPECT_EQ(a.get("chat-template"), "other");
  EXPECT_TRUE(a.options.tokenizer.empty());
  EXPECT_EQ(parse("serve", {"--tokenizer", "dir"}).options.tokenizer, "dir");
}

TEST(Arguments, RepeatedFlagsAddUp) {
  const Arguments a = parse("generate", {"--stop", "a", "--stop", "b,c"});
  EXPECT_THAT(a.values.at("stop"), ElementsAre("a", "b,c"));
}

TEST(Arguments, MistakesSayWhatToDo) {
  Mistake m = mistake_of("serve", {"--contxt-length", "5"});
  EXPECT_THAT(m.message, HasSubstr("unknown flag --contxt-length"));
  EXPECT_EQ(m.hint, "did you mean --context-length?");
  m = mistake_of("generate", {"--input-id", "5"});
  EXPECT_EQ(m.hint, "did you mean --input-ids?");
  m = mistake_of("serve", {"--port"});
  EXPECT_EQ(m.message, "--port needs a value");
  m = mistake_of("serve", {"--port", "70000"});
  EXPECT_THAT(m.message,
              HasSubstr("--port: 70000 is out of range; allowed: 0 (any free one) to 65535"));
  m = mistake_of("serve", {"--tp", "0"});
  EXPECT_THAT(m.message, HasSubstr("0 is out of range"));
  m = mistake_of("serve", {"a", "b"});
  EXPECT_EQ(m.message, "unexpected argument 'b'");
  m = mistake_of("generate", {"model", "text"});
  EXPECT_EQ(m.message, "unexpected argument 'text'");
  m = mistake_of("run", {"--temprature", "0"});
  EXPECT_EQ(m.hint, "did you mean --temperature?");
}

TEST(Arguments, LettersStandForTheFlagsThatUsersType) {
  const Arguments a = parse("generate", {"-m", "model", "-p", "text", "-n", "5", "-c=32k"});
  EXPECT_EQ(a.options.model, "model");
  EXPECT_EQ(a.get("prompt"), "text");
  EXPECT_EQ(a.get("max-new-tokens"), "5");
  EXPECT_EQ(a.options.context_length, 32000);
}

TEST(Arguments, AMisspeltVerbIsGuessed) {
  const auto hint_of = [](std::vector<const char*> words) -> std::string {
    try {
      find_verb(all_verbs(), words);
    } catch (const UsageError& error) {
      return error.hint();
    }
    return "";
  };
  EXPECT_EQ(hint_of({"serv"}), "did you mean sluice serve?");
  EXPECT_EQ(hint_of({"genrate", "m"}), "did you mean sluice generate?");
  EXPECT_EQ(hint_of({"bench", "serv"}), "did you mean sluice bench serve?");
  EXPECT_THAT(hint_of({"bench", "zebra"}), HasSubstr("latency, throughput"));
  EXPECT_THAT(hint_of({"zebra"}), HasSubstr("verbs: run, serve"));
}

TEST(Arguments, NumbersOfAVerbAreChecked) {
  const Arguments a = parse("bench latency", {"--batch-size", "4k"});
  EXPECT_EQ(a.get_int("batch-size", 1, 1, 4096), 4000);
  EXPECT_EQ(a.get_int("input-len", 7, 1, 4096), 7);
  EXPECT_THROW(a.get_int("batch-size", 1, 1, 10), UsageError);
  EXPECT_THROW(parse("generate", {"--temperature", "warm"}).get_number("temperature", 1, 0, 100),
               UsageError);
}

TEST(Arguments, HelpShowsEveryOptionOrWhatMentionsAWord) {
  EXPECT_TRUE(parse("serve", {"-h"}).wants_help);
  EXPECT_FALSE(parse("serve", {"--help"}).wants_short_help);
  EXPECT_TRUE(parse("serve", {"-h"}).wants_short_help);
  const std::string all = verb_help(verb("serve"), "all"), own = verb_help(verb("serve"));
  for (const OptionRow& row : option_table()) {
    EXPECT_THAT(all, HasSubstr(fmt::format("--{}", row.name)));
    const bool is_own = own.find(fmt::format("\n  --{}", row.name)) != std::string::npos;
    EXPECT_TRUE(is_own || row.effect != OptionEffect::kActive) << row.name;
  }
  EXPECT_THAT(own, Not(HasSubstr("Known and refused")));
  EXPECT_LT(std::ranges::count(short_help(verb("serve")), '\n'), 50);
  EXPECT_THAT(short_help(verb("serve")), HasSubstr("--context-length"));
  EXPECT_THAT(short_help(verb("list")), Not(HasSubstr("Common options")));
  EXPECT_EQ(parse("serve", {"--help=prefill"}).help_keyword, "prefill");
  const std::string some = verb_help(verb("serve"), "Prefill");
  EXPECT_THAT(some, HasSubstr("--chunked-prefill-size"));
  EXPECT_THAT(some, Not(HasSubstr("--api-key")));
  EXPECT_THAT(verb_help(verb("serve"), "zebra"), HasSubstr("no flag mentions"));
  for (const Verb& v : all_verbs())
    EXPECT_THAT(program_help(all_verbs()), HasSubstr(std::string(v.name)));
}

TEST(Arguments, OptionsOfTheServerAreUnreadElsewhere) {
  const auto unread = [](std::string_view name, const std::vector<const char*>& words) {
    return unread_options(verb(name), parse(name, words));
  };
  EXPECT_THAT(unread("generate", {"m", "--port", "80", "--dtype", "float32", "--io-threads=2",
                                  "--port", "81", "--served-model-name", "n"}),
              ElementsAre("port", "io-threads", "served-model-name"));
  EXPECT_THAT(unread("run", {"m", "--reasoning-parser", "none", "--max-connections", "3"}),
              ElementsAre("max-connections"));
  EXPECT_THAT(unread("show", {"m", "--tool-call-parser", "none"}), ElementsAre());
  for (const std::string_view name : {"serve", "plan"})  // plan prints the command of serve
    EXPECT_THAT(unread(name, {"m", "--port", "80", "--max-connections", "3"}), ElementsAre());
  EXPECT_THAT(verb_help(verb("generate"), "all"), Not(HasSubstr("--ssl-certfile")));
  EXPECT_THAT(short_help(verb("generate")), Not(HasSubstr("--api-key")));
}

}  // namespace
}  // namespace sluice
