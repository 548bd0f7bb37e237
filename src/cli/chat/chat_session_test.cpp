#include "cli/chat/chat_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/log.h"
#include "base/testing/source_dir.h"
#include "cli/chat/terminal.h"
#include "server/serve.h"

namespace sluice {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ChatSettings, AreSetAndTakenBack) {
  ChatSettings s;
  s.set("temperature", "0.5");
  s.set("top_k", "40");
  s.set("system", "Be brief.");
  s.set("think", "off");
  EXPECT_EQ(s.temperature, 0.5);
  EXPECT_EQ(s.top_k, 40);
  EXPECT_EQ(s.think, false);
  EXPECT_THAT(s.describe(), HasSubstr("Be brief."));
  EXPECT_EQ(ChatSettings::from_json(s.json()).json(), s.json());
  s.set("temperature", "default");
  s.set("think", "default");
  EXPECT_FALSE(s.temperature.has_value());
  EXPECT_FALSE(s.think.has_value());
  for (const auto& [name, value] :
       std::vector<std::pair<const char*, const char*>>{{"temperature", "warm"},
                                                        {"temperature", "-1"},
                                                        {"top_p", "0"},
                                                        {"top_p", "2"},
                                                        {"max_tokens", "0"},
                                                        {"think", "maybe"},
                                                        {"nothing", "1"}})
    EXPECT_THROW(s.set(name, value), Error) << name << " " << value;
}

// The allowed values are those that `sluice run --help` shows.
TEST(ChatSettings, FlagsHaveNoDefaultToGoBackTo) {
  const auto message_of = [](const char* name, const char* value, bool resets) {
    ChatSettings s;
    try {
      s.set(name, value, resets);
    } catch (const Error& error) {
      return error.message();
    }
    return std::string("taken");
  };
  EXPECT_EQ(message_of("think", "maybe", false), "think is maybe; allowed: on, off");
  EXPECT_EQ(message_of("think", "maybe", true), "think is maybe; allowed: on, off, or default");
  EXPECT_EQ(message_of("think", "default", false), "think is default; allowed: on, off");
  EXPECT_EQ(message_of("top_k", "default", false), "top_k is default; allowed: -1 to 2147483647");
  EXPECT_EQ(message_of("temperature", "default", false),
            "temperature is default; allowed: 0 to 100");
  ChatSettings s;
  s.set("system", "default", false);
  EXPECT_EQ(s.system, "default");
}

TEST(ChatSettings, YieldToTheModelWhereNothingIsSet) {
  GenerationConfig model;
  model.temperature = 0.6;
  model.top_k = 20;
  model.eos_token_ids = {7};
  ChatSettings s;
  EXPECT_FLOAT_EQ(s.sampling(model, true).temperature, 0.6f);
  EXPECT_EQ(s.sampling(model, true).top_k, 20);
  EXPECT_FLOAT_EQ(s.sampling(model, false).temperature, 1);
  EXPECT_THAT(s.sampling(model, false).stop_token_ids, ElementsAre(7));
  s.temperature = 0;
  s.seed = 5;
  EXPECT_EQ(s.sampling(model, true).temperature, 0);
  EXPECT_EQ(s.sampling(model, true).seed, 5u);
}

class Session : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    set_log_level(LogLevel::kError);
    Options options;
    options.model = source_dir() + "/models/sluice-tiny";
    options.dtype = "float32";
    options.max_total_tokens = 4096;
    options.max_running_requests = 1;
    options.threads = 1;
    model = load_served_model(options, [](const std::string&, double) {});
  }
  static void TearDownTestSuite() { model.reset(); }

  ChatSession session() const {
    ChatSession s(model, true);
    s.settings.temperature = 0;
    return s;
  }
  static std::shared_ptr<const ServedModel> model;
};
std::shared_ptr<const ServedModel> Session::model;

