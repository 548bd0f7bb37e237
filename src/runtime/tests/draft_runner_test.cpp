// Drafts of models' own layers and of draft models: the same however a sequence is cut into steps,
// and equal to recorded ones where those are there.
#include "runtime/drafts/draft_runner.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"
#include "base/json.h"
#include "base/testing/folder.h"
#include "base/testing/source_dir.h"
#include "runtime/testing/draft_sequence.h"

namespace sluice {
namespace {

using namespace draft_test;

const char* const kModels[] = {"deepseek-v3", "deepseek-v32", "glm-moe-dsa", "mimo"};

// A target, and what drafts for it; without a path its own layer.
struct Pair {
  fs::path model, draft;
};

void expect_no_difference(const Pair& pair, bool as_rows) {
  Sequence plain(pair.model, pair.draft);
  std::vector<Tokens> wanted = {drafts_of(plain.prefill(prompt_of(90), 1000))};
  for (int i = 0; i < 12; ++i) wanted.push_back(drafts_of(plain.verify({})));
  for (const Tokens& drafts : wanted) EXPECT_EQ(drafts.size(), std::size_t{kMaxDrafts});

  Sequence cut(pair.model, pair.draft, as_rows);
  EXPECT_EQ(drafts_of(cut.prefill(prompt_of(90), 17)), wanted[0]);
  // Right drafts, and some behind them that are wrong.
  for (std::size_t done = 0; done < 12;) {
    Tokens drafts;
    for (std::size_t i = 0; i < done % 4 && done + i + 1 < 12; ++i)
      drafts.push_back(plain.known()[90 + done + 1 + i]);
    drafts.push_back((plain.known()[90 + done + 1 + drafts.size()] + 1) % 200);
    const BatchResult result = cut.verify(drafts);
    done += result.tokens.size();
    ASSERT_EQ(result.tokens.size(), drafts.size());
    EXPECT_EQ(drafts_of(result), wanted[done]) << "after " << done;
  }
}

TEST(DraftRunner, DraftsDoNotDependOnHowTheStepsWereCut) {
  std::vector<Pair> pairs;
  for (const char* model : kModels) pairs.push_back({own(model), {}});
  // An ordinary model drafts for another one with as many tokens.
  pairs.push_back({own("qwen3-moe"), own("llama-llama3-tied")});
  pairs.push_back({own("mistral-swa"), own("deepseek-v2-lite")});
  for (const Pair& pair : pairs)
    for (const bool as_rows : {false, true}) {
      SCOPED_TRACE(pair.model.string() + ", " + pair.draft.string());
      expect_no_difference(pair, as_rows);
    }
}

// Longer sequences than the model was trained with: the rotations are those of the longest one.
TEST(DraftRunner, RotationsDoNotFollowTheLength) {
  const TestFolder folder;
  const fs::path model = fs::path(folder.path()) / "dynamic-mimo";
  fs::copy(own("mimo"), model);
  Json config =
      parse_json_or_throw(read_text_beneath(model, "config.json", 1 << 20).value(), "config.json");
  config["max_position_embeddings"] = 64;
  config["rope_scaling"] = {{"type", "dynamic"}, {"factor", 2.0}};
  std::ofstream(model / "config.json") << dump_json(config);
  for (const bool as_rows : {false, true}) expect_no_difference({model, {}}, as_rows);
}

// Heads lie beside the repository on machines of developers.
TEST(DraftRunner, DraftsOfHeadsDoNotDependOnHowTheStepsWereCut) {
  if (!fs::exists(recorded())) GTEST_SKIP() << recorded() << " is not there";
  for (const auto& [model, head] :
       {std::pair{"targets/llama-8l", "families/eagle3-llama"},
        std::pair{"targets/qwen3-7l", "families/eagle3-speculators-qwen3"},
        std::pair{"../models/glm-moe-dsa-shared-index", "families/eagle3-llama-for-mla"},
        std::pair{"../models/glm-moe-dsa-pattern", "families/eagle3-mla"},
        std::pair{"../models/llama-plain", "families/eagle3-no-aux"},
        std::pair{"../models/llama-llama3-tied", "families/eagle-llama-nobias"},
        std::pair{"targets/qwen3-7l", "families/dflash-qwen3"}, std::pair{"../models/glm4-moe", ""},
        std::pair{"targets/mimo", ""}}) {
    SCOPED_TRACE(head);
    const fs::path draft = *head == 0 ? fs::path() : recorded() / head;
    expect_no_difference({recorded() / model, draft}, false);
    expect_no_difference({recorded() / model, draft}, true);
  }
}

// Steps without drafts, and with fewer: what was left out is made up for.
TEST(DraftRunner, DraftsAreTheSameBehindStepsWithoutThem) {
  std::vector<Pair> pairs = {{own("deepseek-v3"), {}},
                             {own("deepseek-v32"), {}},
                             {own("mistral-swa"), own("deepseek-v2-lite")}};
  if (fs::exists(recorded()))
    pairs.push_back({recorded() / "targets/llama-8l", recorded() / "families/eagle3-llama"});
  for (const Pair& pair : pairs) {
    SCOPED_TRACE(pair.model.string() + ", " + pair.draft.string());
    Sequence all(pair.model, pair.draft), some(pair.model, pair.draft, true);
    EXPECT_EQ(drafts_of(all.prefill(prompt_of(50), 1000)),
              drafts_of(some.prefill(prompt_of(50), 1000)));
    // Over the end of the first page, and once two steps behind each other.
    for (int i = 0; i < 40; ++i) {
      const Tokens wanted = drafts_of(all.verify({}));
      const int most = i % 10 == 9 ? 2 : i == 25 || i == 26 ? -1 : 0;
      // Two such steps behind each other may overlap.
      const bool is_ahead = most == 0 && i % 10 > 1 && i != 27;
      const Tokens found = drafts_of(some.verify({}, most, is_ahead));
      const std::size_t count = most < 0 ? wanted.size() : static_cast<std::size_t>(most);
      EXPECT_EQ(found, Tokens(wanted.begin(), wanted.begin() + static_cast<std::ptrdiff_t>(count)))
          << "step " << i;
    }
  }
}

// More steps than are kept: no drafts from then on, until the sequence begins anew.
TEST(DraftRunner, ASequenceThatWentOnForLongHasNoDrafts) {
  Sequence sequence(own("deepseek-v3"));
  sequence.prefill(prompt_of(10), 1000);
  for (int i = 0; i < 205; ++i) EXPECT_TRUE(drafts_of(sequence.verify({}, 0)).empty());
  EXPECT_TRUE(drafts_of(sequence.verify({})).empty());
  EXPECT_TRUE(drafts_of(sequence.verify({})).empty());
  EXPECT_EQ(drafts_of(sequence.prefill(prompt_of(10), 1000)).size(), std::size_t{kMaxDrafts});
}

// The sequence has four pages: at their end no slot is left for drafts but the first, which needs
// none.
TEST(DraftRunner, DraftsEndWithThePages) {
  Sequence sequence(own("deepseek-v3"));
  EXPECT_EQ(drafts_of(sequence.prefill(prompt_of(253), 100)).size(), std::size_t{kMaxDrafts});
  EXPECT_EQ(drafts_of(sequence.verify({})).size(), 3u);
  EXPECT_EQ(drafts_of(sequence.verify({})).size(), 2u);
  EXPECT_EQ(drafts_of(sequence.verify({})).size(), 1u);
}

// A block ends where the pages do, and needs two rows.
TEST(DraftRunner, BlocksEndWithThePages) {
  if (!fs::exists(recorded())) GTEST_SKIP() << recorded() << " is not there";
  Sequence sequence(recorded() / "targets/qwen3-7l", recorded() / "families/dflash-qwen3");
  EXPECT_EQ(drafts_of(sequence.prefill(prompt_of(251), 100)).size(), std::size_t{kMaxDrafts});
  EXPECT_EQ(drafts_of(sequence.verify({})).size(), 3u);
  EXPECT_EQ(drafts_of(sequence.verify({}, 1)).size(), 1u);
  EXPECT_EQ(drafts_of(sequence.verify({})).size(), 1u);
  EXPECT_EQ(drafts_of(sequence.verify({})).size(), 0u);
}

// A recurrent target, whose state behind the last right row goes on.
TEST(DraftRunner, DraftsOfARecurrentModelDoNotDependOnHowTheStepsWereCut) {
  if (!fs::exists(recorded())) GTEST_SKIP() << recorded() << " is not there";
  const TestCheckpoint checkpoint(recorded() / "../models/qwen3-next",
                                  recorded() / "families/mtp-qwen3-next", true);
  expect_no_difference({checkpoint.path, {}}, false);
}

TEST(DraftRunner, DraftsOfQwen35DoNotDependOnHowTheStepsWereCut) {
  for (const std::string name : {"qwen3-5", "qwen3-5-moe"}) {
    SCOPED_TRACE(name);
    const TestCheckpoint checkpoint(
        fs::path(SLUICE_MORE_MODELS) / name,
        fs::path(source_dir()) / "tests/golden/speculation" / ("mtp-" + name), true);
    expect_no_difference({checkpoint.path, {}}, false);
  }
}

TEST(DraftRunner, EqualsRecordedDrafts) {
  if (!fs::exists(recorded())) GTEST_SKIP() << recorded() << " is not there";
  int compared = 0;
  for (const char* family :
       {"mtp-deepseek-v3", "mtp-deepseek-v32", "mtp-glm-moe-dsa", "eagle3-llama",
        "eagle3-llama-nested-ids", "eagle3-qwen3", "eagle3-speculators-qwen3", "eagle3-gpt-oss",
        "eagle3-no-aux", "eagle3-llama-for-mla", "eagle3-mla", "standalone-llama", "eagle-llama",
        "eagle-llama-nobias", "mtp-glm4-moe", "mtp-ernie", "mtp-mimo", "mtp-qwen3-next",
        "dflash-qwen3"}) {
    SCOPED_TRACE(family);
    const fs::path folder = recorded() / "families" / family;
    const Json reference = parse_json_or_throw(text_of(folder / "golden.json"), family);
    const bool has_index = fs::exists(folder / "model.safetensors.index.json");
    const bool is_own = has_index || reference["draft"] == "inside the target";
    const TestCheckpoint checkpoint(folder / reference["target"].get<std::string>(), folder,
                                    has_index);
    Sequence sequence(checkpoint.path, is_own ? fs::path() : folder);
    for (const Json& prompt : reference["prompts"]) {
      const Tokens greedy = prompt["greedy"];
      BatchResult result = sequence.prefill(prompt["ids"], 1000);
      for (const Json& recorded : prompt["drafts"]) {
        const auto after = recorded["after"].get<std::size_t>();
        ASSERT_EQ(result.tokens, Tokens{greedy[after]});
        Tokens drafts = drafts_of(result), wanted = recorded["tokens"];
        const auto sure = recorded["sure"].get<std::size_t>();
        ASSERT_EQ(drafts.size(), wanted.size());
        drafts.resize(sure);
        wanted.resize(sure);
        EXPECT_EQ(drafts, wanted) << "after " << after;
        compared += static_cast<int>(sure);
        result = sequence.verify({});
      }
    }
  }
  EXPECT_GT(compared, 2000);
}

}  // namespace
}  // namespace sluice
