#include "distributed/single.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace sluice {
namespace {

TEST(SingleCommunicator, LeavesDataAsItIs) {
  std::vector<float> x = {1.0f, -2.0f, 3.5f};
  std::vector<float> out(3, -7.0f);
  const Tensor tx = Tensor::dense(x.data(), DType::kF32, {3});
  const Tensor tout = Tensor::dense(out.data(), DType::kF32, {1, 3});
  SingleCommunicator comm;
  EXPECT_EQ(comm.rank(), 0);
  EXPECT_EQ(comm.size(), 1);
  comm.all_reduce(tx);
  comm.broadcast(tx, 0);
  comm.barrier();
  comm.all_gather(tx, tout);
  EXPECT_EQ(x, (std::vector<float>{1.0f, -2.0f, 3.5f}));
  EXPECT_EQ(out, x);
}

TEST(SingleCommunicator, RefusesOtherRanksAndShapes) {
  std::vector<float> x(3);
  std::vector<float> out(6);
  SingleCommunicator comm;
  EXPECT_THROW(comm.broadcast(Tensor::dense(x.data(), DType::kF32, {3}), 1), Error);
  EXPECT_THROW(comm.all_gather(Tensor::dense(x.data(), DType::kF32, {3}),
                               Tensor::dense(out.data(), DType::kF32, {6})),
               Error);
}

}  // namespace
}  // namespace sluice
