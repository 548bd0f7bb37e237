#include "distributed/single.h"

#include <cstring>

#include "base/error.h"
#include "tensor/format.h"

namespace sluice {

void SingleCommunicator::all_reduce(const Tensor& x) {
  check(x.defined(), "all_reduce of nothing");
}

void SingleCommunicator::all_gather(const Tensor& x, const Tensor& out) {
  check(x.dense() && out.dense() && x.dtype == out.dtype && x.numel() == out.numel(),
        "all_gather of {} into {} in a world of one", x, out);
  if (x.data != out.data && x.numel() > 0)
    std::memcpy(out.data, x.data, static_cast<std::size_t>(x.bytes()));
}

void SingleCommunicator::broadcast(const Tensor& x, int root) {
  check(x.defined() && root == 0, "broadcast from rank {} in a world of one", root);
}

}  // namespace sluice
