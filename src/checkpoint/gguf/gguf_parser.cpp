// The header of a GGUF file, checked as it is read.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/checked.h"
#include "checkpoint/gguf/gguf_parser.h"
#include "checkpoint/gguf/gguf_types.h"

namespace sluice {
namespace {

constexpr std::uint64_t kReadBytes = 1 << 20;  // bytes of the header per read
constexpr std::uint64_t kMaxAlignment = 1 << 20;
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 40;
constexpr std::uint32_t kVersion = 3;
constexpr std::uint64_t kMaxValuesPerByte = 16;  // of a type that is not known here

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 120)) out += c >= ' ' && c < 127 ? c : '?';
  return out + (text.size() > 120 ? "..." : "");
}

std::string tensor_type_name(std::uint32_t number) {
  for (const GgufTypeName& row : kOtherTensorTypes)
    if (row.number == number) return std::string(row.name);
  return fmt::format("number {}, which is not known", number);
}

}  // namespace

GgufParser::GgufParser(GgufFile& file, const GgufLimits& limits)
    : file_(file), limits_(limits), size_(file.file_.size()) {}

void GgufParser::need(std::uint64_t bytes, std::string_view what) {
  require(bytes <= size_ - at_,
          "{}: {} needs {} bytes at {}, but the file ends at {}; it is cut short or damaged",
          file_.name_, what, bytes, at_, size_);
  require(bytes <= limits_.max_header_bytes - at_,
          "{}: {} ends past byte {}; a header that long is refused", file_.name_, what,
          limits_.max_header_bytes);
  const std::uint64_t end = at_ + bytes;
  if (end <= file_.header_.size()) return;
  const std::uint64_t begin = file_.header_.size();
  const std::uint64_t wanted = std::min(size_, std::max(end, begin + kReadBytes));
  file_.header_.resize(wanted);
  require(file_.file_.read(begin, std::as_writable_bytes(std::span(file_.header_).subspan(begin))),
          "{}: the file became shorter while it was read", file_.name_);
}

template <class T>
T GgufParser::take(std::string_view what) {
  need(sizeof(T), what);
  T value;
  std::memcpy(&value, file_.header_.data() + at_, sizeof(T));
  at_ += sizeof(T);
  return value;
}

// Keeps a string as an offset: the text moves when more of the header is read.
GgufParser::Text GgufParser::take_text(std::string_view what, std::uint64_t max_bytes) {
  const auto length = take<std::uint64_t>(what);
  require(length <= max_bytes, "{}: {} claims {} bytes; at most {} are allowed", file_.name_, what,
          length, max_bytes);
  need(length, what);
  const Text text{at_, length};
  at_ += length;
  return text;
}

std::string_view GgufParser::view(Text text) const {
  return std::string_view(file_.header_).substr(text.at, text.length);
}

void GgufParser::skip_strings(std::uint64_t count, std::string_view what) {
  for (std::uint64_t i = 0; i < count; ++i) take_text(what, size_);
}

// Skips the elements of an array of any depth. The stack holds the number of remaining arrays on
// each level.
void GgufParser::skip_elements(std::uint32_t type, std::uint64_t count, std::string_view what) {
  std::vector<std::uint64_t> left;  // for each level whose elements are arrays
  const auto enter = [&](std::uint32_t inner, std::uint64_t number) {
    require(inner < kNumGgufValueTypes, "{}: {} is an array of type number {}; known are 0 to {}",
            file_.name_, what, inner, kNumGgufValueTypes - 1);
    const std::uint64_t least = kGgufValueTypes[inner].bytes;
    require(number <= (size_ - at_) / least,
            "{}: {} claims {} elements of type {}, but only {} bytes of the file are left",
            file_.name_, what, number, kGgufValueTypes[inner].name, size_ - at_);
    if (inner == kGgufArray) {
      require(left.size() + 2 <= static_cast<std::size_t>(limits_.max_array_depth),
              "{}: {} nests arrays deeper than {} levels", file_.name_, what,
              limits_.max_array_depth);
      left.push_back(number);
    } else if (inner == kGgufString) {
      skip_strings(number, what);
    } else {
      need(number * least,
           what);  // cannot overflow: number x minimum is at most the remaining bytes
      at_ += number * least;
    }
  };
  enter(type, count);
  while (!left.empty()) {
    if (left.back() == 0) {
      left.pop_back();
      continue;
    }
    --left.back();
    const auto inner = take<std::uint32_t>(what);
    const auto number = take<std::uint64_t>(what);
    enter(inner, number);
  }
}

