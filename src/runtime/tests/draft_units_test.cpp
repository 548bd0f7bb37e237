// What drafts compute equals recorded numbers: log-probabilities, states that lead on, chains, and
// how many drafts are right.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "base/testing/source_dir.h"
#include "runtime/testing/draft_alone.h"

namespace sluice {
namespace {

using namespace draft_test;

// The README beside the references: float32.
constexpr float kTolerance = 2e-4F;
constexpr double kSureMargin = 1e-3;

const char* const kFamilies[] = {"dflash-qwen3",
                                 "eagle-llama",
                                 "eagle-llama-nobias",
                                 "eagle3-gpt-oss",
                                 "eagle3-llama",
                                 "eagle3-llama-for-mla",
                                 "eagle3-llama-nested-ids",
                                 "eagle3-mla",
                                 "eagle3-no-aux",
                                 "eagle3-qwen3",
                                 "eagle3-speculators-qwen3",
                                 "mtp-deepseek-v3",
                                 "mtp-deepseek-v32",
                                 "mtp-ernie",
                                 "mtp-glm-moe-dsa",
                                 "mtp-glm4-moe",
                                 "mtp-mimo",
                                 "mtp-qwen3-next",
                                 "standalone-llama"};

struct Family {
  fs::path folder;
  Json reference;
  TestCheckpoint checkpoint;
  bool is_own;

  explicit Family(const std::string& name)
      : Family(recorded() / "families" / name, recorded() / "families" / name) {}
  // `targets`: the folder in which its target's name counts.
  Family(const fs::path& path, const fs::path& targets)
      : folder(path),
        reference(parse_json_or_throw(text_of(folder / "golden.json"), path.string())),
        checkpoint(targets / reference["target"].get<std::string>(), folder, has_index()),
        is_own(has_index() || reference["draft"] == "inside the target") {}
  fs::path draft() const { return is_own ? fs::path() : folder; }

 private:
  bool has_index() const { return fs::exists(folder / "model.safetensors.index.json"); }
};

// What rows differ in from recorded ones.
struct Difference {
  float worst = 0;        // of the log-probabilities
  bool is_wrong = false;  // a token that is sure is another one
  int compared = 0;       // rows

