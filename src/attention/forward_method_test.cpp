#include "attention/forward_method.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice {
namespace {

using enum AttnForwardMethod;

struct Row {
  std::string what;
  MlaInputs inputs;
  AttnForwardMethod expected;
};

// An extend segment of a dense MLA model in the automatic mode; the cases below change one input
// each.
MlaInputs extend(std::int64_t prefix, std::int64_t total) {
  MlaInputs inputs;
  inputs.prefill = MlaPrefill::kAuto;
  inputs.mode = ForwardMode::kExtend;
  inputs.sum_prefix = prefix;
  inputs.sum_seq = total;
  inputs.max_seq = total;
  inputs.chunk_capacity = 16384;
  inputs.chunked_prefix_threshold = 8192;
  return inputs;
}

template <class Change>
MlaInputs with(MlaInputs inputs, Change change) {
  change(inputs);
  return inputs;
}

MlaInputs sparse(std::int64_t total, ForwardMode mode = ForwardMode::kExtend) {
  return with(extend(0, total), [&](MlaInputs& f) {
    f.sparse_model = true;
    f.index_topk = 2048;
    f.mode = mode;
  });
}

TEST(AttnForwardMethod, RowsOfTheDenseTable) {
  const std::vector<Row> rows = {
      {"no prefix, fits", extend(0, 16384), kMhaOneShot},
      {"no prefix, one token too many", extend(0, 16385), kMhaChunkedKv},
      {"short prefix", extend(1, 100), kMla},
      {"prefix just below the threshold", extend(8191, 9000), kMla},
      {"prefix at the threshold, fits", extend(8192, 9000), kMhaOneShot},
      {"prefix at the threshold, too large", extend(8192, 20000), kMhaChunkedKv},
      {"long prefix, chunked prefix disabled",
       with(extend(8192, 20000), [](MlaInputs& f) { f.chunked_prefix_enabled = false; }), kMla},
      {"no prefix, chunked prefix disabled",
       with(extend(0, 20000), [](MlaInputs& f) { f.chunked_prefix_enabled = false; }),
       kMhaChunkedKv},
      {"inside a captured graph", with(extend(0, 100), [](MlaInputs& f) { f.captured = true; }),
       kMla},
      {"deterministic", with(extend(0, 100), [](MlaInputs& f) { f.deterministic = true; }), kMla},
      {"no ragged attention",
       with(extend(0, 100), [](MlaInputs& f) { f.support.ragged_mha = false; }), kMla},
      {"no one-shot", with(extend(0, 100), [](MlaInputs& f) { f.support.one_shot = false; }),
       kMhaChunkedKv},
      {"decode", with(extend(0, 100), [](MlaInputs& f) { f.mode = ForwardMode::kDecode; }), kMla},
      {"idle", with(extend(0, 0), [](MlaInputs& f) { f.mode = ForwardMode::kIdle; }), kMla},
  };
  for (const Row& row : rows)
    EXPECT_EQ(choose_attn_forward_method(row.inputs), row.expected) << row.what;
}

TEST(AttnForwardMethod, RowsOfTheSparseTable) {
  const std::vector<Row> rows = {
      {"every key would be selected", sparse(2048), kMhaOneShot},
      {"one key more", sparse(2049), kMlaSparse},
      {"decode", sparse(100, ForwardMode::kDecode), kMlaSparse},
      {"idle", sparse(0, ForwardMode::kIdle), kMlaSparse},
      {"a short prefix is allowed", with(sparse(2000), [](MlaInputs& f) { f.sum_prefix = 10; }),
       kMhaOneShot},
      {"many short sequences over the capacity",
       with(sparse(2000), [](MlaInputs& f) { f.sum_seq = 16385; }), kMlaSparse},
      {"quantised latents", with(sparse(100), [](MlaInputs& f) { f.kv_quantized = true; }),
       kMlaSparse},
      {"no dense kernel",
       with(sparse(100), [](MlaInputs& f) { f.support.dense_mha_for_dsa = false; }), kMlaSparse},
      {"deterministic", with(sparse(100), [](MlaInputs& f) { f.deterministic = true; }),
       kMlaSparse},
  };
  for (const Row& row : rows)
    EXPECT_EQ(choose_attn_forward_method(row.inputs), row.expected) << row.what;
}

TEST(AttnForwardMethod, AbsorbIgnoresEveryPropertyOfTheBatch) {
  for (const bool is_sparse : {false, true})
    for (const std::int64_t prefix : {0, 1, 9000})
      for (const std::int64_t total : {1, 100, 30000})
        for (const ForwardMode mode :
             {ForwardMode::kExtend, ForwardMode::kDecode, ForwardMode::kMixed}) {
          MlaInputs inputs = extend(prefix, total);
          inputs.prefill = MlaPrefill::kAbsorb;
          inputs.mode = mode;
          inputs.sparse_model = is_sparse;
          inputs.index_topk = 2048;
          EXPECT_EQ(choose_attn_forward_method(inputs), is_sparse ? kMlaSparse : kMla);
        }
}

}  // namespace
}  // namespace sluice
