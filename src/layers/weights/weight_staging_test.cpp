#include "layers/weights/weight_staging.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(WeightStaging, ResolvesRanges) {
  const WeightRequest request{
      .name = "w", .shape = {4, 6, 8}, .ranges = {{1, 1}, {2, -1}}, .init = WeightInit::kNormal};
  const std::vector<AxisRange> ranges = resolved_ranges(request);
  ASSERT_EQ(ranges.size(), 3u);
  EXPECT_EQ(ranges[0].count, 1);
  EXPECT_EQ(ranges[1].begin, 2);
  EXPECT_EQ(ranges[1].count, 4);
  EXPECT_EQ(ranges[2].count, 8);
}

TEST(WeightStaging, ReadsStraightIntoHostMemory) {
  const WeightSource source = WeightSource::dummy(3, 1.0);
  const WeightRequest request{
      .name = "w", .shape = {4, 6}, .ranges = {{1, 2}}, .init = WeightInit::kNormal};
  Buffer whole(4 * 6 * 4), part(2 * 6 * 4);
  WeightStaging staging({});
  staging.read(source, {.name = "w", .shape = {4, 6}, .ranges = {}, .init = WeightInit::kNormal},
               whole.tensor(DType::kF32, {4, 6}));
  const Tensor rows = part.tensor(DType::kF32, {2, 6});
  staging.read(source, request, rows);
  staging.finish();
  for (int i = 0; i < 12; ++i)
    EXPECT_EQ(rows.ptr<float>()[i], whole.tensor(DType::kF32, {4, 6}).ptr<float>()[6 + i]) << i;
}

}  // namespace
}  // namespace sluice
