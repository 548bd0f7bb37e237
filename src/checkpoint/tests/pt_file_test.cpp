// PyTorch files: output of torch.save, and files with a false archive, pickle or tensor offset.
#include "checkpoint/pytorch/pt_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <functional>
#include <map>

#include "base/error.h"
#include "base/testing/errors.h"
#include "base/testing/folder.h"
#include "base/testing/source_dir.h"
#include "checkpoint/files/checkpoint.h"
#include "checkpoint/quantized/quant_formats.h"
#include "checkpoint/testing/pt_writer.h"
#include "checkpoint/weight_source.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kData = source_dir() + "/tests/data/torch";

std::string open_error(const std::string& bytes) {
  const TestFolder folder;
  folder.write("pytorch_model.bin", bytes);
  return message_of([&] { Checkpoint checkpoint(folder.path()); });
}

// Elements of a tensor as doubles.
std::vector<double> elements(const PtFile& file, const TensorInfo& info) {
  std::vector<std::byte> bytes(info.bytes);
  file.read(info, 0, bytes);
  std::vector<double> out;
  for (std::size_t i = 0; i < info.bytes; i += static_cast<std::size_t>(dtype_size(info.dtype))) {
    const std::byte* at = bytes.data() + i;
    const auto read = [&]<class T>(T value) {
      std::memcpy(&value, at, sizeof(T));
      if constexpr (std::is_arithmetic_v<T>)
        return static_cast<double>(value);
      else
        return static_cast<double>(static_cast<float>(value));
    };
    switch (info.dtype) {
      case DType::kF32:
        out.push_back(read(0.0f));
        break;
      case DType::kF64:
        out.push_back(read(0.0));
        break;
      case DType::kF16:
        out.push_back(read(F16{}));
        break;
      case DType::kBF16:
        out.push_back(read(BF16{}));
        break;
      case DType::kI64:
        out.push_back(read(std::int64_t{}));
        break;
      case DType::kI32:
        out.push_back(read(std::int32_t{}));
        break;
      case DType::kI16:
        out.push_back(read(std::int16_t{}));
        break;
      case DType::kI8:
        out.push_back(read(std::int8_t{}));
        break;
      case DType::kF8E4M3:
        out.push_back(fp8_values(DType::kF8E4M3)[std::to_integer<unsigned>(*at)]);
        break;
      default:
        out.push_back(read(std::uint8_t{}));
    }
  }
  return out;
}

// Both forms, made by tests/data/torch/make.py.
TEST(PtFile, ReadsWhatTorchWrote) {
  for (const std::string name : {"zip.bin", "legacy.bin"}) {
    const PtFile file(open_beneath(kData, name).value(), name);
    std::map<std::string, std::vector<double>> seen;
    std::map<std::string, std::vector<std::int64_t>> shapes;
    for (const TensorInfo& info : file.tensors()) {
      seen[info.name] = elements(file, info);
      shapes[info.name] = info.shape;
    }
    const auto count_up = [](int count, double step) {
      std::vector<double> out;
      for (int i = 0; i < count; ++i) out.push_back(i * step);
      return out;
    };
    for (const char* type : {"float32", "float64", "float16", "bfloat16"})
      EXPECT_EQ(seen["type." + std::string(type)], count_up(12, 0.25));
    for (const char* type : {"int64", "int32", "int16", "int8", "uint8"})
      EXPECT_EQ(seen["type." + std::string(type)], count_up(12, 1));
    EXPECT_THAT(seen["type.bool"], testing::ElementsAre(0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1));
    EXPECT_THAT(shapes["type.bool"], testing::ElementsAre(3, 4));
    EXPECT_THAT(seen["scalar"], testing::ElementsAre(0.75));
    EXPECT_TRUE(shapes["scalar"].empty());
    EXPECT_THAT(shapes["empty"], testing::ElementsAre(0, 5));
    EXPECT_EQ(seen["parameter"], count_up(6, 0.25));
    EXPECT_THAT(shapes["transposed"], testing::ElementsAre(12, 5));
    for (int r = 0; r < 12; ++r)
      for (int c = 0; c < 5; ++c)
        EXPECT_EQ(seen["transposed"][static_cast<std::size_t>(r * 5 + c)], (c * 12 + r) * 0.25);
    for (int r = 0; r < 5; ++r)
      for (int c = 0; c < 4; ++c)
        EXPECT_EQ(seen["columns"][static_cast<std::size_t>(r * 4 + c)], (r * 12 + 3 + c) * 0.25);
    EXPECT_THAT(shapes["permuted"], testing::ElementsAre(5, 3, 4));
    for (int i = 0; i < 5; ++i)
      for (int j = 0; j < 12; ++j)
        EXPECT_EQ(seen["permuted"][static_cast<std::size_t>(i * 12 + j)], (j * 5 + i) * 0.25);
    EXPECT_EQ(seen["tail"].front(), 12.5);
    EXPECT_EQ(seen["tail"].size(), 10u);
    if (name == "zip.bin") {
      EXPECT_EQ(seen["float8"], count_up(8, 0.25));
    }
    EXPECT_EQ(seen.size(), name == "zip.bin" ? 18u : 17u);
  }
}

