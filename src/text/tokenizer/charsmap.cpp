#include "text/tokenizer/charsmap.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "text/text_growth.h"
#include "text/unicode.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxBlobBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxReplacementBytes = 1024;
// clusters of at least this size are replaced character by character
constexpr std::size_t kMaxClusterBytes = 6;

// A unit of the double array.
bool has_leaf(std::uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
std::uint32_t label(std::uint32_t unit) {
  return unit & (1u << 31 | 0xFF);
}
std::uint32_t offset(std::uint32_t unit) {
  return (unit >> 10) << ((unit & (1u << 9)) >> 6);
}
std::uint32_t value(std::uint32_t unit) {
  return unit & ((1u << 31) - 1);
}

}  // namespace

Charsmap::Charsmap(std::string_view blob, std::string_view what) : may_begin_(256, 0) {
  require(blob.size() >= 4 && blob.size() <= kMaxBlobBytes,
          "{}: a precompiled_charsmap of {} bytes; allowed are 4 to {}", what, blob.size(),
          kMaxBlobBytes);
  std::uint32_t trie_bytes = 0;
  std::memcpy(&trie_bytes, blob.data(), 4);
  require(trie_bytes <= blob.size() - 4 && trie_bytes % 4 == 0 && trie_bytes >= 4,
          "{}: precompiled_charsmap says that its trie has {} bytes; {} follow, and it must be a "
          "multiple of 4",
          what, trie_bytes, blob.size() - 4);
  units_.resize(trie_bytes / 4);
  std::memcpy(units_.data(), blob.data() + 4, trie_bytes);
  replacements_ = blob.substr(4 + trie_bytes);
  require(is_valid_utf8(replacements_),
          "{}: the replacements of precompiled_charsmap are not UTF-8", what);
  for (std::size_t at = 0; at < replacements_.size();) {
    const std::size_t end = std::min(replacements_.find('\0', at), replacements_.size());
    require(end - at <= kMaxReplacementBytes,
            "{}: precompiled_charsmap has a replacement of {} bytes; at most {} are allowed", what,
            end - at, kMaxReplacementBytes);
    at = end + 1;
  }
  for (int byte = 1; byte < 256; ++byte) {
    const std::size_t node = offset(units_[0]) ^ static_cast<std::uint32_t>(byte);
    may_begin_[static_cast<std::size_t>(byte)] =
        node < units_.size() && label(units_[node]) == static_cast<std::uint32_t>(byte);
  }
}

Charsmap::Hit Charsmap::find(std::string_view text, bool shortest) const {
  Hit hit;
  std::size_t node = offset(units_[0]);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0) break;
    node ^= byte;
    if (node >= units_.size() || label(units_[node]) != byte) break;
    const std::uint32_t unit = units_[node];
    node ^= offset(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size()) break;
    const std::size_t at = value(units_[node]);
    // An offset inside a character, or out of range, means no replacement.
    if (at >= replacements_.size() ||
        (static_cast<unsigned char>(replacements_[at]) & 0xC0) == 0x80)
      continue;
    const char* begin = replacements_.data() + at;
    hit = {i + 1, std::string_view(begin, strnlen(begin, replacements_.size() - at))};
    if (shortest) break;
  }
  return hit;
}

bool Charsmap::replace(std::string_view chunk, std::string& out) const {
  if (!may_begin_[static_cast<unsigned char>(chunk[0])]) return false;
  const Hit hit = find(chunk, true);
  if (hit.length == 0) return false;
  out += hit.replacement;
  return true;
}

std::string Charsmap::apply(std::string_view text) const {
  const std::size_t size_before = text.size();
  std::string out;
  out.reserve(size_before);
  const auto by_characters = [&](std::string_view cluster) {
    while (!cluster.empty()) {
      const std::string_view one =
          cluster.substr(0, utf8_length(static_cast<unsigned char>(cluster[0])));
      if (!replace(one, out)) out += one;
      cluster.remove_prefix(one.size());
    }
  };
  while (!text.empty()) {
    // Between two ASCII characters there is a boundary, except in CR LF.
    const bool plain =
        text.size() > 1 && static_cast<signed char>(text[0] | text[1]) >= 0 && text[0] != '\r';
    std::size_t end = 1;
    if (!plain) {
      int size = 0;
      auto last = static_cast<utf8proc_int32_t>(decode_utf8(text, size));
      end = static_cast<std::size_t>(size);
      utf8proc_int32_t state = 0;
      while (end < text.size()) {
        const auto next = static_cast<utf8proc_int32_t>(decode_utf8(text.substr(end), size));
        if (utf8proc_grapheme_break_stateful(last, next, &state)) break;
        end += static_cast<std::size_t>(size);
        last = next;
      }
    }
    const std::string_view cluster = text.substr(0, end);
    if (end >= kMaxClusterBytes || !replace(cluster, out)) by_characters(cluster);
    check_growth(size_before, out.size());
    text.remove_prefix(end);
  }
  return out;
}

}  // namespace sluice
