#include "speculative/draft_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "base/testing/source_dir.h"
#include "batch/draft_paths.h"

namespace sluice {
namespace {

using Tokens = std::vector<std::int32_t>;
using Floats = std::vector<float>;

template <class T>
std::vector<T> flat(const Json& rows) {
  std::vector<T> out;
  for (const Json& row : rows)
    for (const Json& value : row) out.push_back(value.get<T>());
  return out;
}

Tokens rows_of(const Tokens& draft_parents) {
  Tokens rows = {-1};
  rows.insert(rows.end(), draft_parents.begin(), draft_parents.end());
  return rows;
}

TEST(DraftTree, TakesTheBestPaths) {
  DraftTreeBuilder builder(2);
  ASSERT_TRUE(builder.add_level(Floats{0.6f, 0.3f}, Tokens{7, 8}));
  // Scores .42 .12 | .27 .03
  ASSERT_TRUE(builder.add_level(Floats{0.7f, 0.2f, 0.9f, 0.1f}, Tokens{1, 2, 3, 4}));
  ASSERT_EQ(builder.frontier().size(), 2u);
  EXPECT_EQ(builder.frontier()[0].number, 2);
  EXPECT_EQ(builder.frontier()[1].number, 4);
  EXPECT_EQ(builder.frontier()[1].row, 1);
  // .21 .21 | .27 .0
  ASSERT_TRUE(builder.add_level(Floats{0.5f, 0.5f, 1, 0}, Tokens{5, 6, 9, 10}));
  const DraftTreeNodes nodes = builder.select(6);
  EXPECT_EQ(nodes.numbers, (Tokens{0, 1, 2, 4, 6, 8})) << "of .21 and .21 the smaller number";
  EXPECT_EQ(nodes.tokens, (Tokens{7, 8, 1, 3, 5, 9}));
  EXPECT_EQ(nodes.parents, (Tokens{0, 0, 1, 2, 3, 4}));
  EXPECT_EQ(builder.select(100).tokens.size(), 10u) << "all that there are";
  // Scores .6 .42 .3 .27 .27 .21
  const DraftTreeNodes best = builder.select_best_first(6);
  EXPECT_EQ(best.numbers, (Tokens{0, 2, 1, 4, 8, 6}));
  EXPECT_EQ(best.tokens, (Tokens{7, 1, 8, 3, 9, 5}));
  EXPECT_EQ(best.parents, (Tokens{0, 1, 0, 3, 4, 2}));
}

TEST(DraftTree, OfOneNodeALevelIsAChain) {
  DraftTreeBuilder builder(2);
  ASSERT_TRUE(builder.add_level(Floats{0.6f, 0.3f}, Tokens{7, 8}));
  builder.narrow(1);
  ASSERT_TRUE(builder.add_level(Floats{0.4f, 0.5f}, Tokens{1, 2}));
  ASSERT_TRUE(builder.add_level(Floats{0.1f, 0.0f}, Tokens{3, 4}));
  const DraftTreeNodes chain = builder.select_chain(9);
  EXPECT_EQ(chain.tokens, (Tokens{7, 2, 3}));
  EXPECT_EQ(chain.parents, (Tokens{0, 1, 2}));
  EXPECT_EQ(builder.select_chain(2).tokens, (Tokens{7, 2}));
}

TEST(DraftTree, TiesGoToTheSmallerNumber) {
  DraftTreeBuilder builder(3);
  ASSERT_TRUE(builder.add_level(Floats{0, 0, 0}, Tokens{1, 2, 3}));
  ASSERT_TRUE(builder.add_level(Floats(9, 0.5f), Tokens{4, 5, 6, 4, 5, 6, 4, 5, 6}));
  EXPECT_EQ(builder.frontier()[2].number, 5);
  EXPECT_EQ(builder.select(5).numbers, (Tokens{0, 1, 2, 3, 4}));
}

TEST(DraftTree, ProbabilitiesThatAreNoneEndIt) {
  for (const float wrong : {-0.1f, 1.5f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    DraftTreeBuilder builder(2);
    ASSERT_TRUE(builder.add_level(Floats{0.5f, 0.5f}, Tokens{1, 2}));
    EXPECT_FALSE(builder.add_level(Floats{0.5f, 0.5f, wrong, 0.1f}, Tokens{1, 2, 3, 4}));
    EXPECT_EQ(builder.select(9).tokens, (Tokens{1, 2}));
  }
}

TEST(DraftTree, PathsAreThoseOfTheArrays) {
  const Tokens parents = {-1, 0, 0, 1, 1, 2, 4};
  const TreeArrays arrays = arrays_of(parents, 10);
  EXPECT_EQ(arrays.positions, (Tokens{10, 11, 11, 12, 12, 12, 13}));
  EXPECT_EQ(arrays.first_child, (Tokens{1, 3, 5, -1, 6, -1, -1}));
  EXPECT_EQ(arrays.next_sibling, (Tokens{-1, 2, -1, 4, -1, -1, -1}));
  EXPECT_EQ(arrays.visible[6], 0b1010011u);
  const DraftPaths paths = paths_of(parents);
  EXPECT_EQ(paths.count, 3);
  EXPECT_EQ(paths.depth(), 3);
  EXPECT_EQ(paths.branches, (std::vector<std::uint64_t>{7, 3, 4, 1, 2, 4, 2}));
  EXPECT_EQ(paths.branch_of(6), 1);
  const Tokens tokens = {5, 1, 2, 3, 4, 3, 9};
  EXPECT_EQ(right_rows(parents, tokens, Tokens{1, 4, 8}), (Tokens{0, 1, 4}));
  EXPECT_EQ(right_rows(parents, tokens, Tokens{1, 4}), (Tokens{0, 1})) << "row 4 did not count";
  EXPECT_EQ(right_rows(parents, tokens, Tokens{7}), (Tokens{0}));
  EXPECT_EQ(right_rows(parents, tokens, Tokens{}), (Tokens{0}));
  EXPECT_EQ(verify_greedy(arrays, tokens, Tokens{1, 4, 0, 0, 7, 0, 0}), (Tokens{0, 1, 4}));
  EXPECT_THROW((void)paths_of(Tokens{-1, 2, 0}), Error);
}

TEST(DraftTree, DraftsWithoutTheirForerunnersAreNotKept) {
  Tokens tokens = {1, 2, 3, 4, 5}, parents = {0, 0, 1, 2, 4};
  keep_drafts({tokens, parents}, [&](std::size_t i) { return tokens[i] != 1; });
  EXPECT_EQ(tokens, (Tokens{2, 4, 5}));
  EXPECT_EQ(parents, (Tokens{0, 1, 2}));
}

// References lie beside the repository on machines of developers.
TEST(DraftTree, EqualsTheReferences) {
  const auto file =
      std::filesystem::path(source_dir()).parent_path() / "shared/golden/speculation/tree.json";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  const Json reference = parse_json_or_throw(text.str(), "tree.json");
  int cases = 0;
  for (const Json& one : reference["cases"]) {
    SCOPED_TRACE(one["number"].get<int>());
    const int topk = one["topk"], count = one["num_draft_tokens"].get<int>() - 1;
    EXPECT_LE(count, max_tree_drafts(topk, one["num_steps"].get<int>()));
    for (const Json& wanted : one["requests"]) {
      DraftTreeBuilder builder(topk);
      std::size_t level = 0;
      for (const Json& table : wanted["tables"]) {
        ASSERT_TRUE(builder.add_level(flat<float>(table["token_probabilities"]),
                                      flat<std::int32_t>(table["token_ids"])));
        if (level++ == 0) continue;  // whose frontier is the table
        const Tokens flats = wanted["frontier_flat"][level - 2];
        const int first = topk + topk * topk * (static_cast<int>(level) - 2);
        ASSERT_EQ(builder.frontier().size(), flats.size());
        for (std::size_t i = 0; i < flats.size(); ++i)
          EXPECT_EQ(builder.frontier()[i].number, first + flats[i]);
      }
      // The first nodes of the best ones are the best tree of so many.
      const DraftTreeNodes best = builder.select_best_first(count);
      for (int some = 1; some <= count; ++some) {
        Tokens numbers(best.numbers.begin(), best.numbers.begin() + some);
        std::ranges::sort(numbers);
        EXPECT_EQ(numbers, builder.select(some).numbers);
      }
      const DraftTreeNodes nodes = builder.select(count);
      EXPECT_EQ(nodes.numbers, wanted["selected"].get<Tokens>());
      Tokens tokens = {wanted["last_token"].get<std::int32_t>()};
      tokens.insert(tokens.end(), nodes.tokens.begin(), nodes.tokens.end());
      EXPECT_EQ(tokens, wanted["draft_tokens"].get<Tokens>());
      const Tokens parents = rows_of(nodes.parents);
      EXPECT_EQ(parents, wanted["parent"].get<Tokens>());
      const TreeArrays arrays = arrays_of(parents, wanted["seq_len"]);
      EXPECT_EQ(arrays.positions, wanted["positions"].get<Tokens>());
      EXPECT_EQ(arrays.first_child, wanted["retrieve_next_token"].get<Tokens>());
      EXPECT_EQ(arrays.next_sibling, wanted["retrieve_next_sibling"].get<Tokens>());
      for (std::size_t i = 0; i < tokens.size(); ++i)
        EXPECT_EQ(std::to_string(arrays.visible[i]), wanted["mask_bits"][i].get<std::string>());
      const Json& verdict = wanted["verify_greedy"];
      const Tokens predictions = verdict["target_predict"];
      const Tokens right = verify_greedy(arrays, tokens, predictions);
      EXPECT_EQ(right, verdict["accepted_nodes"].get<Tokens>());
      Tokens emitted;
      for (const std::int32_t node : right)
        emitted.push_back(predictions[static_cast<std::size_t>(node)]);
      EXPECT_EQ(emitted, verdict["emitted"].get<Tokens>());
      EXPECT_EQ(right_rows(parents, tokens, emitted), right);
      ++cases;
    }
  }
  EXPECT_GE(cases, 200);
}

}  // namespace
}  // namespace sluice