TEST(PtFile, AnyPartOfAStridedTensor) {
  const PtFile file(open_beneath(kData, "zip.bin").value(), "zip.bin");
  for (const TensorInfo& info : file.tensors()) {
    if (info.name != "permuted" && info.name != "transposed") continue;
    std::vector<std::byte> whole(info.bytes);
    file.read(info, 0, whole);
    for (std::size_t begin = 0; begin < 60; begin += 7)
      for (std::size_t count = 0; count <= 60 - begin; count += 5) {
        std::vector<std::byte> part(count * 4);
        file.read(info, begin * 4, part);
        EXPECT_TRUE(std::equal(part.begin(), part.end(),
                               whole.begin() + static_cast<std::ptrdiff_t>(begin * 4)));
      }
  }
}

// A file of one tensor; `edit` changes the archive.
std::string file_of(const PickleWriter& pickle, std::size_t data_bytes = 24,
                    const std::function<void(ZipWriter&)>& edit = {}) {
  ZipWriter zip;
  zip.add("archive/data.pkl", pickle.bytes())
      .add("archive/byteorder", "little")
      .add("archive/data/0", std::string(data_bytes, '\1'));
  if (edit) edit(zip);
  return zip.bytes();
}
PickleWriter one_tensor(std::int64_t elements = 6, std::int64_t offset = 0,
                        std::vector<std::int64_t> shape = {2, 3},
                        std::vector<std::int64_t> strides = {3, 1}) {
  PickleWriter pickle;
  pickle.begin_dict().tensor("w", "FloatStorage", "0", elements, offset, shape, strides).end_dict();
  return pickle;
}

TEST(PtFile, ArchivesOfEitherWidth) {
  for (const bool wide : {false, true}) {
    const TestFolder folder;
    folder.write("pytorch_model.bin", file_of(one_tensor(), 24, [&](ZipWriter& zip) {
                   zip.wide = wide;
                   zip.comment = wide ? "" : "PK\5\6 in a comment";
                 }));
    const WeightSource source = WeightSource::checkpoint(folder.path());
    EXPECT_THAT(source.names(), testing::ElementsAre("w"));
    std::vector<float> out(6);
    source.load({.name = "w", .shape = {2, 3}}, DType::kF32,
                std::as_writable_bytes(std::span(out)));
    EXPECT_EQ(out[5], std::bit_cast<float>(0x01010101u));
  }
}

TEST(PtFile, ShardsAndTheChoiceOfFormat) {
  const TestFolder folder;
  PickleWriter other;
  other.begin_dict()
      .tensor("v", "HalfStorage", "0", 4, 1, {3}, {1})
      .raw(PickleWriter::text("epoch") + PickleWriter::integer(3))
      .end_dict();
  folder.write("a.bin", file_of(one_tensor()));
  folder.write("b.bin", file_of(other, 8));
  folder.write("pytorch_model.bin.index.json",
               R"({"metadata":{},"weight_map":{"w":"a.bin","v":"b.bin"}})");
  EXPECT_THAT(message_of([&] { Checkpoint checkpoint(folder.path(), LoadFormat::kSafetensors); }),
              AllOf(HasSubstr("none of model.safetensors, model.safetensors.index.json is there"),
                    HasSubstr("--load-format")));
  const Checkpoint checkpoint(folder.path());
  EXPECT_EQ(checkpoint.format(), "pt");
  EXPECT_THAT(checkpoint.names(), testing::UnorderedElementsAre("w", "v"));
  EXPECT_EQ(checkpoint.find("v")->describe(), "float16 [3]");
  folder.write("model.safetensors", std::string("\x02\0\0\0\0\0\0\0{}", 10));
  EXPECT_EQ(Checkpoint(folder.path()).format(), "safetensors");
  EXPECT_EQ(Checkpoint(folder.path(), LoadFormat::kPt).format(), "pt");
}

