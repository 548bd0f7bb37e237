#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "tensor/buffer.h"
#include "tensor/context.h"
#include "tensor/copy.h"
#include "tensor/device.h"
#include "tensor/tensor.h"

namespace sluice {
namespace {

TEST(DType, Bf16RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(float(BF16(1.0f)), 1.0f);
  EXPECT_EQ(BF16(std::bit_cast<float>(0x3F808000u)).bits, 0x3F80);  // a tie goes to even
  EXPECT_EQ(BF16(std::bit_cast<float>(0x3F818000u)).bits, 0x3F82);
  EXPECT_EQ(BF16(std::bit_cast<float>(0x3F808001u)).bits, 0x3F81);
  EXPECT_TRUE(std::isnan(float(BF16(std::bit_cast<float>(0x7F800001u)))));
  EXPECT_TRUE(std::isinf(float(BF16(std::numeric_limits<float>::max()))));
  for (std::uint32_t bits = 0; bits < 0x7F80; ++bits) {
    BF16 value;
    value.bits = static_cast<std::uint16_t>(bits);
    EXPECT_EQ(BF16(float(value)).bits, bits);
  }
}

TEST(DType, F16RoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x7C00; ++bits) {
    F16 value;
    value.bits = static_cast<std::uint16_t>(bits);
    EXPECT_EQ(F16(float(value)).bits, bits);
  }
}

TEST(Tensor, SlicesAndReshapes) {
  std::vector<float> data(24);
  for (int i = 0; i < 24; ++i) data[i] = static_cast<float>(i);
  Tensor t = Tensor::dense(data.data(), DType::kF32, {2, 3, 4});
  Tensor s = t.slice(2, 1, 2).slice(0, 1, 1);
  EXPECT_EQ(*s.ptr<float>(), 13.0f);
  EXPECT_FALSE(s.dense());
  EXPECT_TRUE(s.dense_rows());
  EXPECT_EQ(t.at(1).at(2).ptr<float>()[0], 20.0f);
  EXPECT_EQ(t.reshape({6, 4}).at(5).ptr<float>()[3], 23.0f);
  EXPECT_THROW(t.slice(1, 2, 2), Error);
  EXPECT_THROW(t.reshape({5, 5}), Error);
  EXPECT_THROW(t.ptr<BF16>(), Error);
  EXPECT_EQ(t.describe(), "float32 [2, 3, 4]");
}

TEST(Buffer, IsZeroedAlignedAndMovable) {
  for (std::int64_t bytes : {1, 100, 1 << 20, 3'000'000}) {
    Buffer buffer(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0u);
    const auto* p = static_cast<const unsigned char*>(buffer.data());
    EXPECT_EQ(p[0], 0);
    EXPECT_EQ(p[bytes - 1], 0);
    Buffer moved = std::move(buffer);
    EXPECT_EQ(moved.bytes(), bytes);
  }
  EXPECT_THROW(Buffer(std::int64_t{1} << 60), Error);
}

TEST(Arena, MeasuresThenRepeatsAddresses) {
  auto step = [](Arena& arena) {
    Arena::Scope outer(arena);
    Tensor a = arena.take(DType::kF32, {10});
    {
      Arena::Scope inner(arena);
      arena.take(DType::kBF16, {1000});
    }
    Tensor b = arena.take(DType::kF32, {5});
    return std::pair{a.data, b.data};
  };
  Arena measuring;
  step(measuring);
  EXPECT_EQ(measuring.peak_bytes(), 64 + 2048);  // 40 and 2000 bytes, each rounded up to 64
  Arena arena(measuring.peak_bytes());
  EXPECT_EQ(step(arena), step(arena));
  EXPECT_THROW(arena.take(DType::kF32, {1 << 20}), Error);
}

TEST(Context, DetectsAnInstructionSet) {
  EXPECT_FALSE(cpu_isa_name(detect_cpu_isa()).empty());
}

TEST(Device, IsChosenOrItIsSaidWhyNot) {
  EXPECT_EQ(choose_device("cpu").kind, DeviceKind::kCpu);
  EXPECT_EQ(device_info({}).name, "CPU");
  EXPECT_GT(device_info({}).free_bytes, 0);
  try {
    // Only on a machine with a GPU, in a build with CUDA kernels.
    EXPECT_EQ(choose_device("cuda").kind, DeviceKind::kCuda);
    EXPECT_EQ(choose_device("auto").kind, DeviceKind::kCuda);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNoDevice);
    EXPECT_NE(error.message().find("no usable GPU"), std::string::npos);
    EXPECT_EQ(choose_device("auto").kind, DeviceKind::kCpu);
    EXPECT_EQ(choose_device("auto", 7).kind, DeviceKind::kCpu);  // no GPU at all
    return;
  }
  EXPECT_EQ(choose_device("cuda", 0).index, 0);
  EXPECT_EQ(choose_device("cpu", 4096).kind, DeviceKind::kCpu);
  for (const char* wanted : {"cuda", "auto"}) {
    try {
      choose_device(wanted, 4096);
      ADD_FAILURE() << wanted;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kNoDevice);
      EXPECT_NE(error.message().find("--base-gpu-id is 4096, and there "), std::string::npos);
    }
  }
}

TEST(Copy, OnTheHostIsPlain) {
  Buffer a(64), b = Buffer::staging(64, {});
  std::memset(a.data(), 7, 64);
  copy(Stream(), a.tensor(DType::kU8, {64}), b.tensor(DType::kU8, {64}));
  EXPECT_EQ(std::memcmp(a.data(), b.data(), 64), 0);
  EXPECT_THROW(copy(Stream(), a.tensor(DType::kU8, {64}), b.tensor(DType::kU8, {32})), Error);
  HostImage image(a.tensor(DType::kU8, {64}));
  EXPECT_EQ(image.tensor().data, a.data());
  image.put();
}

TEST(Stream, OnTheHostHasNothingToWaitFor) {
  Stream stream{Device{}};
  StreamEvent event{Device{}};
  event.record(stream);
  event.wait();
  stream.synchronize();
  EXPECT_EQ(stream.handle(), nullptr);
  EXPECT_THROW(Graph::capture(stream, [] {}), Error);
}

TEST(Arena, MeasuresForADevice) {
  const Device gpu{.kind = DeviceKind::kCuda, .index = 1};
  Arena arena = Arena::measuring(gpu);
  EXPECT_EQ(arena.take(DType::kF32, {16}).device, gpu);
  EXPECT_EQ(arena.peak_bytes(), 64);
}

}  // namespace
}  // namespace sluice
