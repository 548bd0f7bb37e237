// safetensors files, checkpoints and weight sources; the test makes its own bad files.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/testing/errors.h"
#include "base/testing/folder.h"
#include "base/testing/source_dir.h"
#include "checkpoint/files_digest.h"
#include "checkpoint/tensors/convert.h"
#include "checkpoint/weight_source.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::string le64(std::uint64_t value) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &value, 8);
  return bytes;
}
std::string container(const std::string& header, std::size_t data_bytes) {
  return le64(header.size()) + header + std::string(data_bytes, 'x');
}

std::string open_error(const std::string& bytes) {
  const TestFolder folder;
  folder.write("model.safetensors", bytes);
  return message_of([&] { Checkpoint checkpoint(folder.path()); });
}

constexpr const char* kTwo =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
    R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]}})";

// The optional check finds NaN and infinite weights in each type and at each position.
TEST(WeightSource, NotANumberIsNamedWhereAskedFor) {
  const float odd[] = {std::numeric_limits<float>::quiet_NaN(),
                       std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity()};
  for (const float value : odd)
    for (const std::int64_t at : {0, 5, 1023, 1024, 2999}) {
      std::vector<float> values(3000, 1.5f);
      values[static_cast<std::size_t>(at)] = value;
      const std::string header = R"({"w":{"dtype":"F32","shape":[3000],"data_offsets":[0,12000]}})";
      std::string bytes = le64(header.size()) + header;
      bytes.append(reinterpret_cast<const char*>(values.data()), 12000);
      const TestFolder folder;
      folder.write("model.safetensors", bytes);
      WeightSource source = WeightSource::checkpoint(folder.path());
      const WeightRequest request{.name = "w", .shape = {3000}};
      for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        std::vector<std::byte> out(static_cast<std::size_t>(3000 * dtype_size(dtype)));
        WeightSource unchecked = WeightSource::checkpoint(folder.path());
        EXPECT_EQ(message_of([&] { unchecked.load(request, dtype, out); }), "accepted");
        source.check_finite();
        const std::string message = message_of([&] { source.load(request, dtype, out); });
        EXPECT_THAT(message,
                    HasSubstr(fmt::format("tensor w has NaN or infinity at element {} ", at)));
      }
    }
}

TEST(Safetensors, ReadsAWellFormedFile) {
  const TestFolder folder;
  folder.write("model.safetensors", container(kTwo, 22));
  const Checkpoint checkpoint(folder.path());
  ASSERT_NE(checkpoint.find("b"), nullptr);
  EXPECT_EQ(checkpoint.find("b")->describe(), "bfloat16 [3]");
  EXPECT_EQ(checkpoint.find("c"), nullptr);
  EXPECT_EQ(checkpoint.total_bytes(), 22u);
  EXPECT_THAT(checkpoint.names(), testing::ElementsAre("a", "b"));
  // Padding after the header, empty tensors and scalars are part of the format.
  EXPECT_EQ(open_error(container(
                R"({"e":{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]},"s":{"dtype":"F64",)"
                R"("shape":[],"data_offsets":[0,8]}}   )",
                8)),
            "accepted");
  EXPECT_EQ(open_error(container("{}", 0)), "accepted");
}

