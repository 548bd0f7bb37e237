#include "checkpoint/gguf/gguf_file.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "checkpoint/gguf/gguf_parser.h"
#include "checkpoint/gguf/gguf_types.h"

namespace sluice {
namespace {

template <class T>
T load(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

// An integer of the given type; nothing for a uint64 beyond int64.
std::optional<std::int64_t> integer_of(std::uint32_t type, const char* bytes) {
  switch (type) {
    case 0:
      return load<std::uint8_t>(bytes);
    case 1:
      return load<std::int8_t>(bytes);
    case 2:
      return load<std::uint16_t>(bytes);
    case 3:
      return load<std::int16_t>(bytes);
    case 4:
      return load<std::uint32_t>(bytes);
    case 5:
      return load<std::int32_t>(bytes);
    case 11:
      return load<std::int64_t>(bytes);
    case 10: {
      const auto value = load<std::uint64_t>(bytes);
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        return std::nullopt;
      return static_cast<std::int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

std::int64_t GgufTensor::rows() const {
  std::int64_t rows = 1;  // `bytes` is at least this number and was checked
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

std::string_view GgufTensor::type_name() const {
  if (!unreadable.empty()) return unreadable;
  return blocks ? block_type_name(*blocks) : dtype_name(dtype);
}

GgufFile::GgufFile(File file, std::string name, const GgufLimits& limits)
    : file_(std::move(file)), name_(std::move(name)) {
  GgufParser(*this, limits).parse();
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

const GgufFile::Value* GgufFile::find(std::string_view key) const {
  const auto it = values_.find(key);
  if (it == values_.end()) return nullptr;
  it->second.is_read = true;
  return &it->second;
}

std::string GgufFile::shown(std::string_view key) const {
  const Value* value = find(key);
  if (value == nullptr) return "";
  if (value->is_array) return fmt::format("an array of {} values", value->count);
  if (value->type == kGgufString) return std::string(string_at(value->at));
  const char* bytes = header_.data() + value->at;
  if (value->type == 10) return std::to_string(load<std::uint64_t>(bytes));
  if (const auto integer = integer_of(value->type, bytes)) return std::to_string(*integer);
  if (kGgufValueTypes[value->type].kind == GgufValueKind::kFloat)
    return fmt::format("{}", value->type == 6 ? load<float>(bytes) : load<double>(bytes));
  return *bytes != 0 ? "true" : "false";
}

std::vector<std::string> GgufFile::unread_keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : values_)
    if (!value.is_read) keys.emplace_back(key);
  std::sort(keys.begin(), keys.end());
  return keys;
}

void GgufFile::reject(std::string_view key, const Value& value, std::string_view wanted) const {
  fail(ErrorKind::kBadInput, "{}: {} is {}{}; it must be {}", name_, key,
       value.is_array ? "an array of " : "of type ", kGgufValueTypes[value.type].name, wanted);
}

const GgufFile::Value* GgufFile::find_scalar(std::string_view key, std::string_view wanted) const {
  const Value* value = find(key);
  if (value != nullptr && value->is_array) reject(key, *value, wanted);
  return value;
}

const GgufFile::Value* GgufFile::find_array(std::string_view key, std::string_view wanted) const {
  const Value* value = find(key);
  if (value != nullptr && !value->is_array) reject(key, *value, wanted);
  return value;
}

std::optional<std::int64_t> GgufFile::find_integer(std::string_view key) const {
  const Value* value = find_scalar(key, "an integer");
  if (value == nullptr) return std::nullopt;
  const auto integer = integer_of(value->type, header_.data() + value->at);
  if (!integer) reject(key, *value, "an integer below 2^63");
  return integer;
}

double GgufFile::number_at(std::string_view key, const Value& value, std::uint64_t at) const {
  const char* bytes = header_.data() + at;
  if (kGgufValueTypes[value.type].kind == GgufValueKind::kFloat) {
    const double number = value.type == 6 ? load<float>(bytes) : load<double>(bytes);
    require(std::isfinite(number), "{}: {} is {}; it must be a finite number", name_, key, number);
    return number;
  }
  const auto integer = integer_of(value.type, bytes);
  if (!integer) reject(key, value, "a number");
  return static_cast<double>(*integer);
}

std::optional<double> GgufFile::find_number(std::string_view key) const {
  const Value* value = find_scalar(key, "a number");
  return value == nullptr ? std::nullopt : std::optional(number_at(key, *value, value->at));
}

std::optional<std::vector<double>> GgufFile::find_numbers(std::string_view key) const {
  const Value* value = find_array(key, "an array of numbers");
  if (value == nullptr) return std::nullopt;
  const GgufValueKind kind = kGgufValueTypes[value->type].kind;
  if (kind != GgufValueKind::kFloat && kind != GgufValueKind::kInteger)
    reject(key, *value, "an array of numbers");
  std::vector<double> numbers;
  numbers.reserve(value->count);
  for (std::uint64_t i = 0; i < value->count; ++i)
    numbers.push_back(number_at(key, *value, value->at + i * kGgufValueTypes[value->type].bytes));
  return numbers;
}

std::optional<bool> GgufFile::find_bool(std::string_view key) const {
  const Value* value = find_scalar(key, "a bool");
  if (value == nullptr) return std::nullopt;
  if (kGgufValueTypes[value->type].kind != GgufValueKind::kBool) reject(key, *value, "a bool");
  return header_[value->at] != 0;
}

std::string_view GgufFile::string_at(std::uint64_t at) const {
  return std::string_view(header_).substr(at + 8, load<std::uint64_t>(header_.data() + at));
}

std::optional<std::string_view> GgufFile::find_string(std::string_view key) const {
  const Value* value = find_scalar(key, "a string");
  if (value == nullptr) return std::nullopt;
  if (value->type != kGgufString) reject(key, *value, "a string");
  return string_at(value->at);
}

std::optional<std::vector<std::string_view>> GgufFile::find_strings(std::string_view key) const {
  const Value* value = find_array(key, "an array of strings");
  if (value == nullptr) return std::nullopt;
  if (value->type != kGgufString) reject(key, *value, "an array of strings");
  std::vector<std::string_view> strings;
  strings.reserve(value->count);  // the parser walked them all
  std::uint64_t at = value->at;
  for (std::uint64_t i = 0; i < value->count; ++i) {
    strings.push_back(string_at(at));
    at += 8 + strings.back().size();
  }
  return strings;
}

std::optional<std::vector<std::int64_t>> GgufFile::find_integers(std::string_view key) const {
  const Value* value = find_array(key, "an array of integers");
  if (value == nullptr) return std::nullopt;
  if (kGgufValueTypes[value->type].kind != GgufValueKind::kInteger)
    reject(key, *value, "an array of integers");
  std::vector<std::int64_t> integers;
  integers.reserve(value->count);
  const std::uint64_t size = kGgufValueTypes[value->type].bytes;
  for (std::uint64_t i = 0; i < value->count; ++i) {
    const auto integer = integer_of(value->type, header_.data() + value->at + i * size);
    if (!integer) reject(key, *value, "an array of integers below 2^63");
    integers.push_back(*integer);
  }
  return integers;
}

std::optional<std::vector<std::int64_t>> GgufFile::find_flags(std::string_view key) const {
  const Value* value = find_array(key, "an array of integers or bools");
  if (value == nullptr) return std::nullopt;
  if (kGgufValueTypes[value->type].kind != GgufValueKind::kBool) return find_integers(key);
  std::vector<std::int64_t> flags;
  flags.reserve(value->count);
  for (std::uint64_t i = 0; i < value->count; ++i)
    flags.push_back(header_[value->at + i] != 0 ? 1 : 0);
  return flags;
}

bool GgufFile::is_array(std::string_view key) const {
  const auto it = values_.find(key);
  return it != values_.end() && it->second.is_array;
}

std::int64_t GgufFile::required_integer(std::string_view key) const {
  const auto value = find_integer(key);
  require(value.has_value(), "{}: the key {} is missing; it must be an integer", name_, key);
  return *value;
}

std::string_view GgufFile::required_string(std::string_view key) const {
  const auto value = find_string(key);
  require(value.has_value(), "{}: the key {} is missing; it must be a string", name_, key);
  return *value;
}

void GgufFile::read(const GgufTensor& tensor, std::uint64_t begin, std::span<std::byte> out) const {
  check(begin <= tensor.bytes && out.size() <= tensor.bytes - begin,
        "{} bytes at {} of {}, which has {}", out.size(), begin, tensor.name, tensor.bytes);
  require(file_.read(tensor.offset + begin, out),
          "{}: the tensor {} is cut short: the file became shorter", name_, tensor.name);
}

bool is_gguf_path(std::string_view path) {
  constexpr std::string_view kEnding = ".gguf";
  if (path.size() <= kEnding.size()) return false;
  const std::string_view end = path.substr(path.size() - kEnding.size());
  return std::equal(end.begin(), end.end(), kEnding.begin(), [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == b;
  });
}

}  // namespace sluice
