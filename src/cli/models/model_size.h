// What a model of a given configuration weighs and keeps, by arithmetic: nothing is read but
// config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "attention/kv_pool.h"
#include "checkpoint/weight_source.h"
#include "config/model_config.h"
#include "models/decoder_spec.h"
#include "models/wrapped_names.h"

namespace sluice {

// Parameters of one kind. Matrices take the weights' type; vectors and the router are float32 in
// memory.
struct WeightCount {
  std::string_view name;
  std::int64_t matrices = 0;
  std::int64_t floats = 0;
  // Of `matrices`: those that a quantised checkpoint leaves plain, and those that no form is for.
  std::int64_t plain = 0;
  // Of `plain`: those that prefill of expanded latents has a second time (MlaOptions::expandable).
  std::int64_t expanded = 0;

  std::int64_t total() const { return matrices + floats; }
};

// A quantised checkpoint, as far as its matrices tell whether they stay plain
// (WeightSource::leaves_plain): its files, or without any the lists of its configuration.
struct StoredMatrices {
  explicit StoredMatrices(WeightSource from)
      : source(std::move(from)), wrapped(find_wrapped_names(source.names())) {}

  WeightSource source;
  std::optional<WrappedNames> wrapped;  // of files
};

struct ModelSize {
  WeightCount embedding{"embedding"}, head{"head"}, attention{"attention"}, indexer{"indexer"},
      dense_mlp{"dense MLPs"}, router{"routers"}, experts{"routed experts"},
      shared_experts{"shared experts"}, norms{"norms"};
  int num_moe_layers = 0;

  std::vector<WeightCount> parts() const;  // those that are not empty
  void add(const ModelSize& other);
  std::int64_t matrices() const;
  std::int64_t floats() const;
  std::int64_t parameters() const { return matrices() + floats(); }
  // Bytes in memory with so many bits for an element of a matrix.
  std::int64_t bytes(double matrix_bits) const;
};

// Equal to what the checkpoint holds, without layers for next-token prediction. `stored` tells
// which matrices of linear layers and experts a checkpoint leaves plain; null: none.
ModelSize model_size(const ModelConfig& config, const StoredMatrices* stored = nullptr);
// Of one layer alone, and of embedding, head and last norm alone.
ModelSize layer_size(const ModelConfig& config, int layer, const StoredMatrices* stored = nullptr);
ModelSize ends_size(const ModelConfig& config);
// What a decoder of any family calls its matrices, recurrent ones included.
DecoderSpec names_of(const ModelConfig& config);

// Experts of one layer that `tokens` tokens choose in the mean when every choice is as likely: what
// a step reads.
double expected_experts(const MoeConfig& moe, int tokens);

// Bits that an element of a linear layer or an expert takes, scales and padding included, in a
// model of `weight_bytes` in memory. `embedding_bits`: of the embedding where the head is a matrix
// of its own; else it is the head.
double product_bits(const ModelConfig& config, double weight_bytes, double embedding_bits);

// Bytes of weights that a decode step of `tokens` sequences reads, of the same model: all but the
// embedding (of which a row each) where the head is a matrix of its own, and of the routed experts
// those that are chosen.
double weight_bytes_read(const ModelConfig& config, int tokens, double weight_bytes,
                         double embedding_bits);

// What the model keeps for each token, as the models declare it (Model::kv_groups).
// `index`: the type of index keys (attention/kv_pool.h), where there are any and it is not `dtype`.
std::vector<PageGroupSpec> kv_page_groups(const ModelConfig& config, DType dtype,
                                          std::optional<DType> index = {});
std::int64_t kv_bytes_per_token(const std::vector<PageGroupSpec>& groups);
// Of these, bytes that are kept within windows and chunks alone.
std::int64_t window_bytes_per_token(const std::vector<PageGroupSpec>& groups);
// Of the state that recurrent layers keep for a sequence; 0 without any.
std::int64_t state_bytes(const std::vector<PageGroupSpec>& groups);
// Bytes of KV that one decode step of a sequence with `length` tokens reads: sparse attention reads
// the chosen rows and all index keys; layers with a window read that.
std::int64_t kv_bytes_read(const ModelConfig& config, DType dtype, std::int64_t length);

// Multiply-adds times two of one prompt's prefill, attention over its own tokens included; the head
// sees one token, and so does all of the last layer but what makes keys, values and states.
double prefill_operations(const ModelConfig& config, std::int64_t length);

}  // namespace sluice
