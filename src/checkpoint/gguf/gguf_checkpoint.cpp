#include "checkpoint/gguf/gguf_checkpoint.h"

#include <algorithm>
#include <cmath>
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

  // Blocks of the row, or of a part of it.
  void check_blocks(const std::byte* blocks, std::int64_t count) const {
    const auto bad = first_damaged_block(*tensor.blocks, blocks, count);
    require(!bad,
            "the tensor {} ({}): the scale or minimum of block {} of {} in a row is NaN or "
            "infinite; the file is damaged",
            tensor.name, block_type_name(*tensor.blocks), bad.value_or(0), count);
  }
  // Widens the whole row.
  void widen(const std::byte* row, float* out) const {
    if (tensor.blocks) check_blocks(row, tensor.columns() / block_values(*tensor.blocks));
    if (tensor.blocks)
      dequantize_blocks(*tensor.blocks, row, tensor.columns() / block_values(*tensor.blocks), out);
    else
      convert_elements(tensor.dtype, row, DType::kF32, reinterpret_cast<std::byte*>(out),
                       tensor.columns());
  }
};

// Rows and columns of a tensor of any dimensions, and the requested box. A vector is one row; if
// its rows are reordered, or it is a part of one, it is one column.
struct Box {
  std::int64_t first_row = 0, row_count = 1;
  std::int64_t first_column = 0, column_count = 1;
};

bool is_column(const GgufEntry& entry) {
  return entry.info.shape.size() == 1 && entry.tensor->shape.size() == 1 &&
         (entry.order != RowOrder::kAsStored || entry.info.shape != entry.tensor->shape);
}

Box box_of(const GgufEntry& entry, const std::vector<AxisRange>& ranges) {
  const std::vector<std::int64_t>& shape = entry.info.shape;
  Box box;
  if (shape.empty()) return box;
  if (is_column(entry)) {
    box.first_row = ranges[0].begin;
    box.row_count = ranges[0].count;
    return box;
  }
  box.first_column = ranges.back().begin;
  box.column_count = ranges.back().count;
  const std::int64_t stored_columns = entry.tensor->columns();
  if (shape.size() == 1 && stored_columns < shape[0]) {
    // The file has more dimensions.
    require(box.first_column == 0 && box.column_count == shape[0],
            "the tensor {} has several dimensions in its file; only all of it can be read",
            entry.info.name);
    box.row_count = shape[0] / stored_columns;
    box.column_count = stored_columns;
    return box;
  }
  if (shape.size() == 1) return box;
  std::int64_t inner = 1;
  for (std::size_t i = 1; i + 1 < shape.size(); ++i) {
    require(ranges[i].begin == 0 && ranges[i].count == shape[i],
            "the tensor {} has {} dimensions; the model needs a vector or a matrix",
            entry.info.name, shape.size());
    inner *= shape[i];
  }
  box.first_row = ranges[0].begin * inner;
  box.row_count = ranges[0].count * inner;
  return box;
}

// Undoes what the converter did to the values.
void restore(ValueChange change, std::span<float> values) {
  if (change == ValueChange::kAddedOne)
    for (float& value : values) value -= 1;
  if (change == ValueChange::kNegatedExponential)
    for (float& value : values) value = std::log(-value);
}

// The stored column of column `i` of heads that lie across.
std::int64_t stored_column(const GgufEntry& entry, std::int64_t i) {
  const std::int64_t head = i / entry.group, of_key = entry.heads / entry.kv_heads;
  return (head % of_key * entry.kv_heads + head / of_key) * entry.group + i % entry.group;
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
    if (entry.tensor == nullptr || entry.tensor->unreadable.empty())
      names.push_back(entry.info.name);
  return names;
}

