#include "optim/state_layout.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lazytrain::optim {
namespace {

TEST(StateLayout, Fp32CostsTwelveBytesAParameter) {
  EXPECT_EQ(bytes_a_parameter(StateKind::kFp32), 12.0);
  const StateBytes bytes = state_bytes(StateKind::kFp32, 1000);
  EXPECT_EQ(bytes.hi, 2000);
  EXPECT_EQ(bytes.lo, 2000);
  EXPECT_EQ(bytes.moments, 8000);
  EXPECT_EQ(bytes.optimizer(), 10000);
  EXPECT_EQ(bytes.total(), 12000);
}

TEST(StateLayout, SectionsFollowEachOtherAligned) {
  for (const int64_t n : {0, 1, 31, 32, 1000, 1'000'003}) {
    const StateLayout layout = state_layout(StateKind::kFp32, n);
    int64_t end = 0;
    int64_t used = 0;
    for (const StateSection& s : layout.sections) {
      EXPECT_EQ(s.offset_bytes % kStateAlignment, 0);
      EXPECT_GE(s.offset_bytes, end);
      EXPECT_LT(s.offset_bytes - end, kStateAlignment);
      EXPECT_EQ(s.elements, n);
      end = s.offset_bytes + s.bytes();
      used += s.bytes();
    }
    EXPECT_GE(layout.bytes, end);
    EXPECT_LT(layout.bytes - end, kStateAlignment);
    EXPECT_EQ(layout.bytes % kStateAlignment, 0);
    EXPECT_EQ(used, state_bytes(StateKind::kFp32, n).optimizer());
    EXPECT_EQ(layout.section("lo").dtype, DType::kI16);
    EXPECT_EQ(layout.section("m").dtype, DType::kF32);
    EXPECT_EQ(layout.section("v").dtype, DType::kF32);
    EXPECT_THROW(layout.section("scale"), RunError);
  }
}

TEST(StateLayout, Names) {
  EXPECT_EQ(state_kind_from_name("fp32"), StateKind::kFp32);
  EXPECT_EQ(name_of(StateKind::kFp32), "fp32");
  EXPECT_THROW(state_kind_from_name("fp64"), UsageError);
}

TEST(ParamGroupRule, MatricesDecayVectorsDoNot) {
  const ParamGroupRule rule{.weight_decay = 0.1};
  EXPECT_EQ(rule.weight_decay_of(2), 0.1);
  EXPECT_EQ(rule.weight_decay_of(1), 0.0);
}

}  // namespace
}  // namespace lazytrain::optim
