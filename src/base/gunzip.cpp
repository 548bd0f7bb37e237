#include "base/gunzip.h"

#include <array>
#include <cstdint>
#include <vector>

#include "base/error.h"

namespace sluice {
namespace {

// A canonical Huffman code: symbols in the order of their codes, and how many have each length.
struct Code {
  std::array<std::uint16_t, 16> count{};
  std::vector<std::uint16_t> symbols;

  explicit Code(const std::vector<std::uint8_t>& lengths) {
    for (const std::uint8_t length : lengths) ++count[length];
    count[0] = 0;
    std::array<std::uint16_t, 17> next{};
    for (std::size_t i = 1; i < 16; ++i)
      next[i + 1] = static_cast<std::uint16_t>(next[i] + count[i]);
    symbols.resize(lengths.size());
    for (std::size_t i = 0; i < lengths.size(); ++i)
      if (lengths[i] != 0) symbols[next[lengths[i]]++] = static_cast<std::uint16_t>(i);
  }
};

class Inflater {
 public:
  Inflater(std::string_view bytes, std::string_view what, std::size_t max_bytes)
      : bytes_(bytes), what_(what), max_bytes_(max_bytes) {}

  std::string run() {
    do member();
    while (at_ < bytes_.size());
    return std::move(out_);
  }

 private:
  void need(bool condition) const { require(condition, "{}: the gzip file is damaged", what_); }
  std::uint8_t byte() {
    need(at_ < bytes_.size());
    return static_cast<std::uint8_t>(bytes_[at_++]);
  }
  std::uint32_t bits(int count) {
    while (num_bits_ < count) {
      hold_ |= std::uint32_t{byte()} << num_bits_;
      num_bits_ += 8;
    }
    const std::uint32_t value = hold_ & ((1u << count) - 1);
    hold_ >>= count;
    num_bits_ -= count;
    return value;
  }
  std::uint16_t symbol(const Code& code) {
    std::uint32_t value = 0, first = 0, index = 0;
    for (std::size_t length = 1; length < 16; ++length) {
      value |= bits(1);
      const std::uint32_t count = code.count[length];
      if (value < first + count) return code.symbols[index + value - first];
      index += count;
      first = (first + count) << 1;
      value <<= 1;
    }
    need(false);
    return 0;
  }
  void put(char c) {
    require(out_.size() < max_bytes_, "{}: more than {} bytes are in the gzip file", what_,
            max_bytes_);
    out_ += c;
  }

  void member() {
    need(bytes_.size() - at_ >= 18 && byte() == 0x1F && byte() == 0x8B && byte() == 8);
    const std::uint8_t flags = byte();
    at_ += 6;
    if ((flags & 4) != 0) {
      const std::size_t low = byte();
      at_ += low | std::size_t{byte()} << 8;
    }
    for (const int text : {8, 16})
      if ((flags & text) != 0)
        while (byte() != 0) {
        }
    if ((flags & 2) != 0) at_ += 2;
    hold_ = 0;
    num_bits_ = 0;
    const std::size_t begin = out_.size();
    while (!block()) {
    }
    std::uint32_t size = 0;
    at_ += 4;
    for (int i = 0; i < 4; ++i) size |= std::uint32_t{byte()} << 8 * i;
    need(size == static_cast<std::uint32_t>(out_.size() - begin));
  }

  // True: it was the last.
  bool block() {
    const bool is_last = bits(1) != 0;
    switch (bits(2)) {
      case 0:
        stored();
        break;
      case 1:
        fixed();
        break;
      case 2:
        dynamic();
        break;
      default:
        need(false);
    }
    return is_last;
  }

  void stored() {
    hold_ = 0;
    num_bits_ = 0;
    const std::size_t low = byte();
    const std::size_t size = low | std::size_t{byte()} << 8;
    at_ += 2;
    for (std::size_t i = 0; i < size; ++i) put(static_cast<char>(byte()));
  }

  void fixed() {
    std::vector<std::uint8_t> lengths(288, 8);
    for (std::size_t i = 144; i < 256; ++i) lengths[i] = 9;
    for (std::size_t i = 256; i < 280; ++i) lengths[i] = 7;
    codes(Code(lengths), Code(std::vector<std::uint8_t>(30, 5)));
  }

  void dynamic() {
    static constexpr std::uint8_t kOrder[] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                              11, 4,  12, 3, 13, 2, 14, 1, 15};
    const std::uint32_t num_literals = bits(5) + 257, num_distances = bits(5) + 1,
                        num_lengths = bits(4) + 4;
    std::vector<std::uint8_t> lengths(19);
    for (std::uint32_t i = 0; i < num_lengths; ++i)
      lengths[kOrder[i]] = static_cast<std::uint8_t>(bits(3));
    const Code code(lengths);
    lengths.clear();
    while (lengths.size() < num_literals + num_distances) {
      const std::uint16_t value = symbol(code);
      if (value < 16) {
        lengths.push_back(static_cast<std::uint8_t>(value));
        continue;
      }
      need(value != 16 || !lengths.empty());
      const std::uint8_t repeated = value == 16 ? lengths.back() : std::uint8_t{0};
      const std::uint32_t times = value == 16   ? 3 + bits(2)
                                  : value == 17 ? 3 + bits(3)
                                                : 11 + bits(7);
      lengths.insert(lengths.end(), times, repeated);
    }
    need(lengths.size() == num_literals + num_distances);
    const auto middle = lengths.begin() + static_cast<std::ptrdiff_t>(num_literals);
    codes(Code({lengths.begin(), middle}), Code({middle, lengths.end()}));
  }

  void codes(const Code& literals, const Code& distances) {
    static constexpr std::uint16_t kLength[] = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                                15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                                67, 83, 99, 115, 131, 163, 195, 227, 258};
    static constexpr std::uint8_t kLengthBits[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                                   2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    static constexpr std::uint16_t kDistance[] = {
        1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
        193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    while (true) {
      const std::uint16_t value = symbol(literals);
      if (value < 256) {
        put(static_cast<char>(value));
        continue;
      }
      if (value == 256) return;
      need(value < 286);
      const std::size_t length = kLength[value - 257] + bits(kLengthBits[value - 257]);
      const std::uint16_t distance_code = symbol(distances);
      need(distance_code < 30);
      const int extra = distance_code < 4 ? 0 : distance_code / 2 - 1;
      const std::size_t distance = kDistance[distance_code] + bits(extra);
      need(distance <= out_.size());
      for (std::size_t i = 0; i < length; ++i) put(out_[out_.size() - distance]);
    }
  }

  const std::string_view bytes_, what_;
  const std::size_t max_bytes_;
  std::string out_;
  std::size_t at_ = 0;
  std::uint32_t hold_ = 0;
  int num_bits_ = 0;
};

}  // namespace

bool is_gzip(std::string_view bytes) {
  return bytes.starts_with("\x1F\x8B");
}

std::string gunzip(std::string_view bytes, std::string_view what, std::size_t max_bytes) {
  return Inflater(bytes, what, max_bytes).run();
}

}  // namespace sluice