const TensorInfo* GgufCheckpoint::find(std::string_view name) const {
  const auto it = index_.find(name);
  if (it == index_.end()) return nullptr;
  const GgufEntry& entry = entries_[it->second];
  if (entry.tensor != nullptr)
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
  const std::uint64_t row_bytes =
      is_column(entry) ? static_cast<std::uint64_t>(dtype_size(tensor.dtype)) : tensor.row_bytes();
  // Rows are reordered within a group, or lie in runs.
  const std::int64_t group = entry.order == RowOrder::kPairs ? entry.group : 1;
  const auto groups_a_read = static_cast<std::int64_t>(
      std::max<std::uint64_t>(1, kChunkBytes / (row_bytes * static_cast<std::uint64_t>(group))));
  std::unique_ptr<std::byte[]> chunk;
  std::uint64_t chunk_bytes = 0;
  const std::int64_t last = first + count;
  for (std::int64_t row = first; row < last;) {
    const std::int64_t whole = row / group * group,
                       begin = group > 1 ? whole : entry.stored_row(row);
    std::int64_t rows = std::min((last + group - 1) / group * group - whole, groups_a_read * group);
    if (group == 1)
      for (std::int64_t i = 1; i < rows; ++i)
        if (entry.stored_row(row + i) != begin + i) rows = i;
    const std::uint64_t bytes = static_cast<std::uint64_t>(rows) * row_bytes;
    if (bytes > chunk_bytes) {
      chunk = std::make_unique_for_overwrite<std::byte[]>(bytes);
      chunk_bytes = bytes;
    }
    file.read(tensor, static_cast<std::uint64_t>(entry.first_row + begin) * row_bytes,
              {chunk.get(), bytes});
    for (const std::int64_t end = std::min(last, whole + rows); row < end; ++row)
      body(chunk.get() + static_cast<std::uint64_t>(entry.stored_row(row) - begin) * row_bytes);
  }
}

void GgufCheckpoint::load(const TensorInfo& info, const std::vector<AxisRange>& ranges, DType dtype,
                          std::span<std::byte> out) const {
  const GgufEntry& entry = entry_of(info);
  if (entry.tensor == nullptr) {
    convert_elements(DType::kF32, reinterpret_cast<const std::byte*>(entry.constants.data()), dtype,
                     out.data(), static_cast<std::int64_t>(entry.constants.size()));
    return;
  }
  const Box box = box_of(entry, ranges);
  std::byte* place = out.data();
  if (entry.order == RowOrder::kLatent)
    return load_latent(entry, box.first_row, box.row_count, ranges[1], dtype, place);
  if (entry.order == RowOrder::kTransposed) return load_transposed(entry, ranges, dtype, place);
  if (entry.order == RowOrder::kBeside) return load_beside(entry, ranges, dtype, place);
  const std::int64_t row_bytes = box.column_count * dtype_size(dtype);
  const bool across = entry.order == RowOrder::kTilesAcross;
  if (!entry.tensor->blocks && entry.change == ValueChange::kNone && !across) {
    const std::int64_t skipped = box.first_column * dtype_size(info.dtype);
    for_each_row(entry, box.first_row, box.row_count, [&](const std::byte* row) {
      convert_elements(info.dtype, row + skipped, dtype, place, box.column_count);
      place += row_bytes;
    });
    return;
  }
  // Columns of the box, in the order of the checkpoint.
  std::vector<float> stored(
      static_cast<std::size_t>(is_column(entry) ? 1 : entry.tensor->columns())),
      own(static_cast<std::size_t>(box.column_count));
  for_each_row(entry, box.first_row, box.row_count, [&](const std::byte* row) {
    if (is_column(entry))
      convert_elements(entry.tensor->dtype, row, DType::kF32,
                       reinterpret_cast<std::byte*>(stored.data()), 1);
    else
      RowCodec{*entry.tensor}.widen(row, stored.data());
    for (std::int64_t i = 0; i < box.column_count; ++i) {
      const std::int64_t column = box.first_column + i;
      own[static_cast<std::size_t>(i)] =
          stored[static_cast<std::size_t>(across ? stored_column(entry, column) : column)];
    }
    restore(entry.change, own);
    convert_elements(DType::kF32, reinterpret_cast<const std::byte*>(own.data()), dtype, place,
                     box.column_count);
    place += row_bytes;
  });
}

