#include "cache/radix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "base/hash.h"

namespace sluice {
namespace {

constexpr int kPage = 4;  // small pages keep the tests short
using Tokens = std::vector<std::int32_t>;

Tokens range(int from, int count) {
  Tokens tokens(count);
  for (int i = 0; i < count; ++i) tokens[i] = from + i;
  return tokens;
}

// A cache and the contents of its pages: row r of page p is the hash of the tokens up to that row.
struct World {
  explicit World(std::vector<PageGroup> infos) : groups(std::move(infos)) {
    for (const PageGroup& group : groups) {
      pools.emplace_back(group.num_pages);
      rows.emplace_back(group.num_pages * kPage);
    }
    num_page_groups =
        static_cast<int>(groups.size()) - (groups.back().retention == Retention::kState);
    cache = std::make_unique<RadixCache>(groups, pools, kPage);
  }

  static std::vector<std::uint64_t> digests(const Tokens& tokens, std::uint64_t name_space) {
    std::vector<std::uint64_t> out;
    std::uint64_t h = name_space;
    for (std::int32_t token : tokens)
      out.push_back(h = hash_combine(h, static_cast<std::uint64_t>(token)));
    return out;
  }

  // Computes `tokens` in new pages and inserts them; evicts as needed. False when memory is short.
  bool insert(const Tokens& tokens, std::uint64_t name_space = 0, bool with_state = true,
              std::uint64_t origin = 0) {
    const auto digest = digests(tokens, name_space);
    std::vector<PageList> lists;
    std::vector<std::span<const std::int32_t>> spans;
    const auto count = (tokens.size() + kPage - 1) / kPage;
    for (int g = 0; g < num_page_groups; ++g) {
      PageList& list = lists.emplace_back(pools[g]);
      const auto keep = static_cast<std::size_t>(
          groups[g].keep_from(static_cast<std::int64_t>(tokens.size())) / kPage);
      for (std::size_t i = 0; i < count; ++i) {
        if (i < keep) {
          list.append_shared(kNoPage);
          continue;
        }
        if (pools[g].num_free() == 0) cache->evict(g, 1);
        if (!list.append_new()) return false;
        for (std::size_t r = 0; r < kPage && i * kPage + r < tokens.size(); ++r)
          rows[g][list[i] * kPage + r] = digest[i * kPage + r];
      }
    }
    PageRef state;
    if (with_state && num_page_groups < static_cast<int>(groups.size())) {
      if (pools.back().num_free() == 0) cache->evict(num_page_groups, 1);
      state = PageRef::taken(pools.back());
      if (!state) return false;
      rows.back()[state.page() * kPage] = digest.back();
    }
    for (const PageList& list : lists) spans.push_back(list.pages());
    cache->insert(name_space, tokens, spans, std::move(state), false, origin);
    cache->check_invariants();
    return true;
  }

  // A match; checks the contents of its pages.
  PrefixLock match(const Tokens& tokens, std::uint64_t name_space = 0) {
    const std::int64_t length = cache->match_length(name_space, tokens);
    PrefixLock lock = cache->match(name_space, tokens);
    cache->check_invariants();
    EXPECT_EQ(lock.length(), length);
    const auto digest = digests(tokens, name_space);
    for (int g = 0; g < num_page_groups && lock.length() > 0; ++g) {
      for (std::int64_t p = groups[g].keep_from(lock.length()); p < lock.length(); ++p) {
        const std::int32_t page = p < lock.tokens ? lock.pages[g][p / kPage] : lock.tail_pages[g];
        EXPECT_GE(page, 0) << "group " << g << " position " << p;
        if (page < 0) continue;
        EXPECT_EQ(rows[g][page * kPage + p % kPage], digest[p])
            << "group " << g << " position " << p;
      }
    }
    const bool states = num_page_groups < static_cast<int>(groups.size());
    if (states && lock.length() > 0) {
      EXPECT_GE(lock.snapshot, 0);
      EXPECT_EQ(rows.back()[lock.snapshot * kPage], digest[lock.length() - 1]);
    }
    return lock;
  }