TEST(Safetensors, BadFilesAreRefusedByName) {
  const auto one = [](const std::string& body, std::size_t data = 16) {
    return container("{" + body + "}", data);
  };
  const std::string a = R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]})";
  struct Row {
    std::string bytes;
    std::vector<const char*> says;
  };
  const std::vector<Row> rows = {
      {"", {"too few"}},
      {"1234567", {"too few"}},
      {le64(100'000'001) + std::string(64, '{'), {"100000001 bytes", "at most 100000000"}},
      {le64(~0ull) + "{}", {"18446744073709551615"}},
      {le64(50) + "{}", {"claims 50 bytes", "ends after 2"}},
      {le64(0), {"brace"}},
      {container("[1]", 0), {"brace"}},
      {container("{", 0), {"not a JSON object"}},
      {container(" {}", 0), {"brace"}},
      {container(R"({"a":1})", 0), {"tensor a", "object"}},
      {container("{" + std::string(5000, '['), 0), {"not a JSON object"}},
      {one(a, 15), {"tensor a", "past the end", "15 bytes"}},
      {one(a, 17), {"1 bytes follow the tensor a"}},
      {one(a + "," + a), {"tensor a appears twice"}},
      {one(R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[16,0]})"),
       {"tensor a", "[16, 0]", "reversed"}},
      {one(R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[-1,15]})"),
       {"tensor a", "not negative"}},
      {one(R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[0]})"),
       {"tensor a", "two integers"}},
      {one(R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,8,16]})"),
       {"tensor a", "two integers"}},
      {one(R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[0.0,16]})"), {"tensor a"}},
      {one(R"("a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,16]})"),
       {"tensor a", "span 16 bytes", "take 24"}},
      {one(R"("a":{"dtype":"F32","shape":[2,-2],"data_offsets":[0,16]})"), {"tensor a", "extent"}},
      {one(R"("a":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,16]})"),
       {"tensor a", "overflows"}},
      {one(R"("a":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,16]})"),
       {"tensor a", "extent"}},
      {one(R"("a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,4],"data_offsets":[0,16]})"),
       {"tensor a", "9 dimensions"}},
      {one(R"("a":{"dtype":"C64","shape":[2,2],"data_offsets":[0,16]})"),
       {"tensor a", "span 16 bytes", "take 32"}},
      {one(R"("a":{"dtype":31,"shape":[2,2],"data_offsets":[0,16]})"), {"tensor a", "no dtype"}},
      {one(R"("a":{"shape":[2,2],"data_offsets":[0,16]})"), {"tensor a", "no dtype"}},
      {one(R"("a":{"dtype":"F32","shape":[2,2],"shape":[2,2]})"), {"tensor a", "no data_offsets"}},
      {one(R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32",)"
           R"("shape":[2],"data_offsets":[4,12]})",
           12),
       {"tensor b overlaps the tensor a"}},
      {one(R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32",)"
           R"("shape":[1],"data_offsets":[12,16]})"),
       {"gap of 4 bytes", "the tensor b"}},
      {one(R"("a":{"dtype":"F32","shape":[3],"data_offsets":[4,16]})"),
       {"gap of 4 bytes", "the tensor a"}},
      {container("{}", 4), {"4 bytes follow the header"}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.bytes.substr(0, 200));
    const std::string message = open_error(row.bytes);
    EXPECT_THAT(message, HasSubstr("model.safetensors"));
    for (const char* part : row.says) EXPECT_THAT(message, HasSubstr(part));
  }
  const TestFolder folder;
  folder.write("model.safetensors", container(kTwo, 22));
  EXPECT_THAT(message_of([&] {
                SafetensorsFile(open_beneath(folder.path(), "model.safetensors").value(), "m", 0,
                                {.max_tensors = 0});
              }),
              HasSubstr("at most 0"));
}

// A tensor that no layer asks for stops nothing, whatever its type is.
TEST(Safetensors, ATensorOfAnotherTypeIsRefusedOnlyIfItIsAskedFor) {
  for (const auto& [dtype, bytes] :
       {std::pair("C64", 32), std::pair("F4", 2), std::pair("F6_E2M3", 3), std::pair("F6_E3M2", 3),
        std::pair("F8_E4M3FNUZ", 4), std::pair("F8_E5M2FNUZ", 4), std::pair("U16", 8),
        std::pair("U32", 16), std::pair("U64", 32), std::pair("F31", 5), std::pair("", 0),
        std::pair("\\u0001", 1)}) {
    SCOPED_TRACE(dtype);
    const TestFolder folder;
    const std::string header =
        fmt::format(R"({{"a":{{"dtype":"{}","shape":[2,2],"data_offsets":[0,{}]}},)"
                    R"("b":{{"dtype":"F32","shape":[1],"data_offsets":[{},{}],"more":1}}}})",
                    dtype, bytes, bytes, bytes + 4);
    folder.write("model.safetensors", container(header, static_cast<std::size_t>(bytes) + 4));
    const Checkpoint checkpoint(folder.path());
    EXPECT_THAT(checkpoint.names(), testing::ElementsAre("b"));
    EXPECT_EQ(checkpoint.find("b")->bytes, 4u);
    EXPECT_EQ(checkpoint.find("c"), nullptr);
    EXPECT_THAT(message_of([&] { checkpoint.find("a"); }), HasSubstr("the tensor a has the dtype"));
    EXPECT_THAT(checkpoint.unreadable_names(), testing::ElementsAre("a"));
    folder.write("model.safetensors.index.json",
                 R"({"weight_map":{"a":"model.safetensors","b":"model.safetensors"}})");
    EXPECT_THAT(Checkpoint(folder.path()).names(), testing::ElementsAre("b"));
  }
}

