// Rules of tokenizer files that lengthen texts: thirty rules that each double a text would make
// gigabytes of a word.
#include "text/text_growth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/json.h"
#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/sentencepiece_normalizer.h"
#include "text/tokenizer/tokenizer.h"

namespace sluice {
namespace {

using testing::HasSubstr;

// The test needs no tokens for the bytes: bytes without a token are dropped.
Json small_file() {
  return {{"normalizer", nullptr},
          {"pre_tokenizer", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model",
           {{"type", "BPE"},
            {"vocab", {{"a", 0}, {"b", 1}, {"aa", 2}}},
            {"merges", Json::array({"a a"})}}}};
}

template <class Act>
void expect_stopped(const char* name, Act act) {
  try {
    act();
    ADD_FAILURE() << name << ": went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput) << name;
    EXPECT_THAT(error.message(), HasSubstr("allowed are 64 times its length")) << name;
  }
}

TEST(TextGrowth, RulesOfATokenizerJsonAreStopped) {
  const Json doubling = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  const Json byte_map = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const auto sequence = [](const char* member, const Json& step, std::size_t count) {
    return Json{{"type", "Sequence"}, {member, Json(count, step)}};
  };
  const struct {
    const char* field;
    Json value;
  } rows[] = {
      {"normalizer", sequence("normalizers", doubling, 30)},
      {"normalizer", sequence("normalizers", Json{{"type", "ByteLevel"}}, 30)},
      {"normalizer",
       {{"type", "Replace"}, {"pattern", {{"Regex", ""}}}, {"content", std::string(200, 'a')}}},
      {"normalizer",
       {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1000, 'a')}}},
      {"normalizer", {{"type", "Prepend"}, {"prepend", std::string(100'000, 'a')}}},
      {"pre_tokenizer", sequence("pretokenizers", byte_map, 30)},
  };
  std::string text;
  for (int i = 0; i < 20; ++i) text += "banana \xC3\xA9";
  for (const auto& row : rows) {
    Json file = small_file();
    file[row.field] = row.value;
    const auto tokenizer = Tokenizer::from_json(dump_json(file), "t");
    expect_stopped(row.field, [&] { tokenizer->encode(text); });
  }
  Json file = small_file();
  file["normalizer"] = sequence("normalizers", doubling, 3);
  EXPECT_EQ(Tokenizer::from_json(dump_json(file), "t")->encode("ba"),
            (std::vector<std::int32_t>{1, 2, 2, 2, 2}));
}

// A map of 'A' to `replacement`: the double array has the root, the node of 'A' and its leaf.
std::string map_of_a(const std::string& replacement) {
  std::uint32_t units[66] = {};
  // a leaf follows, at the unit of 'A' with its lowest bit flipped
  units['A'] = 'A' | 1u << 8 | 1u << 10;
  units['A' ^ 1] = 1u << 31;  // the replacement begins at byte 0
  const std::uint32_t size = sizeof units;
  std::string blob(4 + size, '\0');
  std::memcpy(blob.data(), &size, 4);
  std::memcpy(blob.data() + 4, units, size);
  return blob + replacement + '\0';
}

TEST(TextGrowth, CharacterMapsAreStopped) {
  EXPECT_EQ(Charsmap(map_of_a("xy"), "t").apply("bAbA"), "bxybxy");
  const Charsmap map(map_of_a(std::string(1000, 'x')), "t");
  EXPECT_EQ(map.apply("A").size(), 1000u);
  expect_stopped("clusters", [&] { map.apply(std::string(1000, 'A')); });
  const SentencePieceNormalizer normalizer({}, map, {});
  EXPECT_EQ(normalizer.apply("A", true).size(), 1003u);
  expect_stopped("SentencePiece", [&] { normalizer.apply(std::string(1000, 'A'), true); });
  try {
    Charsmap(map_of_a(std::string(2000, 'x')), "dir/file");
    ADD_FAILURE() << "loaded";
  } catch (const Error& error) {
    EXPECT_THAT(
        error.message(),
        HasSubstr("dir/file: precompiled_charsmap has a replacement of 2000 bytes; at most 1024"));
  }
}

}  // namespace
}  // namespace sluice
