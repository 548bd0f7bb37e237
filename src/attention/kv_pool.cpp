#include "attention/kv_pool.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/error.h"
#include "kernels/types/latent_rows.h"

namespace sluice {
namespace {

// Every plane of every layer starts on a cache line of its own.
constexpr std::uint64_t kPlaneAlignment = 64;

std::int64_t plane_bytes(const PageGroupSpec& group, const PlaneSpec& plane, std::int64_t pages) {
  const CheckedSize bytes = CheckedSize(static_cast<std::uint64_t>(pages)) *
                            static_cast<std::uint64_t>(group.rows_per_page()) *
                            static_cast<std::uint64_t>(plane.row_elements) *
                            static_cast<std::uint64_t>(dtype_size(plane.dtype));
  return static_cast<std::int64_t>((bytes + (kPlaneAlignment - 1)).get() / kPlaneAlignment *
                                   kPlaneAlignment);
}

ops::KvPlane as_laid_out(const PlaneSpec& plane, const Tensor& rows) {
  if (plane.heads_as == ops::PlaneForm::kScaledPages) return {rows, plane.heads_as, 1};
  const bool panels = plane.heads_as != ops::PlaneForm::kRows &&
                      rows.device.kind == DeviceKind::kCpu &&
                      ops::fits_panels(plane.dtype, plane.row_elements / plane.heads);
  return panels ? ops::KvPlane(rows, plane.heads_as, plane.heads) : ops::KvPlane(rows);
}

}  // namespace

std::int64_t PageGroupSpec::bytes_per_page() const {
  std::int64_t bytes = 0;
  for (const PlaneSpec& plane : planes)
    bytes += plane.row_elements * dtype_size(plane.dtype) * rows_per_page() *
             static_cast<std::int64_t>(plane.layers.size());
  return bytes;
}

PlaneSpec index_key_plane(DType dtype, std::int64_t dim) {
  const bool scaled = dtype == DType::kF8E4M3;
  return {.name = "index_k",
          .dtype = scaled ? DType::kU8 : dtype,
          .row_elements = dim + (scaled ? ops::kKeyScaleBytes : 0),
          .layers = {},
          .heads_as = scaled ? ops::PlaneForm::kScaledPages : ops::PlaneForm::kKeyPanels};
}

PlaneSpec latent_plane(DType dtype, std::int64_t latent, std::int64_t rope) {
  const bool in_bytes = dtype_size(dtype) == 1;
  return {.name = "latent",
          .dtype = dtype,
          .row_elements = in_bytes ? ops::LatentRow{latent, rope}.bytes() : latent + rope,
          .layers = {}};
}

std::int64_t num_page_groups(const std::vector<PageGroupSpec>& groups) {
  const bool has_states = !groups.empty() && groups.back().retention == Retention::kState;
  return static_cast<std::int64_t>(groups.size()) - has_states;
}

KVPool::KVPool(std::vector<PageGroupSpec> groups, std::vector<std::int64_t> pages, Device device,
               const NumaPlacement& placement)
    : groups_(std::move(groups)), pages_(std::move(pages)) {
  check(groups_.size() == pages_.size(), "{} page groups but {} page counts", groups_.size(),
        pages_.size());
  CheckedSize total(0);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    check(pages_[g] >= 0, "group '{}' with {} pages", groups_[g].name, pages_[g]);
    check(groups_[g].retention != Retention::kState || g + 1 == groups_.size(),
          "the states of '{}' are not the last group", groups_[g].name);
    for (const PlaneSpec& plane : groups_[g].planes) {
      check(plane.row_elements > 0, "plane '{}' with rows of {} elements", plane.name,
            plane.row_elements);
      check(std::is_sorted(plane.layers.begin(), plane.layers.end()),
            "the layers of plane '{}' are not ascending", plane.name);
      total = total +
              CheckedSize(static_cast<std::uint64_t>(plane_bytes(groups_[g], plane, pages_[g]))) *
                  plane.layers.size();
    }
  }
  buffer_ = Buffer(static_cast<std::int64_t>(total.get()), device);
  if (device.kind == DeviceKind::kCpu)
    placement.place(buffer_.data(), buffer_.bytes(), Spread::kInterleaved);

  std::int64_t offset = 0;
  rows_.resize(groups_.size());
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    for (const PlaneSpec& plane : groups_[g].planes) {
      std::vector<ops::KvPlane>& rows = rows_[g].emplace_back();
      for (std::size_t i = 0; i < plane.layers.size(); ++i) {
        rows.push_back(as_laid_out(
            plane,
            buffer_.tensor(plane.dtype,
                           {pages_[g] * groups_[g].rows_per_page(), plane.row_elements}, offset)));
        offset += plane_bytes(groups_[g], plane, pages_[g]);
      }
    }
  }
}

int KVPool::group_of(const std::string& plane, int layer) const {
  for (std::size_t g = 0; g < groups_.size(); ++g)
    for (const PlaneSpec& spec : groups_[g].planes)
      if (spec.name == plane && std::binary_search(spec.layers.begin(), spec.layers.end(), layer))
        return static_cast<int>(g);
  return -1;
}

ops::KvPlane KVPool::plane(int group, const std::string& plane, int layer) const {
  const PageGroupSpec& spec = groups_.at(static_cast<std::size_t>(group));
  for (std::size_t p = 0; p < spec.planes.size(); ++p) {
    if (spec.planes[p].name != plane) continue;
    const std::vector<int>& layers = spec.planes[p].layers;
    const auto at = std::lower_bound(layers.begin(), layers.end(), layer);
    if (at != layers.end() && *at == layer)
      return rows_[static_cast<std::size_t>(group)][p]
                  [static_cast<std::size_t>(at - layers.begin())];
  }
  fail(ErrorKind::kBug, "page group '{}' has no plane '{}' for layer {}", spec.name, plane, layer);
}

std::vector<ops::KvPlane> KVPool::planes(int group) const {
  std::vector<ops::KvPlane> all;
  for (const std::vector<ops::KvPlane>& rows : rows_.at(static_cast<std::size_t>(group)))
    all.insert(all.end(), rows.begin(), rows.end());
  return all;
}

}  // namespace sluice