// Archives with false sizes, offsets or names (R4).
TEST(PtFile, ArchivesThatLieAreRefused) {
  const auto with = [](const std::function<void(ZipWriter&)>& edit) {
    return file_of(one_tensor(), 24, edit);
  };
  struct Row {
    std::string bytes;
    std::vector<const char*> says;
  };
  const std::string whole = file_of(one_tensor());
  const std::vector<Row> rows = {
      {"", {"too few"}},
      {"PK", {"too few"}},
      {"hello, world", {"neither like a zip archive"}},
      {whole.substr(0, whole.size() - 1), {"no end record"}},
      {whole.substr(0, whole.size() / 2), {"no end record"}},
      {whole + "x", {"no end record"}},
      {with([](ZipWriter& z) { z.entries[2].method = 8; }), {"archive/data/0", "is compressed"}},
      {with([](ZipWriter& z) {
         z.entries[2].size = 1ull << 31;
         z.entries[2].stored = 24;
       }),
       {"archive/data/0", "is compressed", "24 bytes stored for 2147483648"}},
      {with([](ZipWriter& z) { z.entries[2].size = 1ull << 31; }),
       {"archive/data/0", "runs past the end"}},
      {with([](ZipWriter& z) {
         z.entries[2].size = ~0ull;
         z.wide = true;
       }),
       {"archive/data/0", "runs past the end"}},
      {with([](ZipWriter& z) {
         z.entries[2].header = ~0ull;
         z.wide = true;
       }),
       {"archive/data/0", "past the end"}},
      {with([](ZipWriter& z) { z.entries[2].size = 0xFFFFFFFFull; }),
       {"archive/data/0", "64 bits"}},
      {with([](ZipWriter& z) { z.entries[2].extra = std::string("\1\0\xff\xff", 4); }),
       {"archive/data/0", "extra field"}},
      {with([](ZipWriter& z) { z.entries[2].flags = 1; }), {"encrypted"}},
      {with([](ZipWriter& z) { z.entries[2].local_name = "archive/data/9"; }),
       {"archive/data/0", "another header"}},
      {with([](ZipWriter& z) { z.entries[2].header = 7; }), {"another header"}},
      {with([](ZipWriter& z) { z.entries.push_back(z.entries[2]); }),
       {"archive/data/0 appears twice"}},
      {with([](ZipWriter& z) { z.entries[0].size = z.entries[0].data.size() + 40; }), {"overlap"}},
      {with([](ZipWriter& z) { z.entries[0].crc = 1; }),
       {"archive/data.pkl is damaged", "00000001"}},
      {with([](ZipWriter& z) { z.num_entries = 60000; }), {"claims 60000 entries"}},
      {with([](ZipWriter& z) {
         z.num_entries = 1ull << 60;
         z.wide = true;
       }),
       {"claims 1152921504606846976 entries"}},
      {with([](ZipWriter& z) { z.num_entries = 2; }), {"bytes follow the last entry"}},
      {with([](ZipWriter& z) { z.num_entries = 4; }), {"entry 3", "cut short"}},
      {with([](ZipWriter& z) { z.directory_at = 0xFFFFFF; }),
       {"does not lie before its end record"}},
      {with([](ZipWriter& z) {
         z.directory_bytes = ~0ull;
         z.wide = true;
       }),
       {"does not lie before its end record"}},
      {with([](ZipWriter& z) {
         z.end64_at = ~0ull - 5;
         z.wide = true;
       }),
       {"64 bits", "before its locator"}},
      {with([](ZipWriter& z) {
         z.end64_at = 3;
         z.wide = true;
       }),
       {"no end record of 64 bits"}},
      {with([](ZipWriter& z) { z.entries[0].name = z.entries[0].local_name = "archive/other"; }),
       {"no NAME/data.pkl"}},
      {with([](ZipWriter& z) { z.add("b/data.pkl", "N."); }), {"two pickles"}},
      {with([](ZipWriter& z) { z.add("archive/constants.pkl", "N."); }), {"TorchScript"}},
      {with([](ZipWriter& z) { z.entries[1].data = "big"; }), {"big-endian"}},
      {with([](ZipWriter& z) { z.entries.pop_back(); }),
       {"tensor w lies in the storage 0, which the file does not have"}},
      {with([](ZipWriter& z) { z.prefix = "junk"; }), {"neither like a zip archive"}},
  };
  for (const Row& row : rows) {
    const std::string message = open_error(row.bytes);
    for (const char* text : row.says) EXPECT_THAT(message, HasSubstr(text));
    EXPECT_THAT(message, HasSubstr("pytorch_model.bin"));
  }
}

