// The pages of the KV cache. The model states its planes (PageGroupSpec), the memory plan the
// number of pages. The pool owns the bytes. A page holds kPageSize tokens of every plane of its
// group. In the group of recurrent layers a page holds the whole state of one sequence.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/numa.h"
#include "base/page_size.h"
#include "batch/page_group.h"
#include "kernels/types/kv_plane.h"
#include "tensor/buffer.h"
#include "tensor/context.h"
#include "tensor/tensor.h"

namespace sluice {

// One kind of row that a token leaves in each of its layers.
struct PlaneSpec {
  std::string name;  // "k", "v", "latent", "index_k"
  DType dtype = DType::kF32;
  // Elements of one token in one layer (int8: ops::kv_row_elements, with the scales). In a state
  // group: elements of one sequence.
  std::int64_t row_elements = 0;
  std::vector<int> layers;  // model layers that have this plane, ascending
  // How the heads of a row are stored. kRows: rows only. kKeyPanels, kValuePanels: panels on a CPU
  // in bfloat16, else rows. kScaledPages: scaled pages on every device.
  ops::PlaneForm heads_as = ops::PlaneForm::kRows;
  std::int64_t heads = 1;
};

// Index keys of `dim` elements (DSA): float32, bfloat16 or float8_e4m3fn, the last in scaled pages
// (kernels/types/kv_plane.h).
PlaneSpec index_key_plane(DType dtype, std::int64_t dim);

// Latents and rotated keys (MLA): float32, bfloat16, or in 8 bits float8_e4m3fn or int8
// (kernels/types/latent_rows.h).
PlaneSpec latent_plane(DType dtype, std::int64_t latent, std::int64_t rope);

// A page group and the planes of its layers. The memory plan sets num_pages.
struct PageGroupSpec : PageGroup {
  std::vector<PlaneSpec> planes;

  std::int64_t rows_per_page() const { return retention == Retention::kState ? 1 : kPageSize; }
  std::int64_t bytes_per_page() const;  // sum over all planes and layers
};

// The number of groups that hold pages of tokens. A model has at most one group of states, and it
// is the last.
std::int64_t num_page_groups(const std::vector<PageGroupSpec>& groups);

class KVPool {
 public:
  // pages[g]: number of pages of group g. The constructor allocates all memory; page 0 of a group
  // is an ordinary page. Any worker reads any page, so host memory is spread over the nodes of
  // `placement`.
  KVPool(std::vector<PageGroupSpec> groups, std::vector<std::int64_t> pages, Device device = {},
         const NumaPlacement& placement = {});

  int num_groups() const { return static_cast<int>(groups_.size()); }
  const PageGroupSpec& group(int g) const { return groups_[g]; }
  std::int64_t num_pages(int g) const { return pages_[g]; }
  std::int64_t bytes() const { return buffer_.bytes(); }

  // The group that holds `plane` of `layer`; -1 if there is none.
  int group_of(const std::string& plane, int layer) const;
  // Rows of one plane in one layer: [pages * rows_per_page, row_elements]. The row index is the
  // slot of a token, or the number of a state.
  ops::KvPlane plane(int group, const std::string& plane, int layer) const;
  // Every plane of a group: [pages * rows_per_page, row_elements] each. For page copies.
  std::vector<ops::KvPlane> planes(int group) const;

 private:
  std::vector<PageGroupSpec> groups_;
  std::vector<std::int64_t> pages_;
  Buffer buffer_;
  // [group][plane][index in PlaneSpec::layers]
  std::vector<std::vector<std::vector<ops::KvPlane>>> rows_;
};

}  // namespace sluice
