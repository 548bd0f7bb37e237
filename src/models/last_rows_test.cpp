// The last layer leaves out rows whose logits are not requested. The other rows keep their bits,
// and so do later steps.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <random>

#include "models/testing/driver.h"
#include "models/testing/golden_support.h"

namespace sluice::testing {
namespace {

// Two prompts in chunks, a sequence that decodes beside them, and later steps.
constexpr int kFirstPrompt = 97, kSecondPrompt = 70;

struct Case {
  std::string name;
  DType compute = DType::kF32;
  std::optional<ops::Format> quantization = {};
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.name << " " << dtype_name(c.compute);
}

std::vector<int> random_ids(int count, int vocab_size, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int> ids(static_cast<std::size_t>(count));
  for (int& id : ids) id = static_cast<int>(random() % static_cast<unsigned>(vocab_size));
  return ids;
}

std::vector<int> part(const std::vector<int>& ids, int begin, int end) {
  return {ids.begin() + begin, ids.begin() + end};
}

class LastRows : public ::testing::TestWithParam<Case> {
 protected:
  LastRows() {
    options_.numerics.compute = GetParam().compute;
    options_.numerics.quantization = GetParam().quantization;
    options_.max_tokens = 1024;
    options_.threads = 2;
  }
  std::string directory() const {
    const std::string bundled = golden_models() + GetParam().name;
    return std::filesystem::exists(bundled) ? bundled
                                            : std::string(SLUICE_MORE_MODELS "/") + GetParam().name;
  }

  DriverOptions options_;
};

// Runs the same steps on both drivers. Compares those rows of the second driver that the first one
// computes.
class Pair {
 public:
  Pair(const std::string& directory, const DriverOptions& options)
      : some_(directory, options), all_(directory, options) {}

  void step(const std::vector<DriverItem>& items) {
    std::vector<DriverItem> whole = items;
    for (DriverItem& item : whole) item.wanted.reset();
    const Rows got = some_.step(items), expected = all_.step(whole);
    std::size_t next = 0, first = 0;
    for (const DriverItem& item : items) {
      for (const int index : *item.wanted) {
        ASSERT_LT(next, got.size());
        EXPECT_EQ(got[next++], expected[first + static_cast<std::size_t>(index)])
            << "token " << index;
      }
      first += item.tokens.size();
    }
    EXPECT_EQ(got.size(), next);
  }
  int vocab_size() const { return static_cast<int>(all_.config().vocab_size); }

 private:
  TestDriver some_, all_;
};

TEST_P(LastRows, HaveTheBitsThatTheyHaveAmongAll) {
  Pair pair(directory(), options_);
  const std::vector<int> first = random_ids(kFirstPrompt, pair.vocab_size(), 1),
                         second = random_ids(kSecondPrompt, pair.vocab_size(), 2);
  pair.step({{0, part(first, 0, 40), false, {{}}}});  // no row: the prompt's end comes later
  pair.step({{0, part(first, 40, 60), false, {{}}}, {1, part(second, 0, 33), false, {{0, 7, 32}}}});
  pair.step({{0, part(first, 60, 96), false, {{35}}}, {1, part(second, 33, 34), true, {{0}}}});
  // Two adjacent rows, and all rows but one.
  pair.step({{2, part(first, 0, 30), false, {{3, 4}}}, {0, part(first, 96, 97), true, {{0}}}});
  pair.step({{1, part(second, 34, 70), false, {{1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
                                                13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24,
                                                25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35}}}});
  // The last layer stored keys, values and states of all rows: rows that decode read them.
  pair.step({{0, {5}, true, {{0}}}, {1, {9}, true, {{0}}}, {2, {3}, true, {{0}}}});
  pair.step({{0, {6}, true, {{0}}}, {1, {8}, true, {{}}}, {2, {4}, true, {{0}}}});
}

// A caller that reads more than the logits gets all rows.
TEST_P(LastRows, AreNotAllThatAReaderOfHiddenStatesGets) {
  TestDriver driver(directory(), options_);
  const int count = 21, last = driver.config().num_layers - 1;
  const std::int64_t width = driver.config().hidden_size;
  const std::vector<int> ids = random_ids(count, static_cast<int>(driver.config().vocab_size), 3);
  std::array<std::vector<float>, 4> seen;
  for (auto& rows : seen) rows.assign(static_cast<std::size_t>(count * width), -1);
  const auto tensor = [&](std::vector<float>& rows) {
    return Tensor::dense(rows.data(), DType::kF32, {count, width});
  };
  for (const bool some : {false, true})
    for (const bool aux : {false, true}) {
      std::vector<float>& rows = seen[2 * some + aux];
      DriverItem item{.sequence = 2 * some + aux, .tokens = ids, .wanted = {}};
      if (some) item.wanted = std::vector<int>{count - 1};
      driver.step({item}, {}, [&](StageIO& io) {
        if (aux) {
          io.aux_layers = {last};
          io.aux_hidden = {tensor(rows)};
        } else {
          io.final_hidden = tensor(rows);
        }
      });
    }
  EXPECT_EQ(seen[0], seen[2]);
  EXPECT_EQ(seen[1], seen[3]);
  EXPECT_NE(seen[0], seen[1]);
}

// Passes calls on, and notes how many rows have queries in each layer.
class QueryRows final : public AttentionBackend {
 public:
  QueryRows(std::unique_ptr<AttentionBackend> inner, std::vector<std::int64_t>& seen)
      : inner_(std::move(inner)), seen_(seen) {}
  std::string_view name() const override { return inner_->name(); }
  void plan(Context& ctx, const ForwardBatch& fb) override { inner_->plan(ctx, fb); }
  void mha(Context& ctx, const ForwardBatch& fb, const MhaArgs& args) override {
    note(ctx, fb, args.q);
    inner_->mha(ctx, fb, args);
  }
  void mla(Context& ctx, const ForwardBatch& fb, const MlaArgs& args) override {
    note(ctx, fb, args.q);
    inner_->mla(ctx, fb, args);
  }
  void write_index_keys(Context& ctx, const ForwardBatch& fb, int layer,
                        const Tensor& keys) override {
    inner_->write_index_keys(ctx, fb, layer, keys);
  }
  void select_keys(Context& ctx, const ForwardBatch& fb, int layer, const Tensor& q,
                   const Tensor& weights, const Tensor& indices) override {
    EXPECT_EQ(q.dim(0), fb.num_query_rows());
    inner_->select_keys(ctx, fb, layer, q, weights, indices);
  }
  Tensor state_plane(int layer, std::string_view plane) const override {
    return inner_->state_plane(layer, plane);
  }
  MethodCounts method_counts() const override { return inner_->method_counts(); }