  // `sure`: the lead over the second token that no order of sums takes back.
  void add(const DraftAlone& draft, std::span<const float> logits, const Json& top_ids,
           const Json& top_logprobs, std::int32_t token, double sure) {
    const Floats found = log_softmax(logits);
    for (std::size_t i = 0; i < top_ids.size(); ++i) {
      const int row = draft.row_of(top_ids[i]);
      is_wrong = is_wrong || row < 0;
      if (row < 0) continue;
      const float difference =
          std::abs(found[static_cast<std::size_t>(row)] - top_logprobs[i].get<float>());
      worst = std::max(worst, std::isnan(difference) ? INFINITY : difference);
    }
    const bool is_sure = top_logprobs[0].get<double>() - top_logprobs[1].get<double>() > sure;
    is_wrong = is_wrong || (is_sure && draft.best_of(logits) != token);
    ++compared;
  }
  bool is_within(float bound) const { return worst <= bound && !is_wrong; }
};

// A chain behind the last filled slot, at `last`, whose logits are there; of a block all are.
// Rows behind a token that is not the recorded one are not compared.
struct Chain {
  Tokens tokens;
  Difference difference;
};
Chain chain_behind(DraftAlone& draft, std::vector<Floats> logits, int last, const Json& chain,
                   double sure) {
  const Tokens wanted = chain["tokens"];
  Chain out;
  for (std::size_t d = 0; d < wanted.size(); ++d) {
    const Floats& row = logits[draft.shape().block_size > 0 ? d : 0];
    const bool agrees = std::ranges::equal(out.tokens, std::span(wanted).first(d));
    if (agrees || draft.shape().block_size > 0)
      out.difference.add(draft, row, chain["top5_ids"][d], chain["top5_logprobs"][d], wanted[d],
                         sure);
    out.tokens.push_back(draft.best_of(row));
    if (draft.shape().block_size == 0 && d + 1 < wanted.size())
      logits = draft.fill_slots(last + 1 + static_cast<int>(d), {out.tokens.back()}, {}, {0});
  }
  return out;
}

void expect_near(const Difference& found, int fewest_rows) {
  EXPECT_LE(found.worst, kTolerance);
  EXPECT_FALSE(found.is_wrong);
  EXPECT_GE(found.compared, fewest_rows);
}

std::vector<std::size_t> all_rows(std::size_t count) {
  std::vector<std::size_t> rows(count);
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

// Given states: every slot, the state that leads on, and a chain.
void expect_unit(const Family& family) {
  const Json& unit = family.reference["unit"];
  DraftAlone draft(family.checkpoint.path, family.draft());
  Tokens tokens = unit["tokens"];
  const auto length = unit["length"].get<int>();
  Floats states;
  if (unit.contains("states_f32_b64")) {
    states = floats_of_base64(unit["states_f32_b64"].get<std::string>());
    ASSERT_EQ(unit["state_width"].get<std::int64_t>(), draft.shape().target_width);
    // The same states come from the target itself; with them the states that it keeps are right.
    ASSERT_EQ(static_cast<std::int64_t>(states.size()), length * draft.shape().target_width);
  }
  std::vector<Floats> logits;
  if (draft.shape().block_size > 0) {
    // Slots hold states alone, and the last token begins the block.
    draft.fill_slots(0, Tokens(tokens.begin(), tokens.end() - 1), states, {});
    logits = draft.run_block(length, tokens.back(), draft.shape().block_size);
    expect_near(chain_behind(draft, logits, length, unit["chain"], kSureMargin).difference, 4);
    return;
  }
  logits = draft.fill_slots(0, tokens, states, all_rows(tokens.size()));
  Difference slots;
  for (std::size_t i = 0; unit.contains("argmax") && i < tokens.size(); ++i)
    slots.add(draft, logits[i], unit["top5_ids"][i], unit["top5_logprobs"][i], unit["argmax"][i],
              kSureMargin);
  expect_near(slots, unit.contains("argmax") ? length : 0);
  const Floats last = floats_of_base64(unit["last_logits_f32_b64"].get<std::string>());
  ASSERT_EQ(last.size(), logits.back().size());
  const Floats wanted = log_softmax(last), found = log_softmax(logits.back());
  for (std::size_t i = 0; i < last.size(); ++i) {
    ASSERT_NEAR(found[i], wanted[i], kTolerance) << i;
    ASSERT_NEAR(logits.back()[i], last[i], kTolerance) << i;
  }
  if (unit.contains("fed_back_last_f32_b64")) {
    const Floats fed = floats_of_base64(unit["fed_back_last_f32_b64"].get<std::string>());
    ASSERT_EQ(static_cast<std::int64_t>(fed.size()), draft.shape().hidden_size);
    for (std::size_t i = 0; i < fed.size(); ++i)
      ASSERT_NEAR(draft.last_state()[i], fed[i], kTolerance) << i;
  }
  const int end = static_cast<int>(tokens.size()) - 1;
  expect_near(chain_behind(draft, {logits.back()}, end, unit["chain"], kSureMargin).difference, 3);
}

TEST(DraftUnits, EqualRecordedNumbers) {
  if (!fs::exists(recorded())) GTEST_SKIP() << recorded() << " is not there";
  for (const char* name : kFamilies) {
    SCOPED_TRACE(name);
    expect_unit(Family(name));
  }
}

// The chains behind tokens of a recorded answer, with the target's own states.
std::vector<Chain> chains_of(DraftAlone& draft, const Tokens& prompt, const Tokens& output,
                             const Json& recorded, double sure) {
  Tokens known = prompt;
  known.insert(known.end(), output.begin(), output.end());
  const DraftShape& shape = draft.shape();
  const auto width = static_cast<std::size_t>(shape.target_width);
  const Floats states = width > 0 ? draft.states_of(known) : Floats{};
  // Slot i holds the state of token i and token i + 1; or one of them alone.
  const bool is_block = shape.block_size > 0;
  const std::size_t shift = width > 0 && !is_block ? 1 : 0;
  std::vector<Chain> out;
  std::size_t filled = 0;
  for (const Json& chain : recorded) {
    const std::size_t last = prompt.size() + chain["after"].get<std::size_t>();
    const std::size_t end = width > 0 ? last : last + 1;
    const Tokens tokens(known.begin() + static_cast<std::ptrdiff_t>(filled + shift),
                        known.begin() + static_cast<std::ptrdiff_t>(end + shift));
    const std::span<const float> of_rows =
        std::span(states).subspan(filled * width, (end - filled) * width);
    std::vector<std::size_t> wanted;
    if (!is_block) wanted.push_back(tokens.size() - 1);
    std::vector<Floats> logits =
        draft.fill_slots(static_cast<int>(filled), tokens, of_rows, wanted);
    filled = end;
    if (is_block) logits = draft.run_block(static_cast<int>(last), known[last], shape.block_size);
    out.push_back(chain_behind(draft, std::move(logits), static_cast<int>(end) - 1, chain, sure));
  }
  return out;
}

// What verifications bring, where drafts are those of `table`.
struct Acceptance {
  std::int64_t steps = 0, accepted = 0, emitted = 0;

  double length() const { return static_cast<double>(emitted) / static_cast<double>(steps); }
  void add(const Tokens& output, const std::vector<Chain>& table, std::size_t most) {
    for (std::size_t j = 0; j + 1 < output.size();) {
      std::size_t right = 0;
      while (right < most && j + 1 + right < output.size() &&
             table[j].tokens[right] == output[j + 1 + right])
        ++right;
      const std::size_t tokens = std::min(right + 1, output.size() - 1 - j);
      ++steps;
      accepted += static_cast<std::int64_t>(std::min(right, tokens));
      emitted += static_cast<std::int64_t>(tokens);
      j += tokens;
    }
  }
};

// With the target in the loop: chains, and how many drafts are right. Returns the rows compared.
int expect_loop(const Family& family) {
  DraftAlone draft(family.checkpoint.path, family.draft());
  int compared = 0;
  for (const Json& prompt : family.reference["prompts"]) {
    const Tokens output = prompt["greedy"];
    const std::vector<Chain> table =
        chains_of(draft, prompt["ids"], output, prompt["drafts"], kSureMargin);
    for (const Chain& chain : table) {
      expect_near(chain.difference, 1);
      compared += chain.difference.compared;
    }
    for (const auto& [most, wanted] : prompt["accept"].items()) {
      Acceptance found;
      found.add(output, table, std::stoul(most));
      EXPECT_EQ(found.steps, wanted["steps"].get<std::int64_t>()) << most << " drafts";
      EXPECT_EQ(found.accepted, wanted["accepted"].get<std::int64_t>()) << most << " drafts";
      EXPECT_EQ(found.emitted, wanted["emitted"].get<std::int64_t>()) << most << " drafts";
    }
  }
  return compared;
}

TEST(DraftUnits, EqualRecordedNumbersWithTheTargetInTheLoop) {
  if (!fs::exists(recorded())) GTEST_SKIP() << recorded() << " is not there";
  int compared = 0;
  for (const char* name : kFamilies) {
    SCOPED_TRACE(name);
    compared += expect_loop(Family(name));
  }
  EXPECT_GT(compared, 3000);
}

// tests/golden/make_mtp.py says how they were made.
TEST(DraftUnits, LayersOfQwen35EqualThoseOfTransformers) {
  for (const char* name : {"mtp-qwen3-5", "mtp-qwen3-5-moe"}) {
    SCOPED_TRACE(name);
    const Family family(fs::path(source_dir()) / "tests/golden/speculation" / name,
                        SLUICE_MORE_MODELS);
    expect_unit(family);
    EXPECT_GT(expect_loop(family), 100);
  }
}

// The bundled model's own layer, or the trained head. Where prompts are longer than what its
// indexer chooses, choices of equal worth may fall either way, and move a row by more than the
// bound. With another order of sums they must fall as recorded.
void expect_chats(const fs::path& draft_path, const Json& runs, const Json& chats,
                  const char* chains, const Json& acceptance, const std::string& key,
                  double share) {
  const fs::path model = fs::path(source_dir()) / "models/sluice-tiny";
  DraftAlone draft(model, draft_path);
  std::unique_ptr<DraftAlone> other;
  std::array<Acceptance, 3> found = {};
  int compared = 0, flipped = 0;
  for (const Json& run : runs) {
    const auto chat = std::ranges::find_if(
        chats, [&](const Json& one) { return one["record"] == run["record"]; });
    const Tokens prompt = (*chat)["prompt_ids"], output = (*chat)["output_ids"];
    SCOPED_TRACE(run["record"].get<int>());
    ASSERT_LE(prompt.size() + output.size() + 3, std::size_t{DraftAlone::kMaxTokens});
    const bool is_short = prompt.size() < 256;
    const float bound = is_short ? 2e-3F : 0.02F;
    const double sure = is_short ? 0.01 : 0.05;
    const std::vector<Chain> table = chains_of(draft, prompt, output, run[chains], sure);
    for (std::size_t k = 0; k < 3; ++k) found[k].add(output, table, k + 1);
    std::vector<Chain> otherwise;
    for (std::size_t i = 0; i < table.size(); ++i) {
      compared += table[i].difference.compared;
      if (table[i].difference.is_within(bound)) continue;
      ++flipped;
      ASSERT_FALSE(is_short) << "chain " << i << ": " << table[i].difference.worst;
      if (!other) other = std::make_unique<DraftAlone>(model, draft_path, CpuIsa::kAvx2);
      if (otherwise.empty()) otherwise = chains_of(*other, prompt, output, run[chains], sure);
      EXPECT_TRUE(otherwise[i].difference.is_within(bound))
          << "chain " << i << ": " << table[i].difference.worst << " and "
          << otherwise[i].difference.worst;
    }
  }
  for (std::size_t k = 0; k < 3; ++k) {
    const Json& wanted = acceptance[key + std::to_string(k + 1)];
    EXPECT_EQ(found[k].emitted, wanted["emitted"].get<std::int64_t>());
    const double length = wanted["mean_accept_length"];
    EXPECT_NEAR(found[k].length(), length, share * length) << k + 1 << " drafts";
  }
  EXPECT_GT(compared, 2500);
  EXPECT_LE(flipped, 5);
}

TEST(DraftUnits, EqualRecordedNumbersOfTheBundledModel) {
  if (!fs::exists(recorded())) GTEST_SKIP() << recorded() << " is not there";
  const fs::path head = recorded() / "sluice-tiny-eagle3";
  const Json mtp = parse_json_or_throw(text_of(recorded() / "mtp-sluice-tiny.json"), "mtp"),
             eagle = parse_json_or_throw(text_of(head / "golden.json"), "golden.json");
  expect_chats({}, mtp["prompts"], mtp["prompts"], "drafts", mtp["acceptance"], "", 0.01);
  expect_chats(head, eagle["prompts"], mtp["prompts"], "chains", eagle["acceptance"], "chain_k",
               0.02);
}

}  // namespace
}  // namespace sluice
