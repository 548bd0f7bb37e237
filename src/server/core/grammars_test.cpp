#include "server/core/grammars.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <string>

#include "base/json.h"
#include "base/testing/source_dir.h"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;
using Source = grammar::GrammarSource;

// Both patterns together have some 2^n states: 15 takes a second on a quiet machine.
Source costly(int n) {
  const std::string many = std::to_string(n), more = std::to_string(n + 1);
  const Json both = {{{"pattern", "^(a|b)*a(a|b){" + many + "}$"}},
                     {{"pattern", "^(a|b)*b(a|b){" + more + "}$"}}};
  return {.kind = Source::kJsonSchema, .text = dump_json(Json{{"allOf", both}})};
}
Source cheap(int n) {
  return {.kind = Source::kRegex, .text = "a{" + std::to_string(n) + "}"};
}

std::optional<Fault> leaves() {
  return Fault{499, "aborted", "", "The client has left."};
}

class GrammarsTest : public ::testing::Test {
 protected:
  GrammarsTest()
      : tokenizer_(Tokenizer::load(source_dir() + "/models/sluice-tiny")),
        grammars_(tokenizer_, tokenizer_->size()),
        ends_{tokenizer_->eos_id().value()} {
    grammars_.vocabulary();
  }

  Result<ConstraintMaker> make(const Source& source,
                               const Grammars::WhyUnwanted& why_unwanted = {}) {
    return grammars_.maker(source, ends_, false, nullptr, why_unwanted);
  }
  double seconds_of(const Source& source) {
    const auto begin = Clock::now();
    const auto maker = make(source);
    EXPECT_TRUE(maker.ok()) << maker.fault().message;
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  const std::shared_ptr<const Tokenizer> tokenizer_;
  Grammars grammars_;
  const std::vector<std::int32_t> ends_;
};

TEST_F(GrammarsTest, AGrammarIsCompiledOnce) {
  const double first = seconds_of(costly(14));
  EXPECT_LT(seconds_of(costly(14)), first / 4);
}

TEST_F(GrammarsTest, ACompileThatNobodyWantsIsCancelled) {
  const double alone = seconds_of(costly(15));
  // Compiles to the end would take all compile threads for longer than `alone`.
  for (int n = 16; n < 20; ++n) {
    const auto maker = make(costly(n), leaves);
    ASSERT_FALSE(maker.ok());
    EXPECT_EQ(maker.fault().status, 499);
  }
  EXPECT_LT(seconds_of(cheap(1)), alone / 2);
  // Nothing of the cancelled one is kept.
  EXPECT_TRUE(make(costly(15)).ok());
}

TEST_F(GrammarsTest, OthersThatWaitGetTheirGrammar) {
  std::atomic<bool> has_left = false;
  auto leaver = std::async(std::launch::async, [&] {
    return make(costly(17), [&] { return has_left ? leaves() : std::nullopt; });
  });
  auto stayer = std::async(std::launch::async, [&] { return make(costly(17)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  has_left = true;
  EXPECT_FALSE(leaver.get().ok());
  EXPECT_TRUE(stayer.get().ok());
}

TEST_F(GrammarsTest, ACancelledCompileIsBegunAnewForTheNext) {
  ASSERT_FALSE(make(costly(17), leaves).ok());
  EXPECT_TRUE(make(costly(17)).ok());
}

TEST_F(GrammarsTest, FaultsAreNotKept) {
  const Source faulty{.kind = Source::kRegex, .text = "("};
  for (int i = 0; i < 2; ++i) EXPECT_EQ(make(faulty).fault().status, 400);
}

TEST_F(GrammarsTest, ManyAskAtOnce) {
  std::vector<std::future<bool>> answers;
  for (int i = 0; i < 32; ++i)
    answers.push_back(std::async(std::launch::async, [this, i] {
      return i % 4 == 3 ? !make(costly(13 + i % 8), leaves).ok() : make(cheap(1 + i % 5)).ok();
    }));
  for (auto& answer : answers) EXPECT_TRUE(answer.get());
}

}  // namespace
}  // namespace sluice
