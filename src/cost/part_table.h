// The kinds of parts that models are made of: which matrices a part has, who shares them, and which
// kernels a step runs. Memory and time both follow from these rows.
//
// A new kind of layer is a row here. Nothing else knows about kinds.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "cost/kernel_cost.h"
#include "cost/mix.h"

namespace sluice {

// Shares of the matrices of a layer that stay plain where linear layers have a form.
struct PlainShares {
  double attention = 0, indexer = 0, mlp = 0, shared_experts = 0, experts = 0;
};

// Bits of one element, scales included, of each kind of stored tensor.
struct StoredTypes {
  double linear_bits = 16;
  double expert_bits = 16;
  double head_bits = 16;
  double embedding_bits = 16;
  double kv_bits = 16;                  // of keys, values and latents
  double index_bits = 16;               // of index keys
  double plain_bits = 16;               // of linear layers and experts that stay plain
  std::vector<PlainShares> plain = {};  // by layer; empty: none stays plain
  bool is_fp8 = false;  // linear layers and experts of less than 16 bits are multiplied in FP8
};

// Who has a part of a matrix.
enum class Sharing {
  kWhole,     // every rank has all of it
  kHeads,     // an equal share for the ranks of attention
  kKeyHeads,  // the same, but no rank has less than a head
  kColumns,   // an equal share for the ranks of the feed-forward layers
  kExperts,   // whole experts for each group, whose ranks share the columns
};

enum class StoredAs {
  kAttention,
  kIndexer,
  kMlp,
  kSharedExpert,
  kExpert,
  kHead,
  kEmbedding,
  kFloat32
};

struct Matrix {
  double outputs = 0;
  double inputs = 0;
  Sharing sharing = Sharing::kWhole;
  StoredAs stored = StoredAs::kAttention;
  double count = 1;     // of equal matrices: the experts
  double launches = 1;  // 0: multiplied by the kernel of the matrix before
  // Rows come from no norm, which could make them FP8: a kernel of its own does so.
  bool needs_fp8_rows = false;
};

// Tokens of one kind in a step of a data-parallel group, and what they attend to.
struct TokenRows {
  double sequences = 0;
  double rows = 0;  // tokens
  double keys = 0;  // that a token sees in the mean, without windows
};

// One step, as a rank of the busiest data-parallel group sees it.
struct StepShape {
  Mix mix;
  StoredTypes types;
  TokenRows decode, prompt;
  double all_rows = 0;    // tokens of all groups
  double logit_rows = 0;  // of the group

  double rows() const { return decode.rows + prompt.rows; }
};

struct PartInputs {
  const ModelConfig& config;
  int layer = 0;
  const StepShape& step;
};

struct PartRow {
  std::string_view name;
  bool (*is_in)(const ModelConfig& config, int layer);
  // As a rank of one has them.
  void (*add_matrices)(const ModelConfig& config, int layer, std::vector<Matrix>& out);
  void (*add_kernels)(const PartInputs& inputs, std::vector<KernelWork>& out);
};

// Of every layer, and of the model's ends (called with layer 0).
std::span<const PartRow> layer_parts();
const PartRow& embedding_part();
const PartRow& head_part();

// The share of a matrix that one rank has.
double rank_share(const Matrix& matrix, const Mix& mix, const ModelConfig& config, int layer);
// In the mean of the part's matrices in the layer.
double element_bits(StoredAs stored, const StoredTypes& types, int layer);

// Bytes that one token of a sequence keeps in a layer at one rank; 0 in recurrent layers.
double kv_bytes_of_token(const ModelConfig& config, int layer, const Mix& mix,
                         const StoredTypes& types);
// Bytes of the state of a sequence in a recurrent layer.
double state_bytes_of_sequence(const ModelConfig& config, int layer);

// Experts of a layer that `rows` tokens choose in the mean, when every choice is as likely, at the
// busiest of the groups.
double busiest_experts(const MoeConfig& moe, double rows, int groups);

}  // namespace sluice