TEST(Safetensors, AFileThatShrinksAfterOpeningIsAnError) {
  const TestFolder folder;
  folder.write("model.safetensors", container(kTwo, 22));
  const Checkpoint checkpoint(folder.path());
  fs::resize_file(fs::path(folder.path()) / "model.safetensors",
                  fs::file_size(fs::path(folder.path()) / "model.safetensors") - 1);
  std::vector<std::byte> bytes(6);
  EXPECT_THAT(message_of([&] { checkpoint.read(*checkpoint.find("b"), 0, bytes); }),
              HasSubstr("tensor b is cut short"));
}

// Beside model.safetensors an index counts where it lists that file, and none that is missing.
TEST(Checkpoint, AnIndexBesideASingleFileCountsWhereItListsIt) {
  const auto tensor = [](const char* name) {
    return container(
        fmt::format(R"({{"{}":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}}})", name), 4);
  };
  const TestFolder folder;
  folder.write("model.safetensors", tensor("a"));
  folder.write("mtp.safetensors", tensor("b"));
  const auto names_with = [&](const std::string& index) {
    folder.write("model.safetensors.index.json", index);
    return Checkpoint(folder.path()).names();
  };
  const auto why = [&] {
    const std::vector<std::string> there = names_in(folder.path());
    const auto choice = choose_weights(there, formats_of("safetensors"), "");
    return settle_weights(*choice, folder.path(), there).why_ignored;
  };
  EXPECT_THAT(names_with(R"({"weight_map":{"a":"model.safetensors","b":"mtp.safetensors"}})"),
              testing::UnorderedElementsAre("a", "b"));
  EXPECT_EQ(why(), "");
  const std::uint64_t both = digest_of_files(folder.path(), LoadFormat::kAuto);
  folder.write("mtp.safetensors", tensor("c"));
  EXPECT_NE(digest_of_files(folder.path(), LoadFormat::kAuto), both);
  EXPECT_THAT(message_of([&] { Checkpoint checkpoint(folder.path()); }),
              HasSubstr("the tensor b is in mtp.safetensors, which does not hold it"));

  const std::pair<const char*, const char*> stale[] = {
      {R"({"weight_map":{"a":"mtp.safetensors"}})", "it does not list model.safetensors"},
      {R"({"weight_map":{"a":"model.safetensors","b":"more.safetensors"}})",
       "it lists more.safetensors, which is not there"},
      {R"({"weight_map":{"a":"model-00001-of-00002.safetensors"}})",
       "it does not list model.safetensors"},
      {R"({"weight_map":{}})", "empty"},
      {R"({)", "weight_map"},
  };
  for (const auto& [index, says] : stale) {
    EXPECT_THAT(names_with(index), testing::ElementsAre("a")) << index;
    EXPECT_THAT(why(), HasSubstr(says)) << index;
  }
}

