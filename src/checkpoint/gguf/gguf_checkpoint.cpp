#include "checkpoint/gguf/gguf_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "checkpoint/gguf/gguf_types.h"
#include "checkpoint/tensors/convert.h"

namespace sluice {
namespace {

// size of one read, or one group of rows if that is larger
constexpr std::uint64_t kChunkBytes = 4 << 20;

// A stored row, or a part of one, as float32 or in its own type.
struct RowCodec {
  const GgufTensor& tensor;

  // Widens the whole row.
  void widen(const std::byte* row, float* out) const {
    if (tensor.blocks)
      dequantize_blocks(*tensor.blocks, row, tensor.columns() / block_values(*tensor.blocks), out);
    else
      convert_elements(tensor.dtype, row, DType::kF32, reinterpret_cast<std::byte*>(out),
                       tensor.columns());
  }
};

// The index of the stored row for row `i` of a group of `group` rows.
std::int64_t stored_row(RowOrder order, std::int64_t group, std::int64_t i) {
  if (order != RowOrder::kPairs) return i;
  const std::int64_t half = group / 2;
  return i % half * 2 + i / half;
}

// Rows and columns of a tensor of one or more dimensions, and the requested box. A vector is one
// row; if its rows are reordered, it is one column.
struct Box {
  std::int64_t num_rows = 1;
  std::int64_t first_row = 0, row_count = 1;
  std::int64_t first_column = 0, column_count = 1;
};

Box box_of(const TensorInfo& info, RowOrder order, const std::vector<AxisRange>& ranges) {
  Box box;
  if (info.shape.size() == 1 && order == RowOrder::kAsStored) {
    box.first_column = ranges[0].begin;
    box.column_count = ranges[0].count;
    return box;
  }
  box.num_rows = info.shape[0];
  box.first_row = ranges[0].begin;
  box.row_count = ranges[0].count;
  if (info.shape.size() == 1) return box;
  require(info.shape.size() == 2,
          "the tensor {} has {} dimensions; the model needs a vector or a matrix", info.name,
          info.shape.size());
  box.first_column = ranges[1].begin;
  box.column_count = ranges[1].count;
  return box;
}

// The parts of a split file, in order; a single part for an unsplit file. Source: llama.cpp,
// llama_split_path and the keys split.*.
std::vector<std::unique_ptr<GgufFile>> open_parts(const std::string& path) {
  constexpr std::int64_t kMaxParts = 1024;
  std::vector<std::unique_ptr<GgufFile>> files;
  files.push_back(std::make_unique<GgufFile>(open_regular_file(path), path));
  const std::int64_t count = files.front()->find_integer("split.count").value_or(1);
  require(count >= 0 && count <= kMaxParts, "{}: split.count is {}; at most {} parts are allowed",
          path, count, kMaxParts);
  if (count <= 1) return files;
  const std::string ending = fmt::format("-00001-of-{:05}.gguf", count);
  require(path.ends_with(ending),
          "{}: the file is one of {} parts; name the first, which must end in {}", path, count,
          ending);
  std::uint64_t num_tensors = files.front()->tensors().size();
  for (std::int64_t i = 1; i < count; ++i) {
    const std::string name = path.substr(0, path.size() - ending.size()) +
                             fmt::format("-{:05}-of-{:05}.gguf", i + 1, count);
    files.push_back(std::make_unique<GgufFile>(open_regular_file(name), name));
    const GgufFile& part = *files.back();
    require(part.find_integer("split.no") == i && part.find_integer("split.count") == count,
            "{}: the file does not say that it is part {} of {} (split.no, split.count)", name,
            i + 1, count);
    num_tensors += part.tensors().size();
  }
  const std::int64_t wanted = files.front()
                                  ->find_integer("split.tensors.count")
                                  .value_or(static_cast<std::int64_t>(num_tensors));
  require(wanted == static_cast<std::int64_t>(num_tensors),
          "{}: the parts have {} tensors, and split.tensors.count is {}", path, num_tensors,
          wanted);
  return files;
}

void refuse_unreadable(const GgufFile& file, const GgufTensor& tensor) {
  require(tensor.unreadable.empty(),
          "{}: the tensor {} has the type {}; {} can be read: take a file of one of these types",
          file.name(), tensor.name, tensor.unreadable, kReadableTensorTypes);
}

}  // namespace

GgufCheckpoint::GgufCheckpoint(const std::string& path)
    : files_(open_parts(path)), entries_(gguf_entries(files_)) {
  index_.reserve(entries_.size());
  for (std::size_t i = 0; i < entries_.size(); ++i)
    require(index_.emplace(entries_[i].info.name, i).second,
            "{}: two tensors answer to the name {}", path, entries_[i].info.name.substr(0, 200));
}

std::vector<std::string> GgufCheckpoint::names() const {
  std::vector<std::string> names;
  names.reserve(entries_.size());
  for (const GgufEntry& entry : entries_)
    if (entry.tensor->unreadable.empty()) names.push_back(entry.info.name);
  return names;
}

const TensorInfo* GgufCheckpoint::find(std::string_view name) const {
  const auto it = index_.find(name);
  if (it == index_.end()) return nullptr;
  const GgufEntry& entry = entries_[it->second];
  refuse_unreadable(*files_[static_cast<std::size_t>(entry.info.file)], *entry.tensor);
  if (entry.second != nullptr)
    refuse_unreadable(*files_[static_cast<std::size_t>(entry.second_file)], *entry.second);
  return &entry.info;
}

std::uint64_t GgufCheckpoint::total_bytes() const {
  std::uint64_t total = 0;  // tensors do not overlap, so the sum is at most the size of the files
  for (const auto& file : files_)
    for (const GgufTensor& tensor : file->tensors()) total += tensor.bytes;
  return total;
}

const GgufEntry& GgufCheckpoint::entry_of(const TensorInfo& info) const {
  return entries_[index_.at(info.name)];
}

template <class Body>
void GgufCheckpoint::for_each_row(const GgufEntry& entry, std::int64_t first, std::int64_t count,
                                  Body&& body) const {
  const GgufTensor& tensor = *entry.tensor;
  const GgufFile& file = *files_[static_cast<std::size_t>(entry.info.file)];
  const bool is_column = entry.info.shape.size() == 1 && entry.order != RowOrder::kAsStored;
  const std::uint64_t row_bytes =
      is_column ? static_cast<std::uint64_t>(dtype_size(tensor.dtype)) : tensor.row_bytes();
  const std::int64_t group = entry.group;
  const auto groups_a_read = static_cast<std::int64_t>(
      std::max<std::uint64_t>(1, kChunkBytes / (row_bytes * static_cast<std::uint64_t>(group))));
  std::unique_ptr<std::byte[]> chunk;
  std::uint64_t chunk_bytes = 0;
  for (std::int64_t row = first; row < first + count;) {
    const std::int64_t begin =
        row / group * group;  // whole groups, since rows are reordered within a group
    const std::int64_t end =
        std::min((first + count + group - 1) / group * group, begin + groups_a_read * group);
    const std::uint64_t bytes = static_cast<std::uint64_t>(end - begin) * row_bytes;
    if (bytes > chunk_bytes) {
      chunk = std::make_unique_for_overwrite<std::byte[]>(bytes);
      chunk_bytes = bytes;
    }
    file.read(tensor, static_cast<std::uint64_t>(entry.first_row + begin) * row_bytes,
              {chunk.get(), bytes});
    for (; row < std::min(end, first + count); ++row) {
      const std::int64_t in_group = row % group;
      const std::int64_t stored = row - in_group + stored_row(entry.order, group, in_group);
      body(chunk.get() + static_cast<std::uint64_t>(stored - begin) * row_bytes);
    }
  }
}

void GgufCheckpoint::load(const TensorInfo& info, const std::vector<AxisRange>& ranges, DType dtype,
                          std::span<std::byte> out) const {
  const GgufEntry& entry = entry_of(info);
  const Box box = box_of(info, entry.order, ranges);
  std::byte* place = out.data();
  if (entry.order == RowOrder::kLatent)
    return load_latent(entry, box.first_row, box.row_count, ranges[1], dtype, place);
  const std::int64_t row_bytes = box.column_count * dtype_size(dtype);
  if (!info.blocks) {
    const std::int64_t skipped = box.first_column * dtype_size(info.dtype);
    for_each_row(entry, box.first_row, box.row_count, [&](const std::byte* row) {
      convert_elements(info.dtype, row + skipped, dtype, place, box.column_count);
      place += row_bytes;
    });
    return;
  }
  const RowCodec codec{*entry.tensor};
  std::vector<float> values(static_cast<std::size_t>(entry.tensor->columns()));
  for_each_row(entry, box.first_row, box.row_count, [&](const std::byte* row) {
    codec.widen(row, values.data());
    convert_elements(DType::kF32,
                     reinterpret_cast<const std::byte*>(values.data() + box.first_column), dtype,
                     place, box.column_count);
    place += row_bytes;
  });
}

void GgufCheckpoint::load_blocks(const TensorInfo& info, const std::vector<AxisRange>& ranges,
                                 std::span<std::byte> out) const {
  const GgufEntry& entry = entry_of(info);
  const Box box = box_of(info, entry.order, ranges);
  const std::int64_t values = info.blocks ? block_values(*info.blocks) : 1;
  check(info.blocks && box.first_column % values == 0 && box.column_count % values == 0,
        "{} is {}: columns [{}, +{}) are no blocks", info.name, info.describe(), box.first_column,
        box.column_count);
  const auto bytes = static_cast<std::size_t>(block_bytes(*info.blocks));
  const std::size_t skipped = static_cast<std::size_t>(box.first_column / values) * bytes;
  const std::size_t row_bytes = static_cast<std::size_t>(box.column_count / values) * bytes;
  std::byte* place = out.data();
  for_each_row(entry, box.first_row, box.row_count, [&](const std::byte* row) {
    std::memcpy(place, row + skipped, row_bytes);
    place += row_bytes;
  });
}

// Per head: the columns of k_b, which become rows, then the rows of v_b.
void GgufCheckpoint::load_latent(const GgufEntry& entry, std::int64_t first, std::int64_t count,
                                 AxisRange columns, DType dtype, std::byte* out) const {
  const GgufTensor &k = *entry.tensor, &v = *entry.second;
  const std::int64_t latent = k.shape[1], nope = k.shape[2], v_dim = v.shape[1],
                     head_rows = nope + v_dim;
  std::vector<float> turned(static_cast<std::size_t>(head_rows * latent)),
      row(static_cast<std::size_t>(nope));
  std::vector<std::byte> stored(std::max(k.row_bytes() * static_cast<std::uint64_t>(latent),
                                         v.row_bytes() * static_cast<std::uint64_t>(v_dim)));
  for (std::int64_t head = first / head_rows; head * head_rows < first + count; ++head) {
    const std::uint64_t k_bytes = k.row_bytes() * static_cast<std::uint64_t>(latent);
    files_[static_cast<std::size_t>(entry.info.file)]->read(
        k, k_bytes * static_cast<std::uint64_t>(head), {stored.data(), k_bytes});
    for (std::int64_t i = 0; i < latent; ++i) {
      RowCodec{k}.widen(stored.data() + static_cast<std::uint64_t>(i) * k.row_bytes(), row.data());
      for (std::int64_t j = 0; j < nope; ++j)
        turned[static_cast<std::size_t>(j * latent + i)] = row[static_cast<std::size_t>(j)];
    }
    const std::uint64_t v_bytes = v.row_bytes() * static_cast<std::uint64_t>(v_dim);
    files_[static_cast<std::size_t>(entry.second_file)]->read(
        v, v_bytes * static_cast<std::uint64_t>(head), {stored.data(), v_bytes});
    for (std::int64_t i = 0; i < v_dim; ++i)
      RowCodec{v}.widen(stored.data() + static_cast<std::uint64_t>(i) * v.row_bytes(),
                        turned.data() + (nope + i) * latent);
    const std::int64_t begin = std::max(first, head * head_rows),
                       end = std::min(first + count, (head + 1) * head_rows);
    for (std::int64_t r = begin; r < end; ++r) {
      const float* values = turned.data() + (r - head * head_rows) * latent + columns.begin;
      convert_elements(DType::kF32, reinterpret_cast<const std::byte*>(values), dtype, out,
                       columns.count);
      out += columns.count * dtype_size(dtype);
    }
  }
}

}  // namespace sluice