void GgufCheckpoint::load_blocks(const TensorInfo& info, const std::vector<AxisRange>& ranges,
                                 std::span<std::byte> out) const {
  const GgufEntry& entry = entry_of(info);
  const Box box = box_of(entry, ranges);
  const std::int64_t values = info.blocks ? block_values(*info.blocks) : 1;
  check(info.blocks && box.first_column % values == 0 && box.column_count % values == 0,
        "{} is {}: columns [{}, +{}) are no blocks", info.name, info.describe(), box.first_column,
        box.column_count);
  const auto bytes = static_cast<std::size_t>(block_bytes(*info.blocks));
  const std::size_t skipped = static_cast<std::size_t>(box.first_column / values) * bytes;
  const auto blocks = static_cast<std::size_t>(box.column_count / values);
  std::byte* place = out.data();
  for_each_row(entry, box.first_row, box.row_count, [&](const std::byte* row) {
    if (entry.order == RowOrder::kTilesAcross)
      for (std::size_t i = 0; i < blocks; ++i) {
        const std::int64_t column = box.first_column + static_cast<std::int64_t>(i) * values;
        const auto at = static_cast<std::size_t>(stored_column(entry, column) / values);
        std::memcpy(place + i * bytes, row + at * bytes, bytes);
      }
    else
      std::memcpy(place, row + skipped, blocks * bytes);
    RowCodec{*entry.tensor}.check_blocks(place, static_cast<std::int64_t>(blocks));
    place += blocks * bytes;
  });
}

// Rows of the checkpoint are columns of the file.
void GgufCheckpoint::load_transposed(const GgufEntry& entry, const std::vector<AxisRange>& ranges,
                                     DType dtype, std::byte* out) const {
  const AxisRange rows = ranges[0], columns = ranges[1];
  const GgufTensor& tensor = *entry.tensor;
  const GgufFile& file = *files_[static_cast<std::size_t>(entry.info.file)];
  std::vector<std::byte> stored(tensor.row_bytes());
  std::vector<float> values(static_cast<std::size_t>(tensor.columns()));
  const std::int64_t size = dtype_size(dtype);
  for (std::int64_t c = 0; c < columns.count; ++c) {
    file.read(tensor, static_cast<std::uint64_t>(columns.begin + c) * tensor.row_bytes(), stored);
    RowCodec{tensor}.widen(stored.data(), values.data());
    for (std::int64_t r = 0; r < rows.count; ++r)
      convert_elements(DType::kF32,
                       reinterpret_cast<const std::byte*>(values.data() + rows.begin + r), dtype,
                       out + (r * columns.count + c) * size, 1);
  }
}

// A row of one tensor, then that of the other; both are plain and alike.
void GgufCheckpoint::load_beside(const GgufEntry& entry, const std::vector<AxisRange>& ranges,
                                 DType dtype, std::byte* out) const {
  const AxisRange rows = ranges[0], columns = ranges[1];
  const GgufTensor &first = *entry.tensor, &second = *entry.second;
  const auto row_bytes = static_cast<std::size_t>(first.row_bytes());
  std::vector<std::byte> row(2 * row_bytes);
  for (std::int64_t r = rows.begin; r < rows.begin + rows.count; ++r) {
    const std::uint64_t at = static_cast<std::uint64_t>(r) * row_bytes;
    files_[static_cast<std::size_t>(entry.info.file)]->read(first, at, {row.data(), row_bytes});
    files_[static_cast<std::size_t>(entry.second_file)]->read(second, at,
                                                              {row.data() + row_bytes, row_bytes});
    convert_elements(first.dtype, row.data() + columns.begin * dtype_size(first.dtype), dtype, out,
                     columns.count);
    out += columns.count * dtype_size(dtype);
  }
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