TEST(Checkpoint, ShardsAreCheckedAgainstTheIndex) {
  const std::string a = container(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4);
  const std::string b = container(
      R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"x":{"dtype":"U8","shape":[1],)"
      R"("data_offsets":[2,3]}})",
      3);
  const auto error_with = [&](const std::string& index) {
    const TestFolder folder;
    folder.write("one.safetensors", a);
    folder.write("two.safetensors", b);
    folder.write("model.safetensors.index.json", index);
    return message_of([&] {
      const Checkpoint checkpoint(folder.path());
      EXPECT_EQ(checkpoint.num_files(), 2u);
      EXPECT_EQ(checkpoint.find("b")->file, 1);
      EXPECT_EQ(checkpoint.find("x"), nullptr);  // not in the index
      EXPECT_EQ(checkpoint.total_bytes(), 6u);
    });
  };
  EXPECT_EQ(error_with(R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})"),
            "accepted");
  const std::pair<const char*, const char*> rows[] = {
      {R"({"weight_map":{"a":"two.safetensors"}})",
       "tensor a is in two.safetensors, which does not hold it"},
      {R"({"weight_map":{"a":"three.safetensors"}})", "three.safetensors, which is not in"},
      {R"({"weight_map":{"a":"../one.safetensors"}})", "not a plain file name"},
      {R"({"weight_map":{"a":"/etc/passwd"}})", "not a plain file name"},
      {R"({"weight_map":{"a":".hidden"}})", "not a plain file name"},
      {R"({"weight_map":{"a":""}})", "not a plain file name"},
      {R"({"weight_map":{"a":"one.safetensors\u0000x"}})", "not a plain file name"},
      {R"({"weight_map":{"a":7}})", "no shard name"},
      {R"({"weight_map":{"a":"one.safetensors","a":"one.safetensors"}})", "twice"},
      {R"({"weight_map":{}})", "empty"},
      {R"({"weight_map":[]})", "weight_map"},
      {R"({})", "weight_map"},
      {R"({)", "weight_map"},
  };
  for (const auto& [index, says] : rows) EXPECT_THAT(error_with(index), HasSubstr(says)) << index;

  const TestFolder empty;
  EXPECT_THAT(message_of([&] { Checkpoint checkpoint(empty.path()); }),
              HasSubstr("none of model.safetensors, model.safetensors.index.json"));
  empty.write("gptq_model-4bit.safetensors", container(kTwo, 22));
  EXPECT_THAT(Checkpoint(empty.path()).names(), testing::ElementsAre("a", "b"));
  empty.write("other.safetensors", container(kTwo, 22));  // ambiguous
  EXPECT_THAT(message_of([&] { Checkpoint checkpoint(empty.path()); }),
              HasSubstr("has no weights"));
  const TestFolder clone;  // without git-lfs
  clone.write("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:" +
                                       std::string(64, 'a') + "\nsize 22\n");
  EXPECT_THAT(message_of([&] { Checkpoint checkpoint(clone.path()); }),
              HasSubstr("is a pointer of git-lfs"));
  const TestFolder shards;  // without an index
  shards.write("model-00001-of-00002.safetensors", a);
  EXPECT_THAT(message_of([&] { Checkpoint checkpoint(shards.path()); }),
              HasSubstr("model-00002-of-00002.safetensors, which is not in"));
  shards.write("model-00002-of-00002.safetensors", b);
  EXPECT_THAT(Checkpoint(shards.path()).names(), testing::ElementsAre("a", "b", "x"));
  shards.write("model-00002-of-00002.safetensors", a);
  EXPECT_THAT(message_of([&] { Checkpoint checkpoint(shards.path()); }),
              HasSubstr("tensor a is in two of the shards"));
  fs::create_directory(fs::path(empty.path()) / "model.safetensors");
  EXPECT_THAT(message_of([&] { Checkpoint checkpoint(empty.path()); }),
              HasSubstr("not a regular file"));
}