void GgufParser::read_value(std::uint64_t index) {
  const Text key = take_text(fmt::format("the key of value {}", index), limits_.max_name_bytes);
  const std::string what = fmt::format("the value {}", printable(view(key)));
  require(key.length > 0, "{}: value {} has an empty key", file_.name_, index);
  GgufFile::Value value;
  value.type = take<std::uint32_t>(what);
  require(value.type < kNumGgufValueTypes, "{}: {} has type number {}; known are 0 to {}",
          file_.name_, what, value.type, kNumGgufValueTypes - 1);
  if (value.type == kGgufArray) {
    value.is_array = true;
    value.type = take<std::uint32_t>(what);
    value.count = take<std::uint64_t>(what);
    value.at = at_;
    skip_elements(value.type, value.count, what);
  } else {
    value.at = at_;
    skip_elements(value.type, 1, what);
  }
  entries_.push_back({key, value});
}

// Runs when the header is complete, so that keys can be views of it.
void GgufParser::index_values() {
  file_.values_.reserve(entries_.size());
  for (const Entry& entry : entries_)
    require(file_.values_.emplace(view(entry.key), entry.value).second,
            "{}: the key {} appears twice", file_.name_, printable(view(entry.key)));
}

std::uint64_t GgufParser::read_tensor(std::uint64_t index) {
  const Text name = take_text(fmt::format("the name of tensor {}", index), limits_.max_name_bytes);
  require(name.length > 0, "{}: tensor {} has an empty name", file_.name_, index);
  GgufTensor tensor;
  tensor.name = view(name);
  const std::string what = fmt::format("the tensor {}", printable(tensor.name));
  const auto rank = take<std::uint32_t>(what);
  require(rank >= 1 && rank <= 4, "{}: {} has {} dimensions; allowed are 1 to 4", file_.name_, what,
          rank);
  for (std::uint32_t i = 0; i < rank; ++i) {
    const auto extent = take<std::uint64_t>(what);
    require(extent >= 1 && extent <= static_cast<std::uint64_t>(kMaxExtent),
            "{}: {} has the extent {}; allowed are 1 to {}", file_.name_, what, extent, kMaxExtent);
    tensor.shape.push_back(static_cast<std::int64_t>(extent));
  }
  std::reverse(tensor.shape.begin(),
               tensor.shape.end());  // the file stores the contiguous extent first
  const auto type = take<std::uint32_t>(what);
  const auto* row = std::find_if(std::begin(kGgufTensorTypes), std::end(kGgufTensorTypes),
                                 [&](const GgufTensorType& r) { return r.number == type; });
  if (row == std::end(kGgufTensorTypes)) {
    tensor.unreadable = tensor_type_name(type);
    std::uint64_t values = 1;
    bool too_many = false;
    for (const std::int64_t extent : tensor.shape)
      too_many |= __builtin_mul_overflow(values, static_cast<std::uint64_t>(extent), &values);
    require(!too_many && values / kMaxValuesPerByte <= size_,
            "{}: {} of [{}] has more values than the {} bytes of the file can hold; it is cut "
            "short or damaged",
            file_.name_, what, fmt::join(tensor.shape, ", "), size_);
    const auto offset = take<std::uint64_t>(what);
    file_.tensors_.push_back(std::move(tensor));
    return offset;
  }
  tensor.dtype = row->dtype;
  tensor.blocks = row->blocks;
  std::uint64_t columns = static_cast<std::uint64_t>(tensor.columns());
  std::uint64_t unit = static_cast<std::uint64_t>(dtype_size(tensor.dtype));
  if (tensor.blocks) {
    const auto values = static_cast<std::uint64_t>(block_values(*tensor.blocks));
    require(columns % values == 0,
            "{}: {} is {} with rows of {} values; they must be a multiple of {}", file_.name_, what,
            tensor.type_name(), columns, values);
    columns /= values;
    unit = static_cast<std::uint64_t>(block_bytes(*tensor.blocks));
  }
  std::uint64_t bytes = 0;
  bool overflow = __builtin_mul_overflow(columns, unit, &bytes);
  for (std::size_t i = 0; i + 1 < tensor.shape.size(); ++i)
    overflow |= __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(tensor.shape[i]), &bytes);
  require(!overflow && bytes <= size_,
          "{}: {} of [{}] {} takes more bytes than the {} of the file; it is cut short or damaged",
          file_.name_, what, fmt::join(tensor.shape, ", "), tensor.type_name(), size_);
  tensor.bytes = bytes;
  const auto offset = take<std::uint64_t>(what);
  file_.tensors_.push_back(std::move(tensor));
  return offset;
}

