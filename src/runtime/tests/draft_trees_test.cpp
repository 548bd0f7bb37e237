// Trees of drafts equal recorded ones, and a step computes their nodes as plain decoding does.
#include "runtime/drafts/draft_trees.h"

#include "base/error.h"
#include "base/testing/source_dir.h"
#include "runtime/testing/draft_sequence.h"
#include "speculative/draft_tree.h"

namespace sluice {
namespace {

using namespace draft_test;

Tokens parents_of(const BatchResult& result) {
  const auto parents = result.draft_parents_of(0);
  return {parents.begin(), parents.end()};
}

// Rows of a tree without the known one.
Tokens behind_first(const Json& rows) {
  Tokens all = rows;
  all.erase(all.begin());
  return all;
}

// The texts of all nodes, in an order of their own: a result has the best nodes first, a record has
// the smallest numbers first.
std::vector<Tokens> texts_of(const Tokens& drafts, const Tokens& parents) {
  std::vector<Tokens> texts = {{}};
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    texts.push_back(texts[static_cast<std::size_t>(parents[i])]);
    texts.back().push_back(drafts[i]);
  }
  std::ranges::sort(texts);
  return texts;
}

// Greedy decoding with trees brings what it brings without them, over the ends of pages.
void expect_plain_tokens(const fs::path& model, const fs::path& draft, bool as_rows) {
  SCOPED_TRACE(model.string() + ", " + draft.string());
  Sequence plain(model, draft),
      trees(model, draft, as_rows, {.topk = 3, .steps = 3, .max_drafts = 9});
  plain.prefill(prompt_of(50), 1000);
  BatchResult result = trees.prefill(prompt_of(50), 17);
  EXPECT_EQ(drafts_of(result).size(), 9u);
  while (plain.known().size() < 150) plain.verify({});
  while (trees.known().size() < 140) {
    // The first drafts of every third step are made right, so that paths of all branches are.
    Tokens drafts = drafts_of(result), parents = parents_of(result);
    const std::size_t known = trees.known().size();
    if (known % 3 != 0) {
      const std::size_t first = known % drafts.size();
      std::size_t node = first, at = known;
      std::vector<std::size_t> path;
      for (;; node = static_cast<std::size_t>(parents[node]) - 1) {
        path.insert(path.begin(), node);
        if (parents[node] == 0) break;
      }
      for (const std::size_t one : path) {
        const std::int32_t token = plain.known()[at++];
        for (std::size_t i = 0; i < drafts.size(); ++i)
          if (parents[i] == parents[one] && drafts[i] == token) drafts[i] = drafts[one];
        drafts[one] = token;
      }
      result = trees.verify_tree(drafts, parents);
      ASSERT_GE(result.tokens.size(), path.size() + 1);
    } else {
      result = trees.verify_tree(drafts, parents);
    }
    ASSERT_FALSE(result.tokens.empty());
    ASSERT_EQ(trees.known(),
              Tokens(plain.known().begin(),
                     plain.known().begin() + static_cast<std::ptrdiff_t>(trees.known().size())));
  }
}

TEST(DraftTrees, BringThePlainTokens) {
  for (const bool as_rows : {false, true}) {
    for (const char* model : {"deepseek-v3", "deepseek-v32", "glm-moe-dsa", "mimo"})
      expect_plain_tokens(own(model), {}, as_rows);
    expect_plain_tokens(own("qwen3-moe"), own("llama-llama3-tied"), as_rows);
    expect_plain_tokens(own("mistral-swa"), own("deepseek-v2-lite"), as_rows);
  }
}

TEST(DraftTrees, ADraftOfFewerTokensIsRefused) {
  EXPECT_THROW(Sequence(own("deepseek-v3"), {}, false, {.topk = 321, .steps = 2, .max_drafts = 9}),
               Error);
}

// What a tree's parents say of its nodes, and which nodes count.
void expect_arrays(const Json& tree) {
  const Tokens tokens = tree["draft_tokens"], parents = tree["parent"];
  const TreeArrays arrays = arrays_of(parents, tree["seq_len"]);
  EXPECT_EQ(arrays.positions, tree["positions"].get<Tokens>());
  EXPECT_EQ(arrays.first_child, tree["retrieve_next_token"].get<Tokens>());
  EXPECT_EQ(arrays.next_sibling, tree["retrieve_next_sibling"].get<Tokens>());
  for (std::size_t i = 0; i < tokens.size(); ++i)
    EXPECT_EQ(std::to_string(arrays.visible[i]), tree["mask_bits"][i].get<std::string>());
  EXPECT_EQ(verify_greedy(arrays, tokens, tree["target_argmax"].get<Tokens>()),
            tree["accepted_nodes"].get<Tokens>());
}

TEST(DraftTrees, EqualRecordedTrees) {
  if (!fs::exists(recorded())) GTEST_SKIP() << recorded() << " is not there";
  int trees = 0, nodes = 0;
  for (const auto& entry : fs::directory_iterator(recorded() / "families")) {
    const fs::path folder = entry.path();
    if (!fs::exists(folder / "golden.json")) continue;
    const Json reference = parse_json_or_throw(text_of(folder / "golden.json"), "golden.json");
    if (!reference.contains("prompts") || !reference["prompts"][0].contains("trees")) continue;
    SCOPED_TRACE(folder.filename());
    const bool is_own = reference["draft"] == "inside the target";
    const fs::path target = folder / reference["target"].get<std::string>();
    for (const Json& prompt : reference["prompts"])
      for (const Json& tree : prompt["trees"]) {
        SCOPED_TRACE(tree["after"].get<int>());
        const TreeSize size{.topk = tree["topk"],
                            .steps = tree["steps"],
                            .max_drafts = tree["num_draft_tokens"].get<int>() - 1};
        Sequence sequence(target, is_own ? fs::path() : folder, false, size);
        BatchResult result = sequence.prefill(prompt["ids"], 1000);
        for (int after = tree["after"]; after > 0; --after) result = sequence.verify({});
        ASSERT_EQ(sequence.known().size() - 1, tree["seq_len"].get<std::size_t>());
        const Tokens drafts = behind_first(tree["draft_tokens"]),
                     parents = behind_first(tree["parent"]);
        EXPECT_EQ(texts_of(drafts_of(result), parents_of(result)), texts_of(drafts, parents));
        expect_arrays(tree);
        const Tokens predicted = tree["target_argmax"];
        const std::vector<RowLogprobs> found = sequence.logprobs_behind(drafts, parents, predicted);
        ASSERT_EQ(found.size(), drafts.size() + 1);
        for (std::size_t i = 0; i < found.size(); ++i, ++nodes) {
          const Json& wanted = tree["target_logprob_and_margin"][i];
          EXPECT_NEAR(found[i].logprob, wanted[0].get<float>(), 2e-4);
          // The margin over the second token.
          ASSERT_EQ(found[i].top.size(), 2u);
          EXPECT_EQ(found[i].top[0].token, predicted[i]);
          EXPECT_NEAR(found[i].top[0].logprob - found[i].top[1].logprob, wanted[1].get<float>(),
                      4e-4);
        }
        EXPECT_EQ(sequence.verify_tree(drafts, parents).tokens, tree["emitted"].get<Tokens>());
        ++trees;
      }
  }
  EXPECT_GE(trees, 20);
  EXPECT_GE(nodes, 200);
}

// A trained head: whole runs with trees.
TEST(DraftTrees, EqualRecordedRuns) {
  if (!fs::exists(recorded())) GTEST_SKIP() << recorded() << " is not there";
  const fs::path head = recorded() / "sluice-tiny-eagle3";
  const Json reference = parse_json_or_throw(text_of(head / "golden.json"), "golden.json");
  const Json chats =
      parse_json_or_throw(text_of(recorded() / "mtp-sluice-tiny.json"), "mtp-sluice-tiny.json");
  int compared = 0, steps = 0;
  for (const Json& run : reference["prompts"]) {
    const auto chat = std::ranges::find_if(
        chats["prompts"], [&](const Json& one) { return one["record"] == run["record"]; });
    const Tokens prompt = (*chat)["prompt_ids"], output = (*chat)["output_ids"];
    if (prompt.size() + output.size() > 180) continue;
    SCOPED_TRACE(run["record"].get<int>());
    Sequence sequence(fs::path(source_dir()) / "models/sluice-tiny", head, false,
                      {.topk = 4, .steps = 3, .max_drafts = 15});
    BatchResult result = sequence.prefill(prompt, 1000);
    for (const Json& step : run["tree_steps"]) {
      const Tokens drafts = drafts_of(result), parents = parents_of(result);
      if (step["min_gap"].get<double>() >= 1e-3) {
        EXPECT_EQ(texts_of(drafts, parents),
                  texts_of(behind_first(step["draft_tokens"]), behind_first(step["parent"])));
        ++compared;
      }
      ++steps;
      result = sequence.verify_tree(drafts, parents);
      const Tokens emitted = step["emitted"];
      ASSERT_GE(result.tokens.size(), emitted.size());
      EXPECT_TRUE(std::ranges::equal(emitted, std::span(result.tokens).first(emitted.size())));
    }
    const auto behind = sequence.known().begin() + static_cast<std::ptrdiff_t>(prompt.size());
    EXPECT_TRUE(std::equal(output.begin(), output.end(), behind));
  }
  EXPECT_GT(compared, 100);
  EXPECT_GT(compared, steps * 3 / 4);
}

}  // namespace
}  // namespace sluice
