#include "runtime/drafts/draft_backlog.h"

#include <gtest/gtest.h>

#include <array>

namespace sluice {
namespace {

using Tokens = std::vector<std::int32_t>;

void add(DraftBacklog& backlog, std::uint64_t sequence, std::int32_t first, const Tokens& tokens) {
  const auto row = backlog.reserve(static_cast<std::int64_t>(tokens.size()));
  ASSERT_TRUE(row);
  backlog.add(sequence, first, tokens, *row);
}

TEST(DraftBacklog, GivesWhatWasAdded) {
  DraftBacklog backlog(8);
  add(backlog, 1, 10, {5});
  add(backlog, 2, 70, {6, 7});
  add(backlog, 1, 11, {8, 9});
  const DraftBacklog::Slots one = backlog.take(1, 13);
  EXPECT_EQ(one.first, 10);
  EXPECT_EQ(one.tokens, (Tokens{5, 8, 9}));
  EXPECT_EQ(one.rows, (Tokens{0, 3, 4}));
  EXPECT_TRUE(backlog.take(1, 13).tokens.empty()) << "it is taken once";
  EXPECT_FALSE(backlog.has_holes(1));
  EXPECT_EQ(backlog.take(2, 72).rows, (Tokens{1, 2}));
  EXPECT_TRUE(backlog.take(3, 5).tokens.empty());
}

// A draft without states has the token of a step's last slot already, and computes it again.
TEST(DraftBacklog, SlotsOfTheNextStepAreItsOwn) {
  DraftBacklog backlog(8);
  add(backlog, 1, 10, {5, 6});
  add(backlog, 1, 11, {7, 8});
  EXPECT_EQ(backlog.take(1, 12).tokens, (Tokens{5, 7}));
}

TEST(DraftBacklog, RowsOfAStepLieSideBySide) {
  DraftBacklog backlog(8);
  EXPECT_EQ(backlog.reserve(5), 0);
  EXPECT_EQ(backlog.reserve(5), 0) << "three rows are left at the end";
  EXPECT_EQ(backlog.reserve(3), 5);
  EXPECT_EQ(backlog.reserve(8), 0);
  EXPECT_EQ(backlog.reserve(9), std::nullopt);
}

TEST(DraftBacklog, WhatIsWrittenOverIsLost) {
  DraftBacklog backlog(4);
  add(backlog, 1, 10, {5, 6});
  add(backlog, 2, 30, {7, 8});
  add(backlog, 2, 32, {9});
  EXPECT_TRUE(backlog.take(1, 12).tokens.empty());
  EXPECT_TRUE(backlog.has_holes(1));
  EXPECT_EQ(backlog.take(2, 33).tokens, (Tokens{7, 8, 9}));
  add(backlog, 1, 12, {1});
  EXPECT_TRUE(backlog.take(1, 13).tokens.empty()) << "the hole stays";
}

TEST(DraftBacklog, AGapIsAHole) {
  DraftBacklog backlog(8);
  add(backlog, 1, 10, {5});
  EXPECT_TRUE(backlog.take(1, 12).tokens.empty());
  EXPECT_TRUE(backlog.has_holes(1));
  add(backlog, 2, 10, {5});
  add(backlog, 2, 14, {5});
  EXPECT_TRUE(backlog.has_holes(2));
}

TEST(DraftBacklog, ASequenceThatBeginsAnewHasNoHoles) {
  DraftBacklog backlog(8);
  backlog.lose(1);
  backlog.restart(1, 0);
  EXPECT_FALSE(backlog.has_holes(1));
  add(backlog, 1, 0, {4, 5});
  backlog.restart(1, 2);  // its next chunk
  EXPECT_EQ(backlog.take(1, 2).tokens, (Tokens{4, 5}));
}

TEST(DraftBacklog, AChunkBehindALostOneHasHoles) {
  DraftBacklog backlog(8);
  backlog.lose(1, 20);
  backlog.restart(1, 20);
  EXPECT_TRUE(backlog.has_holes(1));
  backlog.restart(1, 0);  // computed anew
  EXPECT_FALSE(backlog.has_holes(1));
}

TEST(DraftBacklog, ForgetsSequencesThatAreGone) {
  DraftBacklog backlog(8);
  backlog.lose(1);
  backlog.lose(2);
  const std::array items = {BatchItem{.sequence = 2}};
  backlog.keep_only(items);
  EXPECT_FALSE(backlog.has_holes(1));
  EXPECT_TRUE(backlog.has_holes(2));
}

}  // namespace
}  // namespace sluice