// Checksums of the elements are compared on request.
TEST(PtFile, DamagedStoragesAreFoundWhereAskedFor) {
  EXPECT_EQ(crc32("123456789"), 0xCBF43926u);  // the check value of the polynomial
  const std::string text = "any bytes, and more of them than one word has";
  for (std::size_t cut = 0; cut <= text.size(); ++cut)
    EXPECT_EQ(crc32(text.substr(cut), crc32(text.substr(0, cut))), crc32(text));
  const auto verdict = [](const std::string& bytes) {
    const TestFolder folder;
    folder.write("pytorch_model.bin", bytes);
    const WeightSource source = WeightSource::checkpoint(folder.path());
    return message_of([&] { source.check_storages(); });
  };
  EXPECT_EQ(verdict(file_of(one_tensor())), "accepted");
  EXPECT_THAT(verdict(file_of(one_tensor(), 24, [](ZipWriter& z) { z.entries[2].crc = 7; })),
              AllOf(HasSubstr("pytorch_model.bin"), HasSubstr("archive/data/0 is damaged"),
                    HasSubstr("00000007")));
  // has no checksums
  EXPECT_EQ(verdict(*read_text_beneath(kData, "legacy.bin", 1 << 20)), "accepted");
}

TEST(PtFile, TensorsLieWithinTheirStorage) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  struct Row {
    PickleWriter pickle;
    std::vector<const char*> says;
  };
  const std::vector<Row> rows = {
      {one_tensor(7), {"storage 0 of 7 elements, for which the file has 24 bytes"}},
      {one_tensor(-1), {"of -1 elements"}},
      {one_tensor(kHuge), {"4611686018427387904 elements"}},
      {one_tensor(6, 1), {"tensor w [2, 3] reaches element 6", "has 6"}},
      {one_tensor(6, -1), {"tensor w [2, 3] reaches"}},
      {one_tensor(6, kHuge), {"reaches element 4611686018427387909"}},
      {one_tensor(6, 0, {2, 3}, {4, 1}), {"reaches element 6"}},
      {one_tensor(6, 0, {2, 3}, {3, -1}), {"below 0"}},
      {one_tensor(6, 0, {-2, 3}), {"below 0"}},
      {one_tensor(6, 0, {7, 3}, {0, 1}), {"repeats elements"}},
      {one_tensor(6, 0, {kHuge, 4}, {0, 0}), {"2^64 or more"}},
      {one_tensor(6, 0, {3, kHuge}, {1, kHuge}), {"2^64 or more"}},
      {one_tensor(6, 0, {2, 3}, {1}), {"2 extents and 1 strides"}},
      {one_tensor(6, 0, std::vector<std::int64_t>(9, 1), std::vector<std::int64_t>(9, 1)),
       {"9 extents"}},
      {one_tensor(6, 0, {0, kHuge, kHuge}, {1, 1, 1}), {"accepted"}},
      {one_tensor(6, 5, {1, 1}, {kHuge, kHuge}), {"accepted"}},
  };
  for (const Row& row : rows) {
    const std::string message = open_error(file_of(row.pickle));
    for (const char* text : row.says) EXPECT_THAT(message, HasSubstr(text));
  }
  const auto text = [](const char* value) { return PickleWriter::text(value); };
  const std::string tensor =
      PickleWriter::tensor_value(PickleWriter::storage("FloatStorage", "0", 6), 0, {6}, {1});
  const auto dict = [](const std::string& items) {
    return PickleWriter().begin_dict().raw(items).end_dict();
  };
  EXPECT_THAT(open_error(file_of(dict(text("w") + tensor + text("w") + tensor))),
              HasSubstr("w appears twice"));
  EXPECT_THAT(open_error(file_of(dict(PickleWriter::integer(1) + tensor))),
              HasSubstr("key of the dict is no text"));
  EXPECT_THAT(open_error(file_of(dict(text("w") + "K\1"))), HasSubstr("none of the 1 values"));
  EXPECT_THAT(open_error(file_of(PickleWriter().raw("\x80\x02"
                                                    "K\1."))),
              HasSubstr("not hold a dict"));
  EXPECT_THAT(open_error(file_of(PickleWriter().raw("\x80\x02"
                                                    "}.more"))),
              HasSubstr("4 bytes follow the pickle"));
}

TEST(PtFile, LegacyFilesThatLieAreRefused) {
  const std::string whole = *read_text_beneath(kData, "legacy.bin", 1 << 20);
  EXPECT_EQ(open_error(whole), "accepted");
  EXPECT_THAT(open_error(whole + "x"), HasSubstr("1 bytes follow the last storage"));
  for (const std::size_t size : {4u, 5u, 20u, 100u, 1000u, static_cast<unsigned>(whole.size() - 1)})
    EXPECT_THAT(open_error(whole.substr(0, size)),
                testing::AnyOf(HasSubstr("cut short"), HasSubstr("not fit"), HasSubstr("left"),
                               HasSubstr("does not end")));
  std::string other = whole;
  other[4] ^= 1;
  EXPECT_THAT(open_error(other), HasSubstr("not one of torch.save"));
  other = whole;
  other[other.find("cpu")] = 'x';  // the device of a tensor is ignored
  EXPECT_EQ(open_error(other), "accepted");
}

}  // namespace
}  // namespace sluice