  std::vector<PageGroup> groups;
  std::vector<PageAllocator> pools;
  std::vector<std::vector<std::uint64_t>> rows;
  std::unique_ptr<RadixCache> cache;
  int num_page_groups = 0;
};

World full(int pages) {
  return World({{"full", Retention::kFull, 0, pages}});
}

TEST(RadixCache, MatchesByTokenAndOwnsByPage) {
  World w = full(20);
  ASSERT_TRUE(w.insert(range(0, 10)));
  EXPECT_EQ(w.pools[0].num_evictable(), 3);
  PrefixLock all = w.match(range(0, 12));
  EXPECT_EQ(all.tokens, 8);
  EXPECT_EQ(all.tail_tokens, 2);
  EXPECT_EQ(w.match(range(0, 7)).tail_tokens, 3);  // ends inside the second page
  EXPECT_EQ(w.match(range(0, 2)).tail_tokens, 2);  // inside the first
  EXPECT_FALSE(w.match(range(0, 2)).locked());
  EXPECT_EQ(w.match(range(1, 5)).length(), 0);
  EXPECT_EQ(w.match(range(0, 10), 1).length(), 0);  // another namespace
  EXPECT_EQ(w.match({}).length(), 0);
}

TEST(RadixCache, SiblingsMayShareLeadingTokens) {
  World w = full(20);
  ASSERT_TRUE(w.insert({1, 2, 3, 4, 5, 6, 7, 8}));
  ASSERT_TRUE(w.insert({1, 2, 3, 9, 5, 6, 7, 8}));
  ASSERT_TRUE(w.insert({1, 2, 3, 4, 5, 6, 9, 9}));
  EXPECT_EQ(w.match({1, 2, 3, 9, 5}).length(), 5);
  EXPECT_EQ(w.match({1, 2, 3, 4, 5, 6, 9, 1}).length(), 7);
  EXPECT_EQ(w.match({1, 2, 3, 7}).length(), 3);
  EXPECT_EQ(w.cache->stats().tokens, 8 + 8 + 4);
}

TEST(RadixCache, WhatIsCoveredIsNotKeptTwice) {
  World w = full(20);
  ASSERT_TRUE(w.insert(range(0, 6)));
  ASSERT_TRUE(w.insert(range(0, 6)));
  ASSERT_TRUE(w.insert(range(0, 3)));
  EXPECT_EQ(w.pools[0].num_evictable(), 2);
  ASSERT_TRUE(w.insert(range(0, 11)));  // its second page replaces the leaf that ended in it
  EXPECT_EQ(w.pools[0].num_evictable(), 3);
  EXPECT_EQ(w.cache->stats().tokens, 11);
}

TEST(RadixCache, EvictsLeastRecentlyUsedLeavesFromTheEnd) {
  World w = full(9);
  ASSERT_TRUE(w.insert(range(0, 12)));
  ASSERT_TRUE(w.insert(range(100, 12)));
  ASSERT_TRUE(w.insert(range(200, 12)));
  w.match(range(0, 12));
  EXPECT_EQ(w.cache->evict(0, 2), 2);
  EXPECT_EQ(w.match(range(100, 12)).length(), 4);
  EXPECT_EQ(w.match(range(200, 12)).length(), 12);
  EXPECT_EQ(w.cache->evict(0, 4), 4);
  EXPECT_EQ(w.match(range(0, 12)).length(), 0);  // the oldest entry at that time
  EXPECT_EQ(w.match(range(100, 12)).length(), 0);
  EXPECT_EQ(w.match(range(200, 12)).length(), 12);
  EXPECT_EQ(w.cache->stats().evicted_pages, 6);
}

TEST(RadixCache, LockedNodesStay) {
  World w = full(9);
  ASSERT_TRUE(w.insert(range(0, 20)));
  {
    PrefixLock lock = w.match(range(0, 9));  // two pages, and a row of the third
    PageList held(w.pools[0]);
    for (std::int32_t page : lock.pages[0]) held.append_shared(page);
    EXPECT_EQ(w.pools[0].num_evictable(), 3);
    EXPECT_EQ(w.cache->evict(0, 9), 3);
    EXPECT_EQ(w.match(range(0, 20)).length(), 8);
    w.cache->flush();
    EXPECT_EQ(w.match(range(0, 20)).length(), 8);
  }
  w.cache->flush();
  EXPECT_EQ(w.pools[0].num_free(), 9);
  EXPECT_EQ(w.cache->stats().nodes, 0);
}

TEST(RadixCache, InsertCanLockAndListItsPath) {
  World w = full(9);
  ASSERT_TRUE(w.insert(range(0, 8)));
  const std::vector<std::int32_t> theirs = w.match(range(0, 8)).pages[0];
  PageList mine(w.pools[0]);
  for (int i = 0; i < 3; ++i) mine.append_new();
  const std::span<const std::int32_t> spans[] = {mine.pages()};
  const Tokens tokens = range(0, 12);
  PrefixLock lock = w.cache->insert(0, tokens, spans, {}, true);
  EXPECT_EQ(lock.pages[0], (std::vector<std::int32_t>{theirs[0], theirs[1], mine[2]}));
  w.cache->check_invariants();
  EXPECT_EQ(w.pools[0].num_evictable(), 2);  // `mine` does not name these
}

TEST(RadixCache, AWindowMatchesWhereItsPagesAre) {
  World w({{"full", Retention::kFull, 0, 20}, {"window", Retention::kWindow, 6, 20}});
  ASSERT_TRUE(
      w.insert(range(0, 16)));  // keeps the window's pages from position 11 on: pages 2 and 3
  EXPECT_EQ(w.match(range(0, 16)).length(), 16);
  EXPECT_EQ(w.match(range(0, 15)).length(), 15);
  EXPECT_EQ(w.match(range(0, 12)).length(), 0);  // position 12 reads from 7 on
  ASSERT_TRUE(w.insert(range(0, 8)));            // restores pages 0 and 1 of the window
  EXPECT_EQ(w.match(range(0, 12)).length(), 12);
  EXPECT_EQ(w.match(range(0, 8)).length(), 8);

  EXPECT_EQ(w.cache->evict(1, 2), 2);  // the oldest pages go; the full group stays
  EXPECT_EQ(w.pools[0].num_evictable(), 4);
  EXPECT_EQ(w.pools[1].num_evictable(), 2);
  w.cache->check_invariants();
}

TEST(RadixCache, AChunkNeedsNothingAtItsStart) {
  World w({{"full", Retention::kFull, 0, 20}, {"chunk", Retention::kChunk, 8, 20}});
  ASSERT_TRUE(w.insert(range(0, 14)));  // keeps the chunk's pages from 8 on
  EXPECT_EQ(w.match(range(0, 14)).length(), 14);
  EXPECT_EQ(w.match(range(0, 9)).length(), 9);
  EXPECT_EQ(w.match(range(0, 8)).length(), 8);
  EXPECT_EQ(w.match(range(0, 7)).length(), 0);
}

TEST(RadixCache, AStateMatchesWhereASnapshotIs) {
  World w({{"full", Retention::kFull, 0, 20}, {"state", Retention::kState, 0, 4}});
  ASSERT_TRUE(w.insert(range(0, 8)));
  ASSERT_TRUE(w.insert(range(0, 14)));
  EXPECT_EQ(w.match(range(0, 13)).length(), 8);
  EXPECT_EQ(w.match(range(0, 20)).length(), 14);
  EXPECT_EQ(w.match(range(0, 7)).length(), 0);
  EXPECT_EQ(w.cache->evict(1, 1), 1);  // pages of one path, the deepest first
  EXPECT_EQ(w.match(range(0, 20)).length(), 8);
  EXPECT_EQ(w.cache->evict(1, 1), 1);
  EXPECT_EQ(w.match(range(0, 20)).length(), 0);
  EXPECT_EQ(w.pools[0].num_evictable(), 4);
}

TEST(RadixCache, BrokenRulesAreFound) {
  World w = full(4);
  const Tokens tokens = range(0, 6);
  const std::vector<std::int32_t> none = {kNoPage, kNoPage};
  const std::span<const std::int32_t> spans[] = {none};
  EXPECT_THROW(w.cache->insert(0, tokens, spans), Error);
  EXPECT_THROW(w.pools[0].drop(0), Error);
  EXPECT_THROW(w.pools[0].share(0), Error);
}

// Compares with the list of everything inserted. Without eviction the cache finds the longest
// common prefix, with eviction never more. The pages always hold the right rows.
TEST(RadixCache, RandomAgainstTheListOfAllInserted) {
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    std::mt19937_64 random(seed);
    auto between = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    const bool plenty = seed % 2 == 0;
    const int kind = plenty ? 0 : static_cast<int>(seed / 2 % 4);
    const int pages = plenty ? 4000 : between(6, 20);
    std::vector<PageGroup> groups = {{"full", Retention::kFull, 0, pages}};
    if (kind == 1) groups.push_back({"window", Retention::kWindow, between(1, 9), between(4, 20)});
    if (kind == 2) groups.push_back({"state", Retention::kState, 0, between(1, 5)});
    if (kind == 3) groups = {{"window", Retention::kWindow, between(2, 9), between(5, 20)}};
    World w(groups);
    std::vector<std::pair<std::uint64_t, Tokens>> inserted;
    std::vector<std::pair<PrefixLock, std::vector<PageList>>> held;
    std::int64_t hits = 0;
    for (int step = 0; step < 300; ++step) {
      Tokens tokens(between(1, 22));
      for (std::int32_t& token : tokens) token = between(0, 9) == 0 ? 1 : 0;
      const auto name_space = static_cast<std::uint64_t>(between(0, 1));
      if (between(0, 1) == 0) {
        if (w.insert(tokens, name_space)) inserted.emplace_back(name_space, tokens);
      } else {
        PrefixLock lock = w.match(tokens, name_space);
        std::int64_t longest = 0;
        for (const auto& [other_space, other] : inserted)
          if (other_space == name_space)
            longest = std::max<std::int64_t>(
                longest, std::ranges::mismatch(tokens, other).in1 - tokens.begin());
        ASSERT_LE(lock.length(), longest) << "seed " << seed;
        if (plenty) {
          ASSERT_EQ(lock.length(), longest) << "seed " << seed;
        }
        hits += lock.length();
        std::vector<PageList> lists;
        for (int g = 0; g < w.num_page_groups && lock.tokens > 0; ++g) {
          PageList& list = lists.emplace_back(w.pools[g]);
          for (std::int32_t page : lock.pages[g]) list.append_shared(page);
        }
        if (held.size() < 2) held.emplace_back(std::move(lock), std::move(lists));
      }
      if (between(0, 4) == 0) held.clear();
      if (between(0, 60) == 0) {
        if (plenty) held.clear();  // so that no lock survives, and the list is empty too
        w.cache->flush();
        if (w.cache->stats().nodes == 0) inserted.clear();
      }
      w.cache->check_invariants();
    }
    EXPECT_GT(hits, 0) << "seed " << seed;
    held.clear();
    w.cache->flush();
    for (const PageAllocator& pool : w.pools) EXPECT_EQ(pool.num_free(), pool.num_pages());
  }
}

using Runs = std::vector<std::pair<std::int64_t, std::uint64_t>>;

Runs runs_of(const PrefixLookup& found) {
  Runs out;
  for (const PrefixLookup::Run& run : found.runs) out.emplace_back(run.tokens, run.request);
  return out;
}

TEST(RadixLookup, NamesTheOriginOfEachRunAndWhereThePromptDiverges) {
  World w = full(32);
  ASSERT_TRUE(w.insert(range(0, 10), 0, true, 7));
  Tokens longer = range(0, 8);  // goes on otherwise behind the second page
  longer.insert(longer.end(), {50, 51, 52, 53, 54});
  ASSERT_TRUE(w.insert(longer, 0, true, 8));

  Tokens prompt = longer;
  prompt.resize(11);
  prompt.insert(prompt.end(), {90, 91});
  PrefixLookup found = w.cache->look_up(0, prompt, 12);
  EXPECT_EQ(runs_of(found), (Runs{{8, 7}, {3, 8}}));
  EXPECT_EQ(found.common_tokens, 11);
  EXPECT_EQ(found.usable_tokens, 11);
  EXPECT_EQ(found.other_tokens, (Tokens{53, 54}));
  EXPECT_EQ(found.other_request, 8u);

  // The cache ends where the prompt goes on, and the other way round.
  found = w.cache->look_up(0, range(0, 20), 19);
  EXPECT_EQ(runs_of(found), (Runs{{10, 7}}));
  EXPECT_TRUE(found.other_tokens.empty());
  found = w.cache->look_up(0, range(0, 9), 8);
  EXPECT_EQ(found.common_tokens, 9);
  EXPECT_EQ(found.usable_tokens, 8);
  EXPECT_TRUE(found.other_tokens.empty());

  // From the first token on, and at the end of a node: what was used last goes on there.
  found = w.cache->look_up(0, Tokens{99}, 0);
  EXPECT_TRUE(found.runs.empty());
  EXPECT_EQ(found.other_tokens.front(), 0);
  Tokens third = range(0, 8);
  third.push_back(99);
  EXPECT_EQ(w.cache->look_up(0, third, 8).other_request, 8u);
  w.match(range(0, 10));
  EXPECT_EQ(w.cache->look_up(0, third, 8).other_request, 7u);

  // Another namespace has nothing.
  EXPECT_TRUE(w.cache->look_up(1, prompt, 12).runs.empty());
  w.cache->check_invariants();
}

TEST(RadixLookup, SaysWhatAStateOrAWindowKeepsFromReuse) {
  World states({{"full", Retention::kFull, 0, 32}, {"state", Retention::kState, 0, 8}});
  ASSERT_TRUE(states.insert(range(0, 8), 0, false, 3));
  PrefixLookup found = states.cache->look_up(0, range(0, 12), 11);
  EXPECT_EQ(found.common_tokens, 8);
  EXPECT_EQ(found.usable_tokens, 0);
  ASSERT_TRUE(states.insert(range(0, 8), 0, true, 4));
  found = states.cache->look_up(0, range(0, 12), 11);
  EXPECT_EQ(found.usable_tokens, 8);
  EXPECT_EQ(runs_of(found), (Runs{{8, 3}}));  // the tokens were there before

  World window({{"full", Retention::kFull, 0, 32}, {"window", Retention::kWindow, 4, 32}});
  ASSERT_TRUE(window.insert(range(0, 16), 0, true, 5));
  found = window.cache->look_up(0, range(0, 8), 7);
  EXPECT_EQ(found.common_tokens, 8);
  EXPECT_EQ(found.usable_tokens, 0);  // the window left the pages before its own
}

TEST(RadixLookup, BoundsWhatItShowsAndMovesNothing) {
  World w = full(64);
  ASSERT_TRUE(w.insert(range(0, 200), 0, true, 1));
  Tokens prompt = range(0, 5);
  prompt.push_back(999);
  const PrefixLookup found = w.cache->look_up(0, prompt, 100);
  EXPECT_EQ(found.other_tokens, range(5, PrefixLookup::kMaxOtherTokens));
  EXPECT_EQ(w.cache->stats().nodes, 1);  // nothing was split
}

}  // namespace
}  // namespace sluice
