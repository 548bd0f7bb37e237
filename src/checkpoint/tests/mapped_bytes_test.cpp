// Mapped files, also files that change while they are mapped.
#include "base/mapped_bytes.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/testing/errors.h"
#include "base/testing/folder.h"
#include "checkpoint/weight_source.h"

namespace sluice {
namespace {

using testing::HasSubstr;

std::string numbers(std::size_t count) {
  std::string bytes(count, '\0');
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(1 + i * 7 % 251);
  return bytes;
}

// A file of these bytes, open.
class OpenFile {
 public:
  explicit OpenFile(const std::string& bytes) {
    folder_.write("file", bytes);
    descriptor_ = ::open(path().c_str(), O_RDONLY | O_CLOEXEC);
    EXPECT_GE(descriptor_, 0);
  }
  ~OpenFile() { ::close(descriptor_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  std::string path() const { return folder_.path() + "/file"; }
  int descriptor() const { return descriptor_; }
  void shrink(off_t bytes) const { ASSERT_EQ(::truncate(path().c_str(), bytes), 0); }
  // Its name is gone, the file stays open. Before a process ends without destructors.
  void remove() const { std::filesystem::remove_all(folder_.path()); }

 private:
  TestFolder folder_;
  int descriptor_ = -1;
};

std::string text(const MappedBytes& mapped) {
  const auto bytes = mapped.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(MappedBytes, AreThoseOfTheFileAtAnyOffset) {
  const std::string bytes = numbers(300'001);
  const OpenFile file(bytes);
  for (const std::uint64_t offset : {0, 1, 4095, 4096, 123'457, 300'000})
    for (const std::uint64_t count : {1, 4096, 70'001}) {
      const auto mapped = MappedBytes::map(file.descriptor(), offset, count);
      if (offset + count > bytes.size()) {
        EXPECT_FALSE(mapped) << offset << " " << count;
        continue;
      }
      ASSERT_TRUE(mapped);
      EXPECT_EQ(text(*mapped), bytes.substr(offset, count));
      EXPECT_TRUE(mapped->whole());
    }
  EXPECT_FALSE(MappedBytes::map(file.descriptor(), 0, 0));
  EXPECT_FALSE(MappedBytes::map(-1, 0, 1));
}

TEST(MappedBytes, AFileThatBecomesShorterReadsAsZerosAndSaysSo) {
  const OpenFile file(numbers(1 << 20)), other(numbers(1 << 20));
  const auto mapped = MappedBytes::map(file.descriptor(), 100, (1 << 20) - 100);
  const auto beside = MappedBytes::map(other.descriptor(), 0, 1 << 20);
  ASSERT_TRUE(mapped && beside);
  file.shrink(5000);
  EXPECT_EQ(text(*mapped).substr(1 << 19), std::string((1 << 19) - 100, '\0'));
  EXPECT_FALSE(mapped->whole());
  EXPECT_EQ(text(*beside), numbers(1 << 20));
  EXPECT_TRUE(beside->whole());
}

TEST(MappedBytes, ManyThreadsLoseTheirFilesAtOnce) {
  for (int round = 0; round < 20; ++round) {
    const OpenFile file(numbers(1 << 20));
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        for (int j = 0; j < 50; ++j) {
          const auto mapped = MappedBytes::map(file.descriptor(), 0, 1 << 20);
          if (!mapped) continue;
          const std::string seen = text(*mapped);
          if (mapped->whole()) {
            EXPECT_EQ(seen, numbers(1 << 20));
          }
        }
      });
    file.shrink(4096 * round);
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(MappedBytes, SoManyAndNoMoreAtOnce) {
  const OpenFile file(numbers(5000));
  std::vector<MappedBytes> held;
  for (int i = 0; i < MappedBytes::kMax; ++i) {
    auto mapped = MappedBytes::map(file.descriptor(), 0, 5000);
    ASSERT_TRUE(mapped) << i;
    held.push_back(std::move(*mapped));
  }
  EXPECT_FALSE(MappedBytes::map(file.descriptor(), 0, 5000));
  held.pop_back();
  EXPECT_TRUE(MappedBytes::map(file.descriptor(), 0, 5000));
}

TEST(MappedBytesDeathTest, ASignalForAnotherAddressEndsTheProcessAsBefore) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto touch_what_is_gone = [] {
    const OpenFile file(numbers(8192));
    const auto mapped = MappedBytes::map(file.descriptor(), 0, 8192);  // the handler is installed
    const OpenFile foreign(numbers(8192));
    void* memory = ::mmap(nullptr, 8192, PROT_READ, MAP_SHARED, foreign.descriptor(), 0);
    foreign.shrink(0);
    file.remove(), foreign.remove();
    ::_exit(static_cast<const volatile char*>(memory)[4096]);
  };
  EXPECT_DEATH(touch_what_is_gone(), "");
}

// One float32 matrix of 64 x 512.
struct MappedCheckpoint {
  TestFolder folder;
  std::string values = numbers(64 * 512 * 4);
  MappedCheckpoint() {
    for (std::size_t i = 3; i < values.size(); i += 4) values[i] = 0x3F;  // finite
    const std::string header =
        R"({"w":{"dtype":"F32","shape":[64,512],"data_offsets":[0,131072]}})";
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(header.size());
    folder.write("model.safetensors", bytes + header + values);
  }
  std::string file() const { return folder.path() + "/model.safetensors"; }
};

TEST(WeightSourceWithMapping, GivesWhatLoadGives) {
  const MappedCheckpoint made;
  WeightSource source = WeightSource::checkpoint(made.folder.path());
  source.check_finite();
  const auto mapped = [&](const WeightRequest& request, DType dtype) {
    std::string seen;
    const bool done = source.with_mapping(request, dtype, [&](std::span<const std::byte> box) {
      seen.assign(reinterpret_cast<const char*>(box.data()), box.size());
    });
    if (done) {
      std::string loaded(static_cast<std::size_t>(request.numel() * dtype_size(dtype)), '\0');
      source.load(request, dtype, std::as_writable_bytes(std::span(loaded)));
      EXPECT_EQ(seen, loaded);
    }
    return done;
  };
  EXPECT_TRUE(mapped({.name = "w", .shape = {64, 512}}, DType::kF32));
  EXPECT_TRUE(mapped({.name = "w", .shape = {64, 512}, .ranges = {{16, 40}}}, DType::kF32));
  EXPECT_FALSE(mapped({.name = "w", .shape = {64, 512}, .ranges = {{16, 2}}}, DType::kF32))
      << "too small";
  EXPECT_FALSE(mapped({.name = "w", .shape = {64, 512}, .ranges = {{}, {0, 500}}}, DType::kF32))
      << "has gaps";
  EXPECT_FALSE(mapped({.name = "w", .shape = {64, 512}}, DType::kBF16)) << "is converted";
  EXPECT_THROW(mapped({.name = "w", .shape = {512, 64}}, DType::kF32), Error);
}

TEST(WeightSourceWithMapping, AFileThatBecomesShorterIsAnError) {
  const MappedCheckpoint made;
  const WeightSource source = WeightSource::checkpoint(made.folder.path());
  const WeightRequest request{.name = "w", .shape = {64, 512}};
  const std::string while_used = message_of([&] {
    source.with_mapping(request, DType::kF32, [&](std::span<const std::byte> box) {
      ASSERT_EQ(::truncate(made.file().c_str(), 1000), 0);
      EXPECT_EQ(box[100'000], std::byte{0});
    });
  });
  EXPECT_THAT(
      while_used,
      HasSubstr("the tensor w could not be read to its end: its file became shorter meanwhile"));
  EXPECT_FALSE(source.with_mapping(
      request, DType::kF32, [](std::span<const std::byte>) { FAIL() << "it is cut short"; }));
}

}  // namespace
}  // namespace sluice