TEST(Checkpoint, LinksOfASnapshotAreFollowedAndPipesAreNot) {
  const TestFolder folder;
  const fs::path root = folder.path();
  fs::create_directories(root / "blobs");
  fs::create_directories(root / "snapshots/c");
  std::ofstream(root / "blobs/1", std::ios::binary) << container(kTwo, 22);
  fs::create_symlink("../../blobs/1", root / "snapshots/c/model.safetensors");
  EXPECT_EQ(Checkpoint((root / "snapshots/c").string()).total_bytes(), 22u);
  ASSERT_EQ(::mkfifo((root / "model.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(message_of([&] { Checkpoint checkpoint(folder.path()); }),
              HasSubstr("not a regular file"));
}

// A [5, 6, 7] tensor whose elements are their own indices, in float32.
std::string numbers_file(int count) {
  std::string bytes =
      container(fmt::format(R"({{"t":{{"dtype":"F32","shape":[5,6,{0}],"data_offsets":[0,{1}]}}}})",
                            count, 120 * count),
                0);
  for (int i = 0; i < 30 * count; ++i) {
    const float value = static_cast<float>(i);
    bytes.append(reinterpret_cast<const char*>(&value), 4);
  }
  return bytes;
}

TEST(WeightSource, BoxesEqualTheWholeTensorCut) {
  // 7 columns: many small runs; 70001: rows of 280 KB, longer than a gap that is read over.
  for (const int columns : {7, 70001}) {
    const TestFolder folder;
    folder.write("model.safetensors", numbers_file(columns));
    const WeightSource source = WeightSource::checkpoint(folder.path());
    const std::vector<std::vector<AxisRange>> boxes = {{},
                                                       {{1, 2}},
                                                       {{4, 1}, {2, 3}},
                                                       {{}, {1, -1}},
                                                       {{}, {}, {3, 2}},
                                                       {{1, 3}, {0, 1}, {6, 1}},
                                                       {{2, 0}},
                                                       {{0, -1}, {5, 1}, {0, 7}}};
    for (const auto& box : boxes) {
      const WeightRequest request{.name = "t", .shape = {5, 6, columns}, .ranges = box};
      std::vector<float> out(request.numel());
      source.load(request, DType::kF32, std::as_writable_bytes(std::span(out)));
      std::vector<AxisRange> full = box;
      full.resize(3);
      std::vector<float> wanted;
      const auto end = [&](int axis, int extent) {
        return full[axis].count < 0 ? extent : full[axis].begin + full[axis].count;
      };
      for (int i = full[0].begin; i < end(0, 5); ++i)
        for (int j = full[1].begin; j < end(1, 6); ++j)
          for (int k = full[2].begin; k < end(2, columns); ++k)
            wanted.push_back(static_cast<float>((i * 6 + j) * columns + k));
      EXPECT_TRUE(out == wanted) << columns;
      std::vector<BF16> narrow(request.numel());
      source.load(request, DType::kBF16, std::as_writable_bytes(std::span(narrow)));
      for (std::size_t i = 0; i < narrow.size(); ++i)
        ASSERT_EQ(narrow[i].bits, BF16(wanted[i]).bits);
    }
  }
}

TEST(WeightSource, MissingWrongShapeAndWrongTypeAreNamed) {
  const TestFolder folder;
  folder.write(
      "model.safetensors",
      container(R"({"i":{"dtype":"I32","shape":[2],"data_offsets":[0,8]},"f":{"dtype":"F32",)"
                R"("shape":[2],"data_offsets":[8,16]}})",
                16));
  const WeightSource source = WeightSource::checkpoint(folder.path());
  float out[2];
  const auto error_of = [&](const char* name, std::vector<std::int64_t> shape) {
    return message_of([&] {
      source.load({.name = name, .shape = std::move(shape)}, DType::kF32,
                  std::as_writable_bytes(std::span(out)));
    });
  };
  EXPECT_EQ(error_of("f", {2}), "accepted");
  EXPECT_THAT(error_of("g", {2}), HasSubstr("no tensor g"));
  EXPECT_THAT(error_of("f", {1, 2}), HasSubstr("tensor f is float32 [2]; the model needs [1, 2]"));
  EXPECT_THAT(error_of("i", {2}), HasSubstr("tensor i is int32 [2]; it cannot become float32"));
  EXPECT_TRUE(source.has("f", false));
  EXPECT_FALSE(source.has("g", true));
}

TEST(WeightSource, WideningIsExactForEveryValue) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const std::uint16_t in = static_cast<std::uint16_t>(bits);
    float out = 0;
    ASSERT_TRUE(convert_elements(DType::kBF16, reinterpret_cast<const std::byte*>(&in), DType::kF32,
                                 reinterpret_cast<std::byte*>(&out), 1));
    ASSERT_EQ(std::bit_cast<std::uint32_t>(out), bits << 16);
    ASSERT_TRUE(convert_elements(DType::kF16, reinterpret_cast<const std::byte*>(&in), DType::kF32,
                                 reinterpret_cast<std::byte*>(&out), 1));
    const int exponent = (bits >> 10) & 31;
    const double fraction = bits & 1023;
    if (exponent == 31) {
      ASSERT_EQ(std::isnan(out), fraction != 0);
      continue;
    }
    const double value =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    ASSERT_EQ(out, bits >> 15 ? -value : value);
  }
  EXPECT_FALSE(convert_elements(DType::kI32, nullptr, DType::kF32, nullptr, 0));
}

