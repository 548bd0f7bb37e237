#include "server/api/text_offsets.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice {
namespace {

std::vector<std::size_t> offsets_of(const std::vector<std::string>& tokens) {
  TextOffsets offsets;
  std::vector<std::size_t> out;
  for (const std::string& token : tokens) out.push_back(offsets.add(token));
  return out;
}

using Offsets = std::vector<std::size_t>;

TEST(TextOffsets, TokensOfOneCharacterBeginWhereItDoes) {
  EXPECT_EQ(offsets_of({"a", "bc", "d"}), (Offsets{0, 1, 3}));
  EXPECT_EQ(offsets_of({"a", "\xF0", "\x9F", "\xA6", "\x8A", "b"}), (Offsets{0, 1, 1, 1, 1, 2}));
  // A token that ends a character and begins the next one.
  EXPECT_EQ(offsets_of({"\xC3", "\xA9\xC3", "\xA9", "x"}), (Offsets{0, 0, 1, 2}));
  // What no byte can complete shows as one U+FFFD.
  EXPECT_EQ(offsets_of({"\xF0\x9F", "a", "\x80", "b"}), (Offsets{0, 0, 2, 3}));
  EXPECT_EQ(num_characters("a\xC3\xA9\xF0\x9F\xA6\x8A\xFF"), 4u);
}

TEST(TextOffsets, PromptsWithoutTheTokensThatWereAddedToThem) {
  PromptOffsets bos("ab c");
  EXPECT_EQ(bos.add("<s>", true), 0u);
  EXPECT_EQ(bos.add(" ab", false), 0u);  // a space that SentencePiece puts before the text
  EXPECT_EQ(bos.add(" c", false), 2u);
  PromptOffsets written("<s>ab");
  EXPECT_EQ(written.add("<s>", true), 0u);
  EXPECT_EQ(written.add("ab", false), 3u);
  EXPECT_EQ(written.add("</s>", true), 5u);
}

}  // namespace
}  // namespace sluice
