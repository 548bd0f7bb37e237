#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/source_dir.h"
#include "cli/arguments.h"
#include "cli/verify/verify_compare.h"
#include "cli/verify/verify_golden.h"
#include "cli/verify/verify_run.h"

namespace sluice {
namespace {

using testing::HasSubstr;

// A reference of one prompt of three tokens and two generated ones; every position has five best.
GoldenCase sample_case() {
  GoldenCase c;
  c.label = "sample";
  c.prompt = {4, 5, 6};
  c.output = {7, 8};
  c.min_margin = 0.5;
  for (int p = 0; p < 3; ++p) {
    c.prompt_best.emplace_back();
    for (int j = 0; j < 5; ++j)
      c.prompt_best.back().push_back(
          {(p == 2 ? 7 : p + 5) + 10 * j, -0.5f - 0.5f * static_cast<float>(j)});
  }
  c.output_best = {{{7, -0.5f}}, {{8, -0.25f}}};
  return c;
}

// What an engine gives that agrees with it.
CaseRun agreeing_run(const GoldenCase& c) {
  CaseRun run;
  run.tokens = c.all_tokens();
  for (std::size_t p = 0; p < c.prompt.size() - 1 + c.output.size(); ++p) {
    RowLogprobs row;
    row.top = *c.best_at(p);
    row.logprob = row.top[0].logprob;
    row.logits_hash = 1000 + p;
    run.rows.push_back(row);
  }
  return run;
}

TEST(Verify, AgreementIsOk) {
  const GoldenCase c = sample_case();
  const CaseVerdict v = compare_case(c, agreeing_run(c), {});
  EXPECT_TRUE(v.ok) << v.reason;
  EXPECT_EQ(v.greedy_equal, 2);
  EXPECT_EQ(v.num_compared, 16u);
  EXPECT_EQ(v.worst, 0);
}

TEST(Verify, DifferencesAreFound) {
  const GoldenCase c = sample_case();
  for (std::size_t p = 0; p < 4; ++p) {
    CaseRun run = agreeing_run(c);
    run.rows[p].top[0].logprob += 3e-4f;
    const CaseVerdict v = compare_case(c, run, {});
    EXPECT_FALSE(v.ok) << p;
    EXPECT_EQ(v.worst_position, p);
    run.rows[p].top[0].logprob -= 2e-4f;
    EXPECT_TRUE(compare_case(c, run, {}).ok) << p;
  }
  // A best token that ours does not list.
  CaseRun run = agreeing_run(c);
  run.rows[1].top[0].token = 99;
  EXPECT_FALSE(compare_case(c, run, {}).ok);
  // NaN.
  run = agreeing_run(c);
  run.rows[0].top[2].logprob = std::nanf("");
  EXPECT_FALSE(compare_case(c, run, {}).ok);
}

TEST(Verify, AWrongTokenFailsUnlessTheReferenceWasNearATie) {
  GoldenCase c = sample_case();
  CaseRun run = agreeing_run(c);
  run.tokens.back() = 9;
  run.rows.back().top = {{9, -0.2499f}, {8, -0.2501f}};
  EXPECT_FALSE(compare_case(c, run, {}).ok);
  Tolerance records;
  records.margin_for_tokens = 0.05;
  EXPECT_FALSE(compare_case(c, run, records).ok);
  c.min_margin = 0.01;
  EXPECT_TRUE(compare_case(c, run, records).ok);
}

TEST(Verify, RowsAfterADifferentTokenAreNotCompared) {
  GoldenCase c = sample_case();
  c.min_margin = 0.01;
  CaseRun run = agreeing_run(c);
  run.tokens[3] = 9;              // generated something else
  run.rows[3].top = {{1, -9.f}};  // so this row is of another text
  Tolerance records;
  records.margin_for_tokens = 0.05;
  EXPECT_TRUE(compare_case(c, run, records).ok);
  ModeRun a, b;
  a.cases = {agreeing_run(c)};
  run.rows[3].logits_hash = 7;
  b.cases = {run};
  GoldenFile file;
  file.cases = {c};
  std::size_t common = 0;
  EXPECT_TRUE(compare_bits(file, a, b, common).empty());
  EXPECT_EQ(common, 3u);
}

TEST(Verify, BitsThatDifferAreFound) {
  GoldenFile file;
  file.cases = {sample_case()};
  ModeRun a, b;
  a.cases = {agreeing_run(file.cases[0])};
  b = a;
  std::size_t common = 0;
  EXPECT_TRUE(compare_bits(file, a, b, common).empty());
  EXPECT_EQ(common, 4u);
  b.cases[0].rows[2].logits_hash ^= 1;
  EXPECT_THAT(compare_bits(file, a, b, common), testing::ElementsAre(HasSubstr("the first is 2")));
  // A run that begins later has fewer positions in common.
  b = a;
  b.cases[0].rows.erase(b.cases[0].rows.begin(), b.cases[0].rows.begin() + 3);
  b.cases[0].first = 3;
  EXPECT_TRUE(compare_bits(file, a, b, common).empty());
  EXPECT_EQ(common, 1u);
}

TEST(Verify, RowsThatWereCachedDoNotCountAgainstTheTokens) {
  const GoldenCase c = sample_case();
  CaseRun run = agreeing_run(c);
  run.rows.erase(run.rows.begin(), run.rows.begin() + 3);
  run.first = 3;
  const CaseVerdict v = compare_case(c, run, {});
  EXPECT_TRUE(v.ok) << v.reason;
  EXPECT_EQ(v.greedy_equal, 1);
  EXPECT_EQ(v.greedy_total, 1);
  run.rows.clear();
  EXPECT_FALSE(compare_case(c, run, {}).ok);
}

TEST(Verify, LimitsOfLowPrecisionComeFromTheReference) {
  GoldenFile file;
  file.bfloat16_mean = 0.01;
  file.bfloat16_max = 0.1;
  EXPECT_EQ(tolerance_for(file, "float32").at_position, 2e-4f);
  const Tolerance bf16 = tolerance_for(file, "bfloat16");
  EXPECT_FLOAT_EQ(bf16.at_position, 0.2f);
  EXPECT_DOUBLE_EQ(bf16.mean_limit, 0.015);
  EXPECT_FALSE(bf16.compare_tokens);
  EXPECT_FLOAT_EQ(tolerance_for(file, "float16").at_position, 0.025f);
  file.rounded_rows_mean = 0.2;
  file.rounded_rows_max = 1;
  EXPECT_DOUBLE_EQ(tolerance_for(file, "bfloat16").mean_limit, 0.015);
  EXPECT_DOUBLE_EQ(tolerance_for(file, "bfloat16", true).mean_limit, 0.315);
  EXPECT_FLOAT_EQ(tolerance_for(file, "bfloat16", true).at_position, 2.2f);
  EXPECT_EQ(tolerance_for(file, "float32", true).at_position, 2e-4f);
  file.has_discrete_choices = true;
  EXPECT_EQ(tolerance_for(file, "bfloat16").at_position, 0);
  file.chat_records = true;
  EXPECT_THROW(tolerance_for(file, "bfloat16"), Error);
  EXPECT_EQ(tolerance_for(file, "float32").num_compared, 2);
  file = {};
  EXPECT_THROW(tolerance_for(file, "bfloat16"), Error);
}

TEST(Verify, ModesAreParsed) {
  const std::vector<VerifyMode> modes =
      parse_modes("whole,chunk:7,cached,cached:33,mixed,decode,passes");
  ASSERT_EQ(modes.size(), 7u);
  EXPECT_EQ(modes[1].size, 7);
  EXPECT_EQ(modes[2].size, 0);
  EXPECT_EQ(modes[3].size, 33);
  EXPECT_EQ(modes[4].kind, VerifyMode::kMixed);
  EXPECT_EQ(modes[6].kind, VerifyMode::kPasses);
  for (const char* bad :
       {"", "hole", "chunk", "chunk:0", "chunk:x", "whole:3", "passes:2", "mixed,", "decode:1"})
    EXPECT_THROW(parse_modes(bad), UsageError) << bad;
}

TEST(Verify, GoldenFilesOfTheRepositoryAreRead) {
  const std::string root = source_dir() + "/tests/golden/";
  const GoldenFile model = read_golden_file(root + "models/glm-moe-dsa/golden.json");
  EXPECT_FALSE(model.chat_records);
  EXPECT_TRUE(model.has_discrete_choices);
  ASSERT_EQ(model.cases.size(), 4u);
  EXPECT_EQ(model.cases[3].prompt.size(), 130u);
  EXPECT_EQ(model.cases[3].output.size(), 24u);
  EXPECT_EQ(model.cases[3].best_at(129)->size(), 5u);
  EXPECT_EQ(model.cases[3].best_at(130)->size(), 1u);
  EXPECT_EQ(model.cases[3].best_at(153), nullptr);
  const GoldenFile chat = read_golden_file(root + "sluice-tiny.json");
  EXPECT_TRUE(chat.chat_records);
  EXPECT_EQ(chat.cases.size(), 61u);
  EXPECT_EQ(chat.cases[0].best_at(0), nullptr);
  EXPECT_EQ(chat.cases[0].best_at(chat.cases[0].prompt.size() - 1)->size(), 5u);
}

TEST(Verify, BrokenReferencesNameTheField) {
  const std::pair<const char*, const char*> table[] = {
      {"{}", "checks"},
      {R"({"checks":{}})", "prompts"},
      {R"({"checks":{},"prompts":[]})", "prompts"},
      {R"({"checks":{},"prompts":[{"ids":["a"]}]})", "ids"},
      {R"({"checks":{},"prompts":[{"ids":[1],"top5_ids":[],"top5_logprobs":[[0]]}]})", "top5_ids"},
      {R"([{"prompt_ids":[1]}])", "output_ids"},
      {"[]", "no records"},
      {"nonsense", "here"},
  };
  for (const auto& [text, wanted] : table) {
    try {
      parse_golden(text, "here");
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.message(), HasSubstr(wanted)) << text;
      EXPECT_EQ(error.kind(), ErrorKind::kBadInput);
    }
  }
}

}  // namespace
}  // namespace sluice
