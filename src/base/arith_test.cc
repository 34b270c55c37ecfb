#include "base/arith.h"

#include <gtest/gtest.h>

namespace lazytrain {
namespace {

TEST(Arith, DividesAndAligns) {
  EXPECT_EQ(div_ceil(0, 8), 0);
  EXPECT_EQ(div_ceil(1, 8), 1);
  EXPECT_EQ(div_ceil(8, 8), 1);
  EXPECT_EQ(div_ceil(9, 8), 2);
  EXPECT_EQ(align_up(0, 64), 0);
  EXPECT_EQ(align_up(65, 64), 128);
  EXPECT_EQ(align_up(128, 64), 128);
}

TEST(Arith, ExactDivisionNamesTheQuotient) {
  EXPECT_EQ(div_exact(896, 14, "head_dim"), 64);
  try {
    div_exact(896, 15, "head_dim");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "head_dim: 896 is not a multiple of 15");
  }
  EXPECT_THROW(div_exact(896, 0, "head_dim"), UsageError);
  EXPECT_THROW(div_exact(896, -8, "head_dim"), UsageError);
}

TEST(Arith, CheckedOperationsSayWhenTheyLeaveTheRange) {
  int64_t out = 0;
  EXPECT_TRUE(checked_mul(INT64_MAX, 1, out));
  EXPECT_EQ(out, INT64_MAX);
  EXPECT_TRUE(checked_mul(INT64_MAX, 0, out));
  EXPECT_EQ(out, 0);
  EXPECT_FALSE(checked_mul(int64_t{1} << 32, int64_t{1} << 31, out));
  EXPECT_FALSE(checked_mul(INT64_MAX, 2, out));
  EXPECT_TRUE(checked_add(INT64_MAX - 1, 1, out));
  EXPECT_EQ(out, INT64_MAX);
  EXPECT_FALSE(checked_add(INT64_MAX, 1, out));
}

}  // namespace
}  // namespace lazytrain
