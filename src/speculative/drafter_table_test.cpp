#include "speculative/drafter_table.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(DraftMethods, AreFoundByTheNamesOfBothEngines) {
  ASSERT_NE(find_draft_method("NGRAM"), nullptr);
  EXPECT_EQ(find_draft_method("ngram"), find_draft_method("NGRAM"));
  EXPECT_EQ(draft_method_row(DraftMethod::kNextn).name, "NEXTN");
  EXPECT_EQ(find_draft_method("mtp"), find_draft_method("NEXTN"));
  EXPECT_EQ(find_draft_method("deepseek_mtp"), find_draft_method("nextn"));
  EXPECT_EQ(find_draft_method("draft_model"), find_draft_method("STANDALONE"));
  EXPECT_EQ(find_draft_method("ngra"), nullptr);
  EXPECT_EQ(find_draft_method(""), nullptr);
}

TEST(DraftMethods, AreServedOrSayWhyNot) {
  for (const DraftMethodRow& row : draft_method_table()) {
    const bool is_none = row.name == "NONE";
    EXPECT_EQ(row.refusal.empty(), is_none || row.method != DraftMethod::kNone) << row.name;
    EXPECT_EQ(row.default_drafts > 0, row.method != DraftMethod::kNone) << row.name;
  }
  EXPECT_EQ(draft_method_row(DraftMethod::kNgram).name, "NGRAM");
}

TEST(DraftMethods, AnNgramDrafterIsMadeForEachSequence) {
  const SpeculationOptions options{
      .method = DraftMethod::kNgram, .max_drafts = 3, .ngram = {.min_match = 1, .max_match = 2}};
  const DrafterMaker make = make_drafter(options);
  ASSERT_TRUE(make);
  const std::vector<std::int32_t> tokens = {1, 2, 3, 1}, other = {9, 8, 9};
  std::vector<std::int32_t> drafts;
  const auto first = make({}), second = make({});
  first->draft(tokens, 2, drafts);
  second->draft(other, 2, drafts);
  EXPECT_EQ(drafts, (std::vector<std::int32_t>{2, 3, 8, 9}));
  EXPECT_EQ(describe(options),
            "NGRAM, up to 3 drafts for a sequence in a step, behind matches of 1 to 2 tokens");
  EXPECT_FALSE(make_drafter({}));
}

TEST(DraftMethods, ForcedTokensNeedNoMethod) {
  SpeculationOptions options{.max_drafts = 15, .forced_tokens = true};
  EXPECT_TRUE(options.is_on());
  EXPECT_TRUE(options.reads_text());
  EXPECT_EQ(describe(options),
            "tokens that grammars force, up to 15 drafts for a sequence in a step");
  const DrafterMaker make = make_drafter(options);
  ASSERT_TRUE(make) << "no drafts come with results";
  std::vector<std::int32_t> drafts;
  make({})->draft(std::vector<std::int32_t>{1, 2, 1}, 4, drafts);
  EXPECT_TRUE(drafts.empty());
  options.method = DraftMethod::kNextn;
  EXPECT_FALSE(options.reads_text());
  EXPECT_EQ(describe(options),
            "NEXTN, up to 15 drafts for a sequence in a step, those that grammars force first");
}

}  // namespace
}  // namespace sluice
