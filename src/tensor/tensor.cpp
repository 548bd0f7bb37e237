#include "tensor/tensor.h"

#include "base/error.h"
#include "tensor/format.h"

namespace sluice {

Tensor Tensor::dense(void* data, DType dtype, std::initializer_list<std::int64_t> shape,
                     Device device) {
  check(shape.size() >= 1 && shape.size() <= 4, "a tensor has 1 to 4 dimensions, not {}",
        shape.size());
  Tensor t;
  t.data = data;
  t.dtype = dtype;
  t.device = device;
  t.rank = static_cast<int>(shape.size());
  int i = 0;
  for (std::int64_t extent : shape) {
    check(extent >= 0, "negative extent {}", extent);
    t.shape[i++] = extent;
  }
  std::int64_t step = 1;
  for (i = t.rank - 1; i >= 0; --i) {
    t.stride[i] = step;
    step *= t.shape[i];
  }
  return t;
}

std::int64_t Tensor::numel() const {
  if (rank == 0) return 0;
  std::int64_t count = 1;
  for (int i = 0; i < rank; ++i) count *= shape[i];
  return count;
}

bool Tensor::dense() const {
  std::int64_t step = 1;
  for (int i = rank - 1; i >= 0; --i) {
    if (shape[i] != 1 && stride[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

bool Tensor::dense_rows() const {
  return rank > 0 && (stride[rank - 1] == 1 || shape[rank - 1] <= 1);
}

std::string Tensor::describe() const {
  std::string text(dtype_name(dtype));
  text += " [";
  for (int i = 0; i < rank; ++i) text += fmt::format("{}{}", i ? ", " : "", shape[i]);
  return text + "]";
}

Tensor Tensor::slice(int axis, std::int64_t begin, std::int64_t count) const {
  check(axis >= 0 && axis < rank && begin >= 0 && count >= 0 && begin + count <= shape[axis],
        "slice [{}, {}) of dimension {} of {}", begin, begin + count, axis, *this);
  Tensor t = *this;
  t.shape[axis] = count;
  t.data = static_cast<std::byte*>(data) + begin * stride[axis] * dtype_size(dtype);
  return t;
}

Tensor Tensor::at(std::int64_t index) const {
  Tensor t = slice(0, index, 1);
  if (rank == 1) return t;
  for (int i = 1; i < rank; ++i) {
    t.shape[i - 1] = shape[i];
    t.stride[i - 1] = stride[i];
  }
  t.rank = rank - 1;
  t.shape[t.rank] = t.stride[t.rank] = 0;
  return t;
}

Tensor Tensor::reshape(std::initializer_list<std::int64_t> wanted) const {
  check(dense(), "only a dense tensor can be reshaped: {}", *this);
  Tensor t = Tensor::dense(data, dtype, wanted, device);
  check(t.numel() == numel(), "{} cannot become {}", *this, t);
  return t;
}

void Tensor::check_dtype(DType wanted) const {
  check(dtype == wanted, "{} where {} elements are wanted", *this, dtype_name(wanted));
}

}  // namespace sluice
