#include "server/core/pair_template.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/source_dir.h"

namespace sluice {
namespace {

using Ids = std::vector<std::int32_t>;

Ids joined(const char* processor, std::vector<std::uint8_t>* types = nullptr) {
  const PairTemplate pair = PairTemplate::of(parse_json_or_throw(processor, "test"));
  Ids ids;
  std::vector<std::uint8_t> own;
  pair.join({10, 11}, {20}, ids, types ? *types : own);
  EXPECT_EQ(ids.size(), pair.num_special() + 3);
  return ids;
}

TEST(PairTemplate, EveryKindOfProcessorJoinsAsItsLibraryDoes) {
  std::vector<std::uint8_t> types;
  EXPECT_EQ(
      joined(R"({"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]})", &types),
      (Ids{2, 10, 11, 3, 20, 3}));
  EXPECT_EQ(types, (std::vector<std::uint8_t>{0, 0, 0, 0, 1, 1}));
  types.clear();
  EXPECT_EQ(
      joined(R"({"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0]})", &types),
      (Ids{0, 10, 11, 2, 2, 20, 2}));
  EXPECT_EQ(types, std::vector<std::uint8_t>(7, 0));
  types.clear();
  constexpr const char* kTemplate = R"({"type": "TemplateProcessing", "single": [], "pair": [
      {"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
      {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
      "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [5, 6]},
                         "[SEP]": {"id": "[SEP]", "ids": [7]}}})";
  EXPECT_EQ(joined(kTemplate, &types), (Ids{5, 6, 10, 11, 20, 7}));
  EXPECT_EQ(types, (std::vector<std::uint8_t>{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(joined(R"({"type": "ByteLevel"})"), (Ids{10, 11, 20}));
  EXPECT_EQ(joined("null"), (Ids{10, 11, 20}));
  EXPECT_EQ(joined((std::string(R"({"type": "Sequence", "processors": [{"type": "ByteLevel"}, )") +
                    kTemplate + "]}")
                       .c_str()),
            (Ids{5, 6, 10, 11, 20, 7}));
}

TEST(PairTemplate, WhatIsNoTemplateIsRefused) {
  for (const char* text :
       {R"({"type": "Magic"})", R"({})", "3", R"({"type": "BertProcessing"})",
        R"({"type": "BertProcessing", "sep": ["x", -1], "cls": ["y", 2]})",
        R"({"type": "TemplateProcessing"})", R"({"type": "TemplateProcessing", "pair": [3]})",
        R"({"type": "TemplateProcessing", "pair": [{"SpecialToken": {"id": "x"}}]})",
        R"({"type": "TemplateProcessing", "pair": [{"Sequence": {"id": "A", "type_id": 1e9}}]})",
        R"({"type": "Sequence"})"})
    EXPECT_THROW(PairTemplate::of(parse_json_or_throw(text, "test")), Error) << text;
}

TEST(PairTemplate, TheLongerTextIsCutFirst) {
  Ids first = {1, 2, 3, 4, 5}, second = {6, 7};
  cut_longest_first(4, first, second);
  EXPECT_EQ(first, (Ids{1, 2}));
  EXPECT_EQ(second, (Ids{6, 7}));
  cut_longest_first(1, first, second);
  EXPECT_EQ(first.size() + second.size(), 1u);
  cut_longest_first(5, first, second);
  EXPECT_EQ(first.size() + second.size(), 1u);
}

TEST(PairTemplate, ATokenizersFileIsRead) {
  const PairTemplate pair =
      PairTemplate::load(source_dir() + "/tests/golden/tokenizers/bert-wordpiece");
  Ids ids;
  std::vector<std::uint8_t> types;
  pair.join({10}, {20}, ids, types);
  EXPECT_EQ(ids, (Ids{2, 10, 3, 20, 3}));
  EXPECT_EQ(types, (std::vector<std::uint8_t>{0, 0, 0, 1, 1}));
  EXPECT_THROW(PairTemplate::load("/nowhere"), Error);
}

}  // namespace
}  // namespace sluice
