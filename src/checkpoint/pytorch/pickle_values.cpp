// Access to the values of a pickle after it was read.
#include "base/error.h"
#include "checkpoint/pytorch/pickle.h"
#include "checkpoint/pytorch/pickle_names.h"

namespace sluice {

std::int64_t Pickle::integer(Value value) const {
  check(kind(value) == PickleKind::kInteger, "{} is no integer", kind_name(kind(value)));
  return static_cast<std::int64_t>(nodes_[value].b);
}

std::string_view Pickle::text(Value value) const {
  const PickleKind seen = kind(value);
  check(seen == PickleKind::kText || seen == PickleKind::kBytes || seen == PickleKind::kLong,
        "{} is no text", kind_name(seen));
  return bytes_.substr(nodes_[value].b, nodes_[value].a);
}

std::span<const Pickle::Value> Pickle::items(Value value) const {
  const Node& node = nodes_[value];
  if (node.kind == PickleKind::kTuple) return {pool_.data() + node.b, node.a};
  check(node.kind == PickleKind::kList, "{} has no items", kind_name(node.kind));
  return containers_[node.a];
}

std::vector<std::pair<Pickle::Value, Pickle::Value>> Pickle::dict(Value value) const {
  const Node& node = nodes_[value];
  check(node.kind == PickleKind::kDict, "{} is no dict", kind_name(node.kind));
  std::vector<std::pair<Value, Value>> out;
  for (std::size_t i = 0; i + 1 < containers_[node.a].size(); i += 2)
    out.emplace_back(containers_[node.a][i], containers_[node.a][i + 1]);
  return out;
}

const PickledTensor& Pickle::tensor(Value value) const {
  check(kind(value) == PickleKind::kTensor, "{} is no tensor", kind_name(kind(value)));
  return tensors_[nodes_[value].a];
}

}  // namespace sluice
