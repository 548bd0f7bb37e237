#include "checkpoint/gguf/gguf_file.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "base/testing/folder.h"
#include "checkpoint/testing/gguf_writer.h"

namespace sluice {
namespace {

class Opened {
 public:
  explicit Opened(const std::string& bytes, const GgufLimits& limits = {}) {
    folder_.write("x.gguf", bytes);
    file.emplace(open_regular_file(folder_.path() + "/x.gguf"), "x.gguf", limits);
  }
  std::optional<GgufFile> file;

 private:
  TestFolder folder_;
};

// The message of the error that opening `bytes` raises; empty when it raises none.
std::string refusal(const std::string& bytes, const GgufLimits& limits = {}) {
  try {
    Opened opened(bytes, limits);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBadInput) << error.what();
    return error.message();
  }
  return "";
}

template <class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

GgufWriter small_file() {
  GgufWriter writer;
  writer.text("general.architecture", "llama").number("n", std::uint32_t{7});
  writer.floats("a", {2, 3}, {1, 2, 3, 4, 5, 6});
  writer.tensor("b", {4}, 1, std::string("\x00\x3c\x00\x40\x00\xc0\x00\x00", 8));
  return writer;
}

TEST(GgufFile, ReadsValuesOfEachType) {
  GgufWriter writer;
  writer.number("u8", std::uint8_t{200})
      .number("i8", std::int8_t{-5})
      .number("u16", std::uint16_t{60000});
  writer.number("i16", std::int16_t{-300})
      .number("u32", std::uint32_t{4'000'000'000})
      .number("i32", std::int32_t{-7});
  writer.number("u64", std::uint64_t{1} << 40)
      .number("i64", std::int64_t{-1} << 40)
      .number("huge", ~std::uint64_t{0});
  writer.number("f32", 0.5f)
      .number("f64", -2.25)
      .number("yes", true)
      .text("s", "text")
      .text("empty", "");
  writer.texts("words", {"a", "", "ccc"})
      .numbers<std::int32_t>("ints", {1, -2, 3})
      .numbers<std::uint8_t>("bytes", {255});
  writer.texts("none", {});
  // [[1, 2], ["x"], []] and a depth of three.
  const std::string nested = GgufWriter::raw<std::uint32_t>(9) + GgufWriter::raw<std::uint64_t>(3) +
                             GgufWriter::raw<std::uint32_t>(0) + GgufWriter::raw<std::uint64_t>(2) +
                             "\x01\x02" + GgufWriter::raw<std::uint32_t>(8) +
                             GgufWriter::raw<std::uint64_t>(1) + GgufWriter::string("x") +
                             GgufWriter::raw<std::uint32_t>(9) + GgufWriter::raw<std::uint64_t>(0);
  writer.value("nested", 9, nested).number("after", std::uint8_t{1});
  const Opened opened(writer.bytes());
  const GgufFile& file = *opened.file;
  EXPECT_EQ(file.find_integer("u8"), 200);
  EXPECT_EQ(file.find_integer("i8"), -5);
  EXPECT_EQ(file.find_integer("u16"), 60000);
  EXPECT_EQ(file.find_integer("i16"), -300);
  EXPECT_EQ(file.find_integer("u32"), 4'000'000'000);
  EXPECT_EQ(file.find_integer("i32"), -7);
  EXPECT_EQ(file.find_integer("u64"), std::int64_t{1} << 40);
  EXPECT_EQ(file.find_integer("i64"), std::int64_t{-1} << 40);
  EXPECT_EQ(file.find_number("f32"), 0.5);
  EXPECT_EQ(file.find_number("f64"), -2.25);
  EXPECT_EQ(file.find_number("i32"), -7.0);
  EXPECT_EQ(file.find_bool("yes"), true);
  EXPECT_EQ(file.find_string("s"), "text");
  EXPECT_EQ(file.find_string("empty"), "");
  EXPECT_EQ(file.find_strings("words"), (std::vector<std::string_view>{"a", "", "ccc"}));
  EXPECT_EQ(file.find_strings("none"), std::vector<std::string_view>{});
  EXPECT_EQ(file.find_integers("ints"), (std::vector<std::int64_t>{1, -2, 3}));
  EXPECT_EQ(file.find_integers("bytes"), (std::vector<std::int64_t>{255}));
  EXPECT_TRUE(file.has("nested"));
  EXPECT_EQ(file.find_integer("after"), 1);
  EXPECT_EQ(file.find_integer("absent"), std::nullopt);
  EXPECT_EQ(file.find_strings("absent"), std::nullopt);

  EXPECT_EQ(message_of([&] { file.find_integer("s"); }),
            "x.gguf: s is of type string; it must be an integer below 2^63");
  EXPECT_EQ(message_of([&] { file.find_integer("huge"); }),
            "x.gguf: huge is of type uint64; it must be an integer below 2^63");
  EXPECT_EQ(message_of([&] { file.find_integer("ints"); }),
            "x.gguf: ints is an array of int32; it must be an integer");
  EXPECT_EQ(message_of([&] { file.find_number("yes"); }),
            "x.gguf: yes is of type bool; it must be a number");
  EXPECT_EQ(message_of([&] { file.find_bool("u8"); }),
            "x.gguf: u8 is of type uint8; it must be a bool");
  EXPECT_EQ(message_of([&] { file.find_string("u8"); }),
            "x.gguf: u8 is of type uint8; it must be a string");
  EXPECT_EQ(message_of([&] { file.find_strings("s"); }),
            "x.gguf: s is of type string; it must be an array of strings");
  EXPECT_EQ(message_of([&] { file.find_strings("ints"); }),
            "x.gguf: ints is an array of int32; it must be an array of strings");
  EXPECT_EQ(message_of([&] { file.find_integers("words"); }),
            "x.gguf: words is an array of string; it must be an array of integers");
  EXPECT_EQ(message_of([&] { file.required_integer("absent"); }),
            "x.gguf: the key absent is missing; it must be an integer");
  EXPECT_EQ(message_of([&] { file.required_string("absent"); }),
            "x.gguf: the key absent is missing; it must be a string");
}

TEST(GgufFile, ReadsTensors) {
  const Opened opened(small_file().bytes());
  const GgufTensor* a = opened.file->find_tensor("a");
  const GgufTensor* b = opened.file->find_tensor("b");
  ASSERT_TRUE(a != nullptr && b != nullptr);
  EXPECT_EQ(opened.file->find_tensor("c"), nullptr);
  EXPECT_EQ(a->shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(a->rows(), 2);
  EXPECT_EQ(a->columns(), 3);
  EXPECT_EQ(a->dtype, DType::kF32);
  EXPECT_EQ(b->dtype, DType::kF16);
  EXPECT_EQ(b->bytes, 8u);
  float row[3];
  opened.file->read(*a, 12, std::as_writable_bytes(std::span(row)));
  EXPECT_EQ(row[0], 4);
  EXPECT_EQ(row[2], 6);
}

// The header is read in pieces of 1 MiB, so some values cross a piece boundary.
TEST(GgufFile, LongHeaders) {
  GgufWriter writer;
  std::vector<std::string> words;
  for (int i = 0; i < 300'000; ++i) words.push_back("word" + std::to_string(i));
  writer.texts("words", words).text("last", "end").floats("t", {1}, {5});
  const Opened opened(writer.bytes());
  const auto read = opened.file->find_strings("words");
  ASSERT_EQ(read->size(), words.size());
  EXPECT_EQ((*read)[0], "word0");
  EXPECT_EQ((*read)[299'999], "word299999");
  EXPECT_EQ(opened.file->find_string("last"), "end");
  EXPECT_NE(refusal(writer.bytes(), {.max_header_bytes = 1 << 20}), "");
}

TEST(GgufFile, MovesWithItsKeys) {
  Opened opened(small_file().bytes());
  const GgufFile moved = std::move(*opened.file);
  EXPECT_EQ(moved.find_integer("n"), 7);
  EXPECT_NE(moved.find_tensor("b"), nullptr);
}

TEST(GgufFile, EveryCutIsRefused) {
  const std::string whole = small_file().bytes();
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(refusal(whole.substr(0, size)), "") << size;
  EXPECT_EQ(refusal(whole), "");
  EXPECT_EQ(refusal(whole + "behind the last tensor"), "");
}

TEST(GgufFile, HostileFiles) {
  const std::uint64_t max = ~std::uint64_t{0};
  const auto array = [](std::uint32_t type, std::uint64_t count) {
    return GgufWriter::raw(type) + GgufWriter::raw(count);
  };
  struct Case {
    const char* name;
    std::function<void(GgufWriter&)> change;
    const char* message;
  };
  const Case cases[] = {
      {"magic", [](GgufWriter& w) { w.magic = "GGML"; },
       "x.gguf: the file does not begin with GGUF, so it is no GGUF file"},
      {"version 1", [](GgufWriter& w) { w.version = 1; },
       "x.gguf: the file has version 1 of GGUF; only version 3 can be read: convert it again"},
      {"version 2", [](GgufWriter& w) { w.version = 2; },
       "x.gguf: the file has version 2 of GGUF; only version 3 can be read: convert it again"},
      {"big-endian", [](GgufWriter& w) { w.version = 0x03000000; },
       "x.gguf: the file is big-endian; only little-endian files can be read: convert it"},
      {"too many values", [&](GgufWriter& w) { w.num_values = max; },
       "the header claims 18446744073709551615 values"},
      {"more values", [](GgufWriter& w) { w.num_values = 3; }, ""},
      {"too many tensors", [&](GgufWriter& w) { w.num_tensors = max; },
       "the header claims 18446744073709551615 tensors"},
      {"tensors of the file", [](GgufWriter& w) { w.num_tensors = 6; },
       "the header claims 6 tensors"},
      {"type of a value", [](GgufWriter& w) { w.value("k", 13, ""); },
       "x.gguf: the value k has type number 13; known are 0 to 12"},
      {"type in an array", [&](GgufWriter& w) { w.value("k", 9, array(13, 0)); },
       "x.gguf: the value k is an array of type number 13; known are 0 to 12"},
      {"long string", [&](GgufWriter& w) { w.value("k", 8, GgufWriter::raw(max)); },
       "x.gguf: the value k claims 18446744073709551615 bytes"},
      {"long array", [&](GgufWriter& w) { w.value("k", 9, array(4, max / 4 + 1)); },
       "x.gguf: the value k claims 4611686018427387904 elements of type uint32"},
      {"long array of strings", [&](GgufWriter& w) { w.value("k", 9, array(8, 1 << 20)); },
       "x.gguf: the value k claims 1048576 elements of type string"},
      {"deep array",
       [&](GgufWriter& w) {
         std::string deep;
         for (int i = 0; i < 9; ++i) deep += array(9, 1);
         w.value("k", 9, deep + array(0, 0));
       },
       "x.gguf: the value k nests arrays deeper than 8 levels"},
      {"same key", [](GgufWriter& w) { w.number("n", true); }, "x.gguf: the key n appears twice"},
      {"empty key", [](GgufWriter& w) { w.number("", true); }, "has an empty key"},
      {"long key", [](GgufWriter& w) { w.number(std::string(1025, 'k'), true); },
       "claims 1025 bytes; at most 1024 are allowed"},
      {"same tensor", [](GgufWriter& w) { w.tensors[1].name = "a"; },
       "x.gguf: the tensor a appears twice"},
      {"empty name", [](GgufWriter& w) { w.tensors[1].name = ""; },
       "x.gguf: tensor 1 has an empty name"},
      {"no dimensions", [](GgufWriter& w) { w.tensors[0].shape = {}; },
       "x.gguf: the tensor a has 0 dimensions; allowed are 1 to 4"},
      {"five dimensions", [](GgufWriter& w) { w.tensors[0].shape = {1, 1, 1, 2, 3}; },
       "x.gguf: the tensor a has 5 dimensions; allowed are 1 to 4"},
      {"extent 0", [](GgufWriter& w) { w.tensors[0].shape = {2, 0}; },
       "x.gguf: the tensor a has the extent 0"},
      {"extent 2^63", [](GgufWriter& w) { w.tensors[0].shape = {std::uint64_t{1} << 63, 2}; },
       "x.gguf: the tensor a has the extent 9223372036854775808"},
      {"product", [](GgufWriter& w) { w.tensors[0].shape = {1ull << 31, 1ull << 31, 4}; },
       "x.gguf: the tensor a of [2147483648, 2147483648, 4] float32 takes more bytes than"},
      {"more than the file", [](GgufWriter& w) { w.tensors[0].shape = {1000, 3}; },
       "x.gguf: the tensor a of [1000, 3] float32 takes more bytes than"},
      {"values of an unknown type",
       [](GgufWriter& w) {
         w.tensors[0].type = 999, w.tensors[0].shape = {1ull << 31, 1ull << 31};
       },
       "x.gguf: the tensor a of [2147483648, 2147483648] has more values than the"},
      {"half a block", [](GgufWriter& w) { w.tensors[0].type = 8; },
       "x.gguf: the tensor a is Q8_0 with rows of 3 values; they must be a multiple of 32"},
      {"not aligned", [](GgufWriter& w) { w.tensors[1].offset = 36; },
       "x.gguf: the tensor b begins at 36, which is not a multiple of general.alignment, 32"},
      {"overlap", [](GgufWriter& w) { w.tensors[1].offset = 0; }, "overlaps the tensor"},
      {"behind the end", [](GgufWriter& w) { w.tensors[1].offset = 64; },
       "x.gguf: the tensor b has 8 bytes at 64 of the data, but only 40 bytes of data are there"},
      {"offset 2^64 - 32", [&](GgufWriter& w) { w.tensors[1].offset = max - 31; },
       "x.gguf: the tensor b has 8 bytes at 18446744073709551584 of the data"},
      {"alignment 0", [](GgufWriter& w) { w.number("general.alignment", std::uint32_t{0}); },
       "x.gguf: general.alignment is 0; it must be a power of two from 8 to 1048576"},
      {"alignment 48", [](GgufWriter& w) { w.number("general.alignment", std::uint32_t{48}); },
       "x.gguf: general.alignment is 48;"},
      {"alignment 2^31",
       [](GgufWriter& w) { w.number("general.alignment", std::uint32_t{1} << 31); },
       "x.gguf: general.alignment is 2147483648;"},
      {"alignment as text", [](GgufWriter& w) { w.text("general.alignment", "32"); },
       "x.gguf: general.alignment is of type string;"},
  };
  for (const Case& row : cases) {
    GgufWriter writer = small_file();
    row.change(writer);
    const std::string message = refusal(writer.bytes());
    EXPECT_NE(message, "") << row.name;
    EXPECT_NE(message.find(row.message), std::string::npos) << row.name << ": " << message;
    EXPECT_NE(message.find("x.gguf: "), std::string::npos) << row.name << ": " << message;
  }
}

TEST(GgufFile, OtherAlignments) {
  for (const std::uint32_t alignment : {8u, 64u, 4096u}) {
    GgufWriter writer = small_file();
    writer.alignment = alignment;
    writer.number("general.alignment", alignment);
    const Opened opened(writer.bytes());
    std::uint16_t bits[4];
    opened.file->read(*opened.file->find_tensor("b"), 0, std::as_writable_bytes(std::span(bits)));
    EXPECT_EQ(bits[1], 0x4000) << alignment;
  }
}

TEST(GgufFile, WhatIsNoFile) {
  TestFolder folder;
  EXPECT_THROW(open_regular_file(folder.path() + "/absent.gguf"), Error);
  EXPECT_THROW(open_regular_file(folder.path()), Error);
  EXPECT_TRUE(is_gguf_path("/models/A b (1).GGUF"));
  EXPECT_FALSE(is_gguf_path(".gguf"));
  EXPECT_FALSE(is_gguf_path("model.gguf.part"));
}

}  // namespace
}  // namespace sluice
