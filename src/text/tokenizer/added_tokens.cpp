#include "text/tokenizer/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"

namespace sluice {
namespace {

bool ends_in_word(std::string_view text) {
  return !text.empty() && is_word(last_character(text));
}

bool begins_in_word(std::string_view text) {
  int size = 0;
  return !text.empty() && is_word(decode_utf8(text, size));
}

// The beginning of the white space at the end of text[floor, ...).
std::size_t trailing_space(std::string_view text, std::size_t floor) {
  std::size_t end = text.size();
  while (end > floor) {
    std::size_t start = end - 1;
    while (start > floor && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    int size = 0;
    if (!is_white_space(decode_utf8(text.substr(start), size))) break;
    end = start;
  }
  return end;
}

std::size_t leading_space(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    int size = 0;
    if (!is_white_space(decode_utf8(text.substr(at), size))) break;
    at += size;
  }
  return at;
}

}  // namespace

std::int32_t AddedTokenMatcher::child_of(std::int32_t node, unsigned char byte) const {
  std::int32_t child = nodes_[node].child;
  while (child >= 0 && nodes_[child].byte != byte) child = nodes_[child].sibling;
  return child;
}

void AddedTokenMatcher::add(const AddedToken& token, std::string_view content) {
  if (content.empty()) return;
  const auto make = [&](unsigned char byte) {
    nodes_.push_back({.byte = byte});
    return static_cast<std::int32_t>(nodes_.size() - 1);
  };
  std::int32_t& root = roots_[static_cast<unsigned char>(content[0])];
  if (root < 0) root = make(static_cast<unsigned char>(content[0]));
  std::int32_t node = root;
  for (const char c : content.substr(1)) {
    const auto byte = static_cast<unsigned char>(c);
    std::int32_t child = child_of(node, byte);
    if (child < 0) {
      child = make(byte);
      nodes_[child].sibling = nodes_[node].child;
      nodes_[node].child = child;
    }
    node = child;
  }
  if (nodes_[node].token >= 0)
    return;  // two contents may be equal after normalisation: the first one stays
  nodes_[node].token = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(token);
}

AddedTokenMatcher::Hit AddedTokenMatcher::longest_at(std::string_view text, std::size_t at) const {
  Hit hit{at, -1};
  std::int32_t node = roots_[static_cast<unsigned char>(text[at])];
  while (node >= 0) {
    ++at;
    if (nodes_[node].token >= 0) hit = {at, nodes_[node].token};
    node = at < text.size() ? child_of(node, static_cast<unsigned char>(text[at])) : -1;
  }
  return hit;
}

std::vector<AddedTokenMatcher::Part> AddedTokenMatcher::split(std::string_view text,
                                                              bool skip_special) const {
  std::vector<Part> parts;
  std::size_t covered = 0;
  // end of the last run of white space; from its token to there is only space
  std::size_t space_end = 0;
  for (std::size_t at = 0; at < text.size() && !empty();) {
    const Hit hit = longest_at(text, at);
    if (hit.token < 0) {
      ++at;
      continue;
    }
    // A match that is rejected below still uses up its text.
    std::size_t begin = at;
    std::size_t end = hit.end;
    at = hit.end;
    const AddedToken& token = tokens_[hit.token];
    if (skip_special && token.special) continue;
    if (token.single_word &&
        (ends_in_word(text.substr(0, begin)) || begins_in_word(text.substr(end))))
      continue;
    if (token.lstrip)
      begin = std::max(trailing_space(text.substr(0, begin), std::min(covered, begin)), covered);
    if (token.rstrip) {
      if (end > space_end) space_end = end + leading_space(text.substr(end));
      end = std::max(end, space_end);
    }
    if (covered < begin) parts.push_back({covered, begin, -1});
    parts.push_back({begin, end, token.id});
    covered = end;
  }
  if (covered < text.size()) parts.push_back({covered, text.size(), -1});
  return parts;
}

}  // namespace sluice