 private:
  void note(const Context& ctx, const ForwardBatch& fb, const Tensor& q) {
    EXPECT_EQ(q.defined() ? q.dim(0) : 0, fb.num_query_rows());
    if (!ctx.dry_run) seen_.push_back(fb.num_query_rows());
  }

  std::unique_ptr<AttentionBackend> inner_;
  std::vector<std::int64_t>& seen_;
};

// One decision, in the batch that the last layer of a run sees.
TEST_P(LastRows, AreQueriesOfTheLastLayerAlone) {
  std::vector<std::int64_t> seen;
  options_.wrap = [&](std::unique_ptr<AttentionBackend> inner) {
    return std::make_unique<QueryRows>(std::move(inner), seen);
  };
  TestDriver driver(directory(), options_);
  const int count = 21, last = driver.config().num_layers - 1;
  const std::vector<int> ids = random_ids(count, static_cast<int>(driver.config().vocab_size), 3);
  for (const std::vector<int>& wanted : {std::vector<int>{}, {4, 20}}) {
    seen.clear();
    const int sequence = static_cast<int>(wanted.size());
    driver.step({{.sequence = sequence, .tokens = ids, .decode = false, .wanted = wanted}});
    const bool attends = !driver.config().layer(last).recurrent;
    for (std::size_t i = 0; i < seen.size(); ++i)
      EXPECT_EQ(seen[i], attends && i + 1 == seen.size() ? std::ssize(wanted) : count) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, LastRows,
                         ::testing::Values(Case{"qwen3"}, Case{"qwen3", DType::kBF16},
                                           Case{"qwen3", DType::kBF16, ops::Format::kInt8},
                                           Case{"llama-linear-bias-headdim"}, Case{"mistral-swa"},
                                           Case{"qwen3-moe"}, Case{"deepseek-v2-lite"},
                                           Case{"deepseek-v3-noqlora"}, Case{"deepseek-v32"},
                                           Case{"glm-moe-dsa"}, Case{"glm-moe-dsa-shared-index"},
                                           Case{"glm-moe-dsa-shared-index", DType::kBF16},
                                           Case{"gpt-neox"}, Case{"falcon-7b"}, Case{"gemma2"},
                                           Case{"cohere2"}, Case{"olmo2"}, Case{"gpt2"},
                                           Case{"gpt-oss"}, Case{"llama4-text"},
                                           Case{"ministral3-llama4scale"}, Case{"mimo-v2-flash"},
                                           Case{"stablelm-parallel-qknorm"}, Case{"qwen3-next"},
                                           Case{"qwen3-next", DType::kBF16}, Case{"kimi-linear"},
                                           Case{"mamba2"}, Case{"lfm2"}));

}  // namespace
}  // namespace sluice::testing
