#include "checkpoint/files/safetensors.h"

#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "base/checked.h"

namespace sluice {
namespace {

constexpr std::uint64_t kMaxExtent = std::uint64_t{1} << 62;

struct FormatName {
  std::string_view name;
  DType dtype;
};
constexpr FormatName kFormatNames[] = {
    {"F64", DType::kF64},   {"F32", DType::kF32},        {"F16", DType::kF16},
    {"BF16", DType::kBF16}, {"I64", DType::kI64},        {"I32", DType::kI32},
    {"I16", DType::kI16},   {"I8", DType::kI8},          {"U8", DType::kU8},
    {"BOOL", DType::kBool}, {"F8_E4M3", DType::kF8E4M3}, {"F8_E5M2", DType::kF8E5M2},
    {"F8_E8M0", DType::kU8}};  // exponents: scales that are powers of two

// Types of the format without a type here: their tensors are only kept apart. The size is in bits.
struct OtherFormat {
  std::string_view name;
  std::uint64_t bits;
};
constexpr OtherFormat kOtherFormats[] = {{"F4", 4},          {"F6_E2M3", 6},     {"F6_E3M2", 6},
                                         {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"U16", 16},
                                         {"U32", 32},        {"U64", 64},        {"C64", 64}};

// Turns the header into TensorInfos; every message begins with the file and the tensor.
class HeaderParser {
 public:
  HeaderParser(std::string_view file, int index, const SafetensorsLimits& limits,
               std::uint64_t data_begin, std::uint64_t data_bytes)
      : file_(file),
        index_(index),
        limits_(limits),
        data_begin_(data_begin),
        data_bytes_(data_bytes) {}

  std::vector<UnreadableTensor> take_unreadable() { return std::move(unreadable_); }

  std::vector<TensorInfo> parse(const simdjson::padded_string& header) {
    simdjson::dom::parser parser;
    simdjson::dom::object entries;
    const auto error = parser.parse(header).get(entries);
    require(!error, "{}: the header is not a JSON object: {}", file_,
            simdjson::error_message(error));
    require(entries.size() <= limits_.max_tensors + 1,
            "{}: the header has {} entries; at most {} are allowed", file_, entries.size(),
            limits_.max_tensors);
    std::unordered_set<std::string_view> seen;
    for (const auto& [key, value] : entries) {
      require(seen.insert(key).second, "{}: the tensor {} appears twice", file_, shorten(key));
      if (key == "__metadata__") continue;
      tensors_.push_back(read_entry(key, value));
    }
    check_cover();
    std::unordered_set<std::string_view> apart;
    for (const UnreadableTensor& tensor : unreadable_) apart.insert(tensor.name);
    std::erase_if(tensors_, [&](const TensorInfo& info) { return apart.contains(info.name); });
    return std::move(tensors_);
  }

 private:
  static std::string shorten(std::string_view name) {
    return name.size() <= 200 ? std::string(name) : std::string(name.substr(0, 197)) + "...";
  }

  static std::string printable(std::string_view dtype) {
    std::string out;
    for (const char c : dtype.substr(0, 32)) out += c > ' ' && c < 127 ? c : '?';
    return out;
  }

  TensorInfo read_entry(std::string_view name, const simdjson::dom::element& value) {
    const std::string at = fmt::format("{}: the tensor {}", file_, shorten(name));
    TensorInfo info;
    info.name = name;
    info.file = index_;
    simdjson::dom::object fields;
    require(!value.get(fields), "{} is not described by an object", at);
    std::string_view dtype;
    simdjson::dom::array shape, offsets;
    require(!fields["dtype"].get(dtype), "{} has no dtype", at);
    require(!fields["shape"].get(shape), "{} has no shape", at);
    require(!fields["data_offsets"].get(offsets), "{} has no data_offsets", at);

    const auto* row = std::find_if(std::begin(kFormatNames), std::end(kFormatNames),
                                   [&](const FormatName& r) { return r.name == dtype; });
    const bool is_known = row != std::end(kFormatNames);
    const auto* other = std::find_if(std::begin(kOtherFormats), std::end(kOtherFormats),
                                     [&](const OtherFormat& r) { return r.name == dtype; });
    const bool has_size = is_known || other != std::end(kOtherFormats);
    if (is_known)
      info.dtype = row->dtype;
    else
      unreadable_.push_back({std::string(name), printable(dtype)});

    require(shape.size() <= static_cast<std::size_t>(limits_.max_rank),
            "{} has {} dimensions; at most {} are allowed", at, shape.size(), limits_.max_rank);
    std::uint64_t bytes = is_known   ? static_cast<std::uint64_t>(dtype_size(info.dtype))
                          : has_size ? other->bits
                                     : 1;
    for (const simdjson::dom::element item : shape) {
      std::uint64_t extent = 0;
      require(!item.get(extent) && extent <= kMaxExtent,
              "{} has an extent that is no integer from 0 to 2^62", at);
      require(!__builtin_mul_overflow(bytes, extent, &bytes),
              "{}: the product of its shape overflows", at);
      info.shape.push_back(static_cast<std::int64_t>(extent));
    }
    if (!is_known && has_size) bytes = bytes / 8 + (bytes % 8 != 0);
    read_span(at, offsets, has_size ? std::optional(bytes) : std::nullopt, info);
    return info;
  }

