#include "cost/part_table.h"

namespace sluice {

double element_bits(StoredAs stored, const StoredTypes& types, int layer) {
  const PlainShares plain =
      types.plain.empty() ? PlainShares{} : types.plain[static_cast<std::size_t>(layer)];
  const auto mean = [&](double bits, double share) {
    return bits + share * (types.plain_bits - bits);
  };
  switch (stored) {
    case StoredAs::kAttention:
      return mean(types.linear_bits, plain.attention);
    case StoredAs::kIndexer:
      return mean(types.linear_bits, plain.indexer);
    case StoredAs::kMlp:
      return mean(types.linear_bits, plain.mlp);
    case StoredAs::kSharedExpert:
      return mean(types.linear_bits, plain.shared_experts);
    case StoredAs::kExpert:
      return mean(types.expert_bits, plain.experts);
    case StoredAs::kHead:
      return types.head_bits;
    case StoredAs::kEmbedding:
      return types.embedding_bits;
    case StoredAs::kFloat32:
      break;
  }
  return 32;
}

}  // namespace sluice
