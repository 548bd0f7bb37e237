#include "kernels/cuda/common/shared_memory.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace sluice::cuda {
namespace {

TEST(SharedMemory, SharedMemoryIsThatOfTheGpu) {
  EXPECT_EQ(max_shared_bytes(80), 163 << 10);
  EXPECT_EQ(max_shared_bytes(89), 99 << 10);
  EXPECT_EQ(max_shared_bytes(90), 227 << 10);
  EXPECT_EQ(max_shared_bytes(120), 99 << 10);
}

}  // namespace
}  // namespace sluice::cuda
