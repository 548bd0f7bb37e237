#include "server/api/text_offsets.h"

#include "text/unicode.h"

namespace sluice {

std::size_t TextOffsets::add(std::string_view bytes) {
  const std::size_t offset = characters_;
  begun_.append(bytes);
  std::string_view rest = begun_;
  while (!rest.empty()) {
    const Utf8Step step = next_utf8(rest);
    if (step.kind == Utf8Step::kIncomplete) break;
    ++characters_;
    rest.remove_prefix(static_cast<std::size_t>(step.size));
  }
  begun_ = std::string(rest);
  return offset;
}

void TextOffsets::begin_at(std::size_t characters) {
  characters_ = characters;
  begun_.clear();
}

std::size_t num_characters(std::string_view text) {
  std::size_t count = 0;
  for (; !text.empty(); ++count) text.remove_prefix(static_cast<std::size_t>(next_utf8(text).size));
  return count;
}

std::size_t PromptOffsets::add(std::string_view bytes, bool special) {
  const bool added_space = !begun_ && !rest_.starts_with(bytes) && bytes.starts_with(' ') &&
                           rest_.starts_with(bytes.substr(1));
  if (added_space) bytes.remove_prefix(1);
  if (rest_.starts_with(bytes))
    rest_.remove_prefix(bytes.size());
  else if (special)
    return offsets_.add_hidden();
  begun_ = true;
  return offsets_.add(bytes);
}

}  // namespace sluice