void GgufParser::place_tensors(const std::vector<std::uint64_t>& offsets) {
  const std::int64_t alignment_value = file_.find_integer("general.alignment").value_or(32);
  require(alignment_value >= 8 && alignment_value <= static_cast<std::int64_t>(kMaxAlignment) &&
              std::has_single_bit(static_cast<std::uint64_t>(alignment_value)),
          "{}: general.alignment is {}; it must be a power of two from 8 to {}", file_.name_,
          alignment_value, kMaxAlignment);
  const auto alignment = static_cast<std::uint64_t>(alignment_value);
  const std::uint64_t data_begin =
      (at_ + alignment - 1) / alignment * alignment;  // at_ is at most 2^30
  require(offsets.empty() || data_begin <= size_,
          "{}: the file ends at {}, before the data at {}; it is cut short", file_.name_, size_,
          data_begin);
  std::vector<const GgufTensor*> by_place;
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    GgufTensor& tensor = file_.tensors_[i];
    const std::string what = fmt::format("the tensor {}", printable(tensor.name));
    require(offsets[i] % alignment == 0,
            "{}: {} begins at {}, which is not a multiple of general.alignment, {}", file_.name_,
            what, offsets[i], alignment);
    require(offsets[i] <= size_ - data_begin && tensor.bytes <= size_ - data_begin - offsets[i],
            "{}: {} has {} bytes at {} of the data, but only {} bytes of data are there; the file "
            "is cut short or damaged",
            file_.name_, what, tensor.bytes, offsets[i], size_ - data_begin);
    tensor.offset = data_begin + offsets[i];
    require(file_.tensor_index_.emplace(tensor.name, i).second, "{}: {} appears twice", file_.name_,
            what);
    by_place.push_back(&tensor);
  }
  std::sort(by_place.begin(), by_place.end(),
            [](const GgufTensor* a, const GgufTensor* b) { return a->offset < b->offset; });
  for (std::size_t i = 1; i < by_place.size(); ++i)
    require(by_place[i]->offset >= by_place[i - 1]->offset + by_place[i - 1]->bytes,
            "{}: the tensor {} overlaps the tensor {}", file_.name_, printable(by_place[i]->name),
            printable(by_place[i - 1]->name));
}

void GgufParser::parse() {
  const auto magic = take<std::uint32_t>("the magic");
  require(std::memcmp(&magic, "GGUF", 4) == 0,
          "{}: the file does not begin with GGUF, so it is no GGUF file", file_.name_);
  const auto version = take<std::uint32_t>("the version");
  require(version != __builtin_bswap32(kVersion) && version != __builtin_bswap32(2u) &&
              version != __builtin_bswap32(1u),
          "{}: the file is big-endian; only little-endian files can be read: convert it",
          file_.name_);
  require(version == kVersion,
          "{}: the file has version {} of GGUF; only version {} can be read: convert it again",
          file_.name_, version, kVersion);
  const auto num_tensors = take<std::uint64_t>("the number of tensors");
  const auto num_values = take<std::uint64_t>("the number of values");
  // A value takes at least a key's length, a type and a byte. A tensor takes at least a length, a
  // rank, an extent, a type and an offset.
  require(num_values <= limits_.max_values && num_values <= (size_ - at_) / 13,
          "{}: the header claims {} values; {} bytes are left, and at most {} values are allowed",
          file_.name_, num_values, size_ - at_, limits_.max_values);
  require(num_tensors <= limits_.max_tensors && num_tensors <= (size_ - at_) / 32,
          "{}: the header claims {} tensors; {} bytes are left, and at most {} tensors are allowed",
          file_.name_, num_tensors, size_ - at_, limits_.max_tensors);
  for (std::uint64_t i = 0; i < num_values; ++i) read_value(i);
  std::vector<std::uint64_t> offsets;
  file_.tensors_.reserve(num_tensors);
  for (std::uint64_t i = 0; i < num_tensors; ++i) offsets.push_back(read_tensor(i));
  file_.header_.resize(at_);
  file_.header_.shrink_to_fit();
  index_values();
  place_tensors(offsets);
}

}  // namespace sluice