TEST_F(Session, AnswersAndRemembers) {
  ChatSession s = session();
  std::string shown, thought;
  const auto show = [&](const ChatDelta& delta) {
    shown += delta.content;
    thought += delta.reasoning;
  };
  auto reply = s.say("What is the capital of France?", show, [] { return false; });
  ASSERT_TRUE(reply.ok());
  EXPECT_THAT(reply->content, HasSubstr("Paris"));
  EXPECT_EQ(shown, reply->content);
  EXPECT_EQ(thought, reply->reasoning);
  EXPECT_GT(reply->timing.generated_tokens, 1);
  EXPECT_THAT(reply->timing.describe(), HasSubstr("tokens/s"));
  ASSERT_EQ(s.messages().size(), 2u);
  reply = s.say("What is the sum of 25, 17 and 40?", show, [] { return false; });
  ASSERT_TRUE(reply.ok());
  EXPECT_GT(reply->timing.cached_tokens, 0);  // the first turn is there already

  ChatSession again = session();
  again.load(s.save());
  EXPECT_EQ(again.take_back(), "What is the sum of 25, 17 and 40?");
  EXPECT_EQ(again.messages().size(), 2u);
  EXPECT_EQ(again.take_back(), "What is the capital of France?");
  EXPECT_EQ(again.take_back(), "");

  ChatSession other = session();
  other.load(s.save());
  EXPECT_EQ(other.messages(), s.messages());
  EXPECT_EQ(other.settings.temperature, 0);
  other.clear();
  EXPECT_TRUE(other.messages().empty());
  for (const char* bad : {"[]", "{}", R"({"messages":[{"role":"user"}]})",
                          R"({"messages":[],"settings":{"top_p":9}})"})
    EXPECT_THROW(other.load(parse_json_or_throw(bad, "test")), Error) << bad;
}

TEST_F(Session, ThinkingCanBeSwitchedOff) {
  ChatSession s = session();
  s.settings.set("think", "on");
  const auto ask = [&] {
    return s.say(
        "What is the sum of 25, 17 and 40?", [](const ChatDelta&) {}, [] { return false; });
  };
  auto reply = ask();
  ASSERT_TRUE(reply.ok());
  EXPECT_FALSE(reply->reasoning.empty());
  s.clear();
  s.settings.set("think", "off");
  reply = ask();
  ASSERT_TRUE(reply.ok());
  EXPECT_TRUE(reply->reasoning.empty());
}

TEST_F(Session, AnAnswerCanBeStoppedOrCut) {
  ChatSession s = session();
  s.settings.max_tokens = 3;
  auto reply =
      s.say("What is the sum of 25, 17 and 40?", [](const ChatDelta&) {}, [] { return false; });
  ASSERT_TRUE(reply.ok());
  EXPECT_TRUE(reply->cut);
  EXPECT_EQ(reply->timing.generated_tokens, 3);
  s.clear();
  s.settings.max_tokens.reset();
  int asked = 0;
  reply = s.say(
      "Sort 9, 3, 7, 1, 8, 2, 6, 4, 5.", [](const ChatDelta&) {}, [&] { return ++asked == 1; });
  ASSERT_TRUE(reply.ok());
  EXPECT_TRUE(reply->interrupted);
  EXPECT_EQ(s.messages().size(), 2u);  // what came counts
}

TEST_F(Session, AFaultLeavesTheConversationAsItWas) {
  ChatSession s = session();
  std::string longest;
  for (int i = 0; i < 9000; ++i) longest += "word ";
  const auto reply = s.say(longest, [](const ChatDelta&) {}, [] { return false; });
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.fault().status, 400);
  EXPECT_TRUE(s.messages().empty());
}

TEST(History, IsKeptInAFile) {
  const std::string path = testing::TempDir() + "/sluice-history-test/history";
  LineHistory written;
  for (const char* line : {"one", "two\nlines", "back\\slash \\n"}) written.add(line);
  ASSERT_TRUE(save_history(path, written));
  LineHistory read;
  load_history(path, read);
  EXPECT_EQ(read.lines(), written.lines());
  const auto mode = std::filesystem::status(path).permissions();
  EXPECT_EQ(mode & std::filesystem::perms::all,
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  std::filesystem::remove_all(std::filesystem::path(path).parent_path());
  EXPECT_FALSE(save_history("", written));
}

}  // namespace
}  // namespace sluice
