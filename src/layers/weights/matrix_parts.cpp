#include "layers/weights/matrix_parts.h"

namespace sluice {

MatrixParts::MatrixParts(const Weights& weights, const WeightParts& parts, std::int64_t columns,
                         Shard shard, const Find& find)
    : weights_(weights),
      all_columns_(columns),
      columns_(shard == Shard::kRow ? weights.share(columns, parts.begin()->name)
                                    : AxisRange{0, columns}) {
  const WeightSource& source = weights.loader_->source_;
  for (const WeightPart& part : parts) {
    Part own{.part = &part,
             .name = std::string(part.name) + ".weight",
             .rows = weights.rows_of(part, shard),
             .first = rows_};
    own.stored = find(source, weights.path(own.name));
    if (const TensorInfo* info = source.find(weights.path(own.name))) own.blocks = info->blocks;
    rows_ += own.rows.count;
    parts_.push_back(std::move(own));
  }
}

}  // namespace sluice