TEST(WeightSource, DummyWeightsAreNormalAndDoNotDependOnTheBox) {
  const double sigma = 0.02;
  const WeightSource source = WeightSource::dummy(7, sigma);
  const WeightRequest whole{.name = "w", .shape = {1000, 1001}};
  std::vector<float> all(whole.numel());
  source.load(whole, DType::kF32, std::as_writable_bytes(std::span(all)));
  double sum = 0, squares = 0;
  for (const float v : all) sum += v, squares += double{v} * v;
  const double n = static_cast<double>(all.size());
  // Five standard errors of a mean and of a variance of n normal numbers.
  EXPECT_LT(std::fabs(sum / n), 5 * sigma / std::sqrt(n));
  EXPECT_LT(std::fabs(squares / n - sigma * sigma), 5 * sigma * sigma * std::sqrt(2 / n));

  const WeightRequest box{.name = "w", .shape = {1000, 1001}, .ranges = {{3, 900}, {77, 333}}};
  std::vector<float> part(box.numel());
  source.load(box, DType::kF32, std::as_writable_bytes(std::span(part)));
  for (int i = 0; i < 900; ++i)
    for (int j = 0; j < 333; ++j) ASSERT_EQ(part[i * 333 + j], all[(i + 3) * 1001 + j + 77]);

  const auto first = [](const WeightSource& s, const char* name, WeightInit init) {
    std::array<float, 2> out;
    s.load({.name = name, .shape = {2}, .init = init}, DType::kF32,
           std::as_writable_bytes(std::span(out)));
    return out;
  };
  EXPECT_EQ(first(source, "w", WeightInit::kNormal)[0], all[0]);
  EXPECT_NE(first(source, "v", WeightInit::kNormal), first(source, "w", WeightInit::kNormal));
  EXPECT_NE(first(WeightSource::dummy(8, sigma), "w", WeightInit::kNormal),
            first(source, "w", WeightInit::kNormal));
  EXPECT_EQ(first(source, "b", WeightInit::kZeros)[0], 0);
  EXPECT_NEAR(first(source, "n", WeightInit::kOnes)[0], 1,
              5 * sigma);  // the largest quantile is 4.3 sigma
  EXPECT_TRUE(source.has("anything", true));
  EXPECT_FALSE(source.has("anything", false));
}

TEST(WeightSource, SluiceTinyLoads) {
  const WeightSource source = WeightSource::checkpoint(source_dir() + "/models/sluice-tiny");
  EXPECT_EQ(source.total_bytes(), 45'747'584u);  // metadata.total_size of the index
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    std::vector<std::byte> out;
    std::size_t total = 0;
    std::chrono::duration<double> spent{};
    for (const std::string& name : source.names()) {
      const TensorInfo& info = *source.find(name);
      out.resize(info.numel() * dtype_size(dtype));
      const auto start = std::chrono::steady_clock::now();
      source.load({.name = name, .shape = info.shape}, dtype, out);
      spent += std::chrono::steady_clock::now() - start;
      total += info.bytes;
    }
    EXPECT_EQ(total, source.total_bytes());
    fmt::print("sluice-tiny as {}: {:.1f} ms, {:.2f} GB/s of the file\n", dtype_name(dtype),
               spent.count() * 1e3, static_cast<double>(total) / spent.count() / 1e9);
  }
}

}  // namespace
}  // namespace sluice
