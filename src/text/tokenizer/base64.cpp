#include "text/tokenizer/base64.h"

#include <array>
#include <cstdint>

namespace sluice {
namespace {

constexpr std::array<std::int8_t, 256> kDigits = [] {
  std::array<std::int8_t, 256> digits{};
  digits.fill(-1);
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (std::size_t i = 0; i < kAlphabet.size(); ++i)
    digits[static_cast<unsigned char>(kAlphabet[i])] = static_cast<std::int8_t>(i);
  return digits;
}();

}  // namespace

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.size() % 4 == 0)
    for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  if (text.size() % 4 == 1) return std::nullopt;
  std::string out;
  out.reserve(text.size() / 4 * 3 + 2);
  std::uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    const int digit = kDigits[static_cast<unsigned char>(c)];
    if (digit < 0) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    out.push_back(static_cast<char>(bits >> num_bits & 0xFF));
  }
  return out;
}

}  // namespace sluice
