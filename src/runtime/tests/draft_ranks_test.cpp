// Drafts of ranks that share a target: each rank makes the drafts that one rank would make, whether
// they share the draft too or have it whole.
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "distributed/testing/in_process.h"
#include "runtime/testing/draft_sequence.h"

namespace sluice {
namespace {

using namespace draft_test;
using testing::InProcessCommunicator;
using testing::InProcessGroup;

// A target, and what drafts for it; without a path its own layer.
struct Pair {
  fs::path model, draft;
};

// What a rank made of a prompt and some steps.
struct Made {
  std::vector<Tokens> drafts, parents;  // of each step
  Tokens known;
  std::int64_t weight_bytes = 0;
  int num_sums = 0;
};

// `as_rows`: as a GPU computes drafts. Then some steps want none, and what the draft leaves out
// comes before its next run.
Made make(const Pair& pair, const TreeSize& tree, bool as_rows, const RankOfDraft& rank) {
  Sequence sequence(pair.model, pair.draft, as_rows, tree, rank);
  BatchResult last = sequence.prefill(prompt_of(70), 29);
  Made made;
  for (int step = 0; step < 8; ++step) {
    made.drafts.push_back(drafts_of(last));
    made.parents.push_back(last.draft_parents);
    last = tree.topk > 1 ? sequence.verify_tree(made.drafts.back(), made.parents.back())
                         : sequence.verify(made.drafts.back(), as_rows && step % 3 == 1 ? 0 : -1);
  }
  made.known = sequence.known();
  made.weight_bytes = sequence.weight_bytes;
  return made;
}

std::array<Made, 2> make_on_two(const Pair& pair, const TreeSize& tree, bool as_rows,
                                bool is_whole) {
  InProcessGroup group(2);
  std::array<Made, 2> made;
  std::array<std::thread, 2> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads[static_cast<std::size_t>(rank)] = std::thread([&, rank] {
      InProcessCommunicator communicator(group, rank);
      Made& own = made[static_cast<std::size_t>(rank)];
      own = make(pair, tree, as_rows, {&communicator, is_whole});
      own.num_sums = communicator.num_sums;
    });
  for (std::thread& thread : threads) thread.join();
  return made;
}

void expect_drafts_of_one_rank(const Pair& pair, const TreeSize& tree, bool as_rows) {
  SCOPED_TRACE(pair.model.string() + ", " + pair.draft.string() + (as_rows ? ", as rows" : ""));
  const Made alone = make(pair, tree, as_rows, {});
  int num_without = 0;
  for (const Tokens& drafts : alone.drafts) {
    num_without += drafts.empty();
    EXPECT_EQ(drafts.size(), drafts.empty() ? 0 : static_cast<std::size_t>(tree.max_drafts));
  }
  EXPECT_EQ(num_without, as_rows && tree.topk == 1 ? 2 : 0);
  int sums_of_shares = 0;
  std::int64_t bytes_of_shares = 0;
  for (const bool is_whole : {false, true}) {
    if (is_whole && pair.draft.empty()) continue;  // a layer of the target is shared as it is
    const std::array<Made, 2> both = make_on_two(pair, tree, as_rows, is_whole);
    for (const Made& made : both) {
      EXPECT_EQ(made.known, alone.known);
      EXPECT_EQ(made.drafts, alone.drafts);
      EXPECT_EQ(made.parents, alone.parents);
      EXPECT_LT(made.weight_bytes, alone.weight_bytes);
    }
    EXPECT_EQ(both[0].num_sums, both[1].num_sums);
    if (!is_whole) {
      sums_of_shares = both[0].num_sums;
      bytes_of_shares = both[0].weight_bytes;
    } else {
      EXPECT_LT(both[0].num_sums, sums_of_shares);
      EXPECT_GT(both[0].weight_bytes, bytes_of_shares);
    }
  }
}

void expect_drafts_of_one_rank(const Pair& pair, const TreeSize& tree = {}) {
  for (const bool as_rows : {false, true}) expect_drafts_of_one_rank(pair, tree, as_rows);
}

TEST(DraftRanks, LayersAndModelsDraftWhatOneRankDrafts) {
  for (const char* model : {"deepseek-v3", "glm-moe-dsa", "mimo"})
    expect_drafts_of_one_rank({own(model), {}});
  expect_drafts_of_one_rank({own("qwen3-moe"), own("llama-llama3-tied")});
  expect_drafts_of_one_rank({own("mistral-swa"), own("deepseek-v2-lite")});
}

TEST(DraftRanks, TreesAreThoseOfOneRank) {
  const TreeSize tree{.topk = 3, .steps = 3, .max_drafts = 11};
  expect_drafts_of_one_rank({own("deepseek-v3"), {}}, tree);
  expect_drafts_of_one_rank({own("qwen3-moe"), own("llama-llama3-tied")}, tree);
}

// Heads lie beside the repository on machines of developers. They take the embedding and the head
// of a target whose vocabulary is shared, or have their own.
TEST(DraftRanks, HeadsDraftWhatOneRankDrafts) {
  if (!fs::exists(recorded())) GTEST_SKIP() << recorded() << " is not there";
  for (const auto& [model, head] : {std::pair{"../models/llama-plain", "eagle-llama"},
                                    std::pair{"../models/llama-llama3-tied", "eagle-llama-nobias"},
                                    std::pair{"targets/llama-8l", "eagle3-llama"},
                                    std::pair{"../models/llama-plain", "eagle3-no-aux"},
                                    std::pair{"../models/glm-moe-dsa-pattern", "eagle3-mla"},
                                    std::pair{"targets/qwen3-7l", "dflash-qwen3"}})
    expect_drafts_of_one_rank({recorded() / model, recorded() / "families" / head});
}

}  // namespace
}  // namespace sluice