  // `bytes`: nothing for a type whose size is not known.
  void read_span(const std::string& at, simdjson::dom::array offsets,
                 std::optional<std::uint64_t> bytes, TensorInfo& info) {
    std::uint64_t ends[2] = {};
    require(offsets.size() == 2, "{}: data_offsets must be two integers", at);
    int i = 0;
    for (const simdjson::dom::element item : offsets)
      require(!item.get(ends[i++]), "{}: data_offsets must be two integers that are not negative",
              at);
    const auto [begin, end] = ends;
    require(begin <= end, "{}: data_offsets [{}, {}] are reversed", at, begin, end);
    require(end <= data_bytes_,
            "{}: data_offsets [{}, {}] lie past the end of the file, which has {} bytes of data; "
            "the file is "
            "cut short or "
            "damaged",
            at, begin, end, data_bytes_);
    require(!bytes || end - begin == *bytes,
            "{}: data_offsets [{}, {}] span {} bytes, but its shape and dtype take {}", at, begin,
            end, end - begin, bytes.value_or(0));
    info.offset = (CheckedSize(data_begin_) + begin).get();
    info.bytes = end - begin;
  }

  // Sorted by offset, each tensor must begin where the previous one ends, up to the end of the
  // file.
  void check_cover() {
    std::sort(tensors_.begin(), tensors_.end(), [](const TensorInfo& a, const TensorInfo& b) {
      return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
    });
    std::uint64_t end = data_begin_;
    std::string last = "the header";
    for (const TensorInfo& info : tensors_) {
      require(info.offset >= end, "{}: the tensor {} overlaps {}", file_, shorten(info.name), last);
      require(info.offset == end, "{}: there is a gap of {} bytes between {} and the tensor {}",
              file_, info.offset - end, last, shorten(info.name));
      end = info.offset + info.bytes;
      last = "the tensor " + shorten(info.name);
    }
    require(end == data_begin_ + data_bytes_, "{}: {} bytes follow {}, which should be the last",
            file_, data_begin_ + data_bytes_ - end, last);
  }

  std::string_view file_;
  int index_;
  const SafetensorsLimits& limits_;
  std::uint64_t data_begin_;
  std::uint64_t data_bytes_;
  std::vector<TensorInfo> tensors_;
  std::vector<UnreadableTensor> unreadable_;
};

}  // namespace

SafetensorsFile::SafetensorsFile(File file, std::string name, int index,
                                 const SafetensorsLimits& limits)
    : file_(std::move(file)), name_(std::move(name)) {
  const std::uint64_t size = file_.size();
  std::uint64_t header_bytes = 0;  // little-endian, the only byte order of this program
  require(size >= sizeof(header_bytes) &&
              file_.read(0, std::as_writable_bytes(std::span(&header_bytes, 1))),
          "{}: {} bytes are too few for a safetensors file", name_, size);
  require(header_bytes <= limits.max_header_bytes,
          "{}: the header claims {} bytes; at most {} are allowed", name_, header_bytes,
          limits.max_header_bytes);
  require(header_bytes <= size - sizeof(header_bytes),
          "{}: the header claims {} bytes, but the file ends after {}; the file is cut short or "
          "damaged",
          name_, header_bytes, size - sizeof(header_bytes));
  simdjson::padded_string header(header_bytes);
  require(file_.read(sizeof(header_bytes),
                     std::as_writable_bytes(std::span(header.data(), header_bytes))),
          "{}: the file became shorter while it was read", name_);
  require(header_bytes > 0 && header.data()[0] == '{', "{}: the header does not begin with a brace",
          name_);

  const std::uint64_t data_begin = sizeof(header_bytes) + header_bytes;
  data_bytes_ = size - data_begin;
  HeaderParser parser(name_, index, limits, data_begin, data_bytes_);
  tensors_ = parser.parse(header);
  unreadable_ = parser.take_unreadable();
}

std::optional<MappedBytes> SafetensorsFile::map(const TensorInfo& info, std::uint64_t begin,
                                                std::uint64_t bytes) const {
  info.check_range(begin, bytes);
  return file_.map(info.offset + begin, bytes);
}

void SafetensorsFile::read(const TensorInfo& info, std::uint64_t begin,
                           std::span<std::byte> out) const {
  info.check_range(begin, out.size());
  require(file_.read(info.offset + begin, out),
          "{}: the tensor {} is cut short: the file became shorter", name_, info.name);
}

}  // namespace sluice
