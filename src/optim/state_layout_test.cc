#include "optim/state_layout.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/arith.h"
#include "base/error.h"

namespace lazytrain::optim {
namespace {

using Role = ParameterRole;
constexpr MomentFormat kFp32{};
constexpr MomentFormat k8Bit256{StateKind::k8Bit, 256};
constexpr MomentFormat k8Bit4096{StateKind::k8Bit, 4096};

// A model in small: embedding, two layers of a large and a small matrix and a norm, final norm, head.
const std::vector<StateParameter> kModel = {{60'000, Role::kEmbedding}, {40'000, Role::kMatrix}, {8'000, Role::kMatrix},
                                            {200, Role::kVector},       {40'000, Role::kMatrix}, {4'095, Role::kMatrix},
                                            {5'000, Role::kVector},     {60'000, Role::kHead}};

std::vector<MomentFormat> formats(std::string_view setting) {
  return moment_formats(state_setting_from_name(setting), kModel);
}

TEST(StateSetting, ReadsWhatAPersonWrites) {
  EXPECT_EQ(state_setting_from_name("fp32").mode, StateSetting::Mode::kFp32);
  EXPECT_EQ(state_setting_from_name("8bit").block, 256);
  EXPECT_EQ(state_setting_from_name("8bit:4096").block, 4096);
  const StateSetting hybrid = state_setting_from_name("hybrid:0.02+embedding-head");
  EXPECT_EQ(hybrid.mode, StateSetting::Mode::kHybrid);
  EXPECT_EQ(hybrid.fraction, 0.02);
  EXPECT_EQ(hybrid.block, 4096);
  EXPECT_TRUE(hybrid.embedding);
  EXPECT_FALSE(hybrid.head);
  EXPECT_TRUE(state_setting_from_name("8bit-head+embedding").embedding);
}

TEST(StateSetting, RefusesTheRest) {
  for (const char* bad : {"", "fp64", "fp32+embedding", "8bit:", "8bit:100", "8bit:32", "8bit:8192", "8bit:256x",
                          "hybrid:", "hybrid:-0.1", "hybrid:1.5", "hybrid:nan", "hybrid:0.5x", "8bit+head",
                          "8bit+embedding+embedding", "+embedding"}) {
    EXPECT_THROW(state_setting_from_name(bad), UsageError) << bad;
  }
  EXPECT_EQ(name_of(StateKind::kFp32), "fp32");
  EXPECT_EQ(name_of(StateKind::k8Bit), "8bit");
}

TEST(MomentFormats, VectorsSmallOnesAndTheEmbeddingStayFp32) {
  EXPECT_EQ(formats("fp32"), std::vector<MomentFormat>(kModel.size()));
  const auto chosen = formats("8bit");
  EXPECT_EQ(chosen, (std::vector{kFp32, k8Bit256, k8Bit256, kFp32, k8Bit256, kFp32, kFp32, k8Bit256}));
  EXPECT_EQ(formats("8bit+embedding")[0], k8Bit256);
  EXPECT_EQ(formats("8bit-head")[7], kFp32);
  EXPECT_EQ(formats("8bit:4096")[1], k8Bit4096);
}

TEST(MomentFormats, HybridTakesTheLargestUntilTheShareIsReached) {
  // 217,295 parameters in all; the head alone is 28 %, with a layer's matrix 46 %.
  EXPECT_EQ(formats("hybrid:0"), formats("fp32"));
  const auto small = formats("hybrid:0.02");
  EXPECT_EQ(small, (std::vector{kFp32, kFp32, kFp32, kFp32, kFp32, kFp32, kFp32, k8Bit4096}));
  const auto more = formats("hybrid:0.3");
  EXPECT_EQ(more, (std::vector{kFp32, k8Bit4096, kFp32, kFp32, kFp32, kFp32, kFp32, k8Bit4096}));
  const auto without = formats("hybrid:0.3-head");
  EXPECT_EQ(without, (std::vector{kFp32, k8Bit4096, kFp32, kFp32, k8Bit4096, kFp32, kFp32, kFp32}));
  EXPECT_EQ(formats("hybrid:1"), formats("8bit:4096"));
  EXPECT_EQ(formats("hybrid:0.01+embedding")[0], k8Bit4096) << "the first of the same size";
}

TEST(UnitMoments, ArraysFollowEachOtherAligned) {
  for (const char* setting : {"fp32", "8bit", "8bit:4096", "hybrid:0.3"}) {
    const UnitMoments unit = unit_moments(kModel, formats(setting));
    ASSERT_EQ(unit.parameters.size(), kModel.size());
    int64_t end = 0, used = 0;
    for (size_t i = 0; i < kModel.size(); ++i) {
      const MomentLayout& layout = unit.parameters[i];
      EXPECT_EQ(layout.elements, kModel[i].elements);
      for (const MomentArray& a : layout.arrays) {
        EXPECT_EQ(a.offset_bytes % kMomentAlignment, 0);
        EXPECT_GE(a.offset_bytes, end);
        EXPECT_LT(a.offset_bytes - end, kMomentAlignment);
        end = a.offset_bytes + a.bytes();
        used += a.bytes();
      }
      EXPECT_EQ(layout.bytes(), moment_bytes(layout.format, layout.elements));
      EXPECT_THROW(layout.array("lo"), RunError);
    }
    EXPECT_GE(unit.bytes, end);
    EXPECT_LT(unit.bytes - end, kMomentAlignment);
    EXPECT_EQ(unit.bytes % kMomentAlignment, 0);
    EXPECT_LE(used, unit.bytes);
  }
}

TEST(UnitMoments, Fp32TakesEightBytesForEachElementOfTheBlockOfWeights) {
  int64_t elements = 0;  // as graph::Unit lays out its parameters
  for (const StateParameter& p : kModel) elements += align_up(p.elements, 64);
  EXPECT_EQ(unit_moments(kModel, formats("fp32")).bytes, planned_state_bytes("fp32", elements));
}

TEST(UnitMoments, EightBitArrays) {
  const std::vector<StateParameter> one = {{5'000, Role::kMatrix}};
  const MomentLayout layout = unit_moments(one, std::vector{k8Bit256}).parameters[0];
  EXPECT_EQ(layout.array("m8").dtype, DType::kU8);
  EXPECT_EQ(layout.array("m8").elements, 5'000);
  EXPECT_EQ(layout.array("v8").elements, 5'000);
  EXPECT_EQ(layout.array("scales").dtype, DType::kF32);
  EXPECT_EQ(layout.array("scales").elements, 2 * 20);
  EXPECT_THROW(layout.array("m"), RunError);
}

TEST(FormatOfScales, FindsEveryBlockSizeAndNoOther) {
  for (const int64_t n : {4'096, 4'097, 6'000, 8'191, 1'000'003}) {
    for (int64_t block = kSmallestBlock; block <= kLargestBlock; block *= 2) {
      EXPECT_EQ(format_of_scales(n, 2 * div_ceil(n, block)), (MomentFormat{StateKind::k8Bit, block})) << n;
    }
    EXPECT_EQ(format_of_scales(n, 2 * n), std::nullopt);
    EXPECT_EQ(format_of_scales(n, 2 * div_ceil(n, 256) + 1), std::nullopt);
    EXPECT_EQ(format_of_scales(n, 0), std::nullopt);
  }
  EXPECT_EQ(format_of_scales(100, 2), std::nullopt);
}

TEST(StateBytes, AParameter) {
  EXPECT_EQ(bytes_a_parameter(kFp32), 12.0);
  EXPECT_EQ(bytes_a_parameter(k8Bit256), 4.0 + 2.0 + 8.0 / 256);
  EXPECT_EQ(bytes_a_parameter(k8Bit4096), 4.0 + 2.0 + 8.0 / 4096);
}

TEST(StateBytes, PlannedAsOneMatrix) {
  EXPECT_EQ(planned_state_bytes("fp32", 1'000'003), 8'000'024);
  EXPECT_EQ(planned_state_bytes("8bit", 1'000'003), 2 * (1'000'003 + 4 * 3'907));
  EXPECT_EQ(planned_state_bytes("8bit:4096+embedding", 4'096), 2 * (4'096 + 4));
  EXPECT_EQ(planned_state_bytes("hybrid:0.5", 8'192), 2 * (4'096 + 4) + 8 * 4'096);
  EXPECT_EQ(planned_state_bytes("8bit", 0), 0);
  EXPECT_THROW(planned_state_bytes("8bits", 1), UsageError);
  // One matrix alone is what unit_moments gives it.
  const std::vector<StateParameter> one = {{1 << 20, Role::kMatrix}};
  EXPECT_EQ(unit_moments(one, moment_formats(state_setting_from_name("8bit"), one)).bytes,
            planned_state_bytes("8bit", 1 << 20));
}

TEST(ParamGroupRule, MatricesDecayVectorsDoNot) {
  const ParamGroupRule rule{.weight_decay = 0.1};
  EXPECT_EQ(rule.weight_decay_of(2), 0.1);
  EXPECT_EQ(rule.weight_decay_of(1), 0.0);
}

}  // namespace
}  // namespace lazytrain::optim
