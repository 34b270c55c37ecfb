#include "model/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace lazytrain::model {
namespace {

// Relative 3e-7 is five half-ulps: exponent, power and reciprocal are each rounded to fp32 once, there and here.
MATCHER_P(Matches, expected, "") {
  if (arg.size() != expected.size()) return false;
  for (size_t i = 0; i < arg.size(); ++i) {
    const double error = std::abs(arg[i] / expected[i] - 1.0);
    if (!(error <= 3e-7)) {
      *result_listener << "frequency " << i << " is " << arg[i] << ", expected " << expected[i];
      return false;
    }
  }
  return true;
}

// Printed by transformers 5.24 (Qwen2RotaryEmbedding, head_dim 64, theta 1e6).
const std::vector<float> kQwen2 = {1,
                                   0.649381638,
                                   0.421696514,
                                   0.273841977,
                                   0.177827939,
                                   0.115478203,
                                   0.0749894157,
                                   0.0486967526,
                                   0.0316227786,
                                   0.0205352511,
                                   0.0133352149,
                                   0.00865964312,
                                   0.00562341325,
                                   0.00365174143,
                                   0.00237137382,
                                   0.00153992651,
                                   0.00100000005,
                                   0.000649381662,
                                   0.000421696488,
                                   0.000273841957,
                                   0.00017782794,
                                   0.000115478193,
                                   7.49894243e-05,
                                   4.86967547e-05,
                                   3.16227743e-05,
                                   2.05352499e-05,
                                   1.33352141e-05,
                                   8.65964375e-06,
                                   5.62341347e-06,
                                   3.65174128e-06,
                                   2.37137374e-06,
                                   1.53992653e-06};

// Likewise (LlamaRotaryEmbedding of Llama-3.2-1B: head_dim 64, theta 5e5, llama3 with factor 32).
const std::vector<float> kLlama32 = {1,
                                     0.663601279,
                                     0.440366626,
                                     0.292227834,
                                     0.193922758,
                                     0.128687382,
                                     0.0853971019,
                                     0.0566696189,
                                     0.0376060307,
                                     0.0249554086,
                                     0.0165604409,
                                     0.0109895291,
                                     0.00729266508,
                                     0.00483942125,
                                     0.00321144611,
                                     0.00129054801,
                                     0.000429556705,
                                     9.70828623e-05,
                                     1.94616387e-05,
                                     1.29147675e-05,
                                     8.57025589e-06,
                                     5.68723226e-06,
                                     3.77405445e-06,
                                     2.50446715e-06,
                                     1.66196742e-06,
                                     1.10288363e-06,
                                     7.31874934e-07,
                                     4.85673127e-07,
                                     3.22293289e-07,
                                     2.1387423e-07,
                                     1.41927202e-07,
                                     9.41830649e-08};

TEST(Rope, DefaultFrequencies) { EXPECT_THAT(inverse_frequencies({.theta = 1e6}, 64), Matches(kQwen2)); }

TEST(Rope, Llama3Frequencies) {
  const RopeConfig rope{.type = RopeType::kLlama3,
                        .theta = 5e5,
                        .factor = 32,
                        .low_frequency = 1,
                        .high_frequency = 4,
                        .original_positions = 8192};
  EXPECT_THAT(inverse_frequencies(rope, 64), Matches(kLlama32));
}

// Printed by transformers 5.24 (GptOssConfig: head_dim 64, yarn without truncation).
const std::vector<float> kGptOss = {1,
                                    0.689044297,
                                    0.47478205,
                                    0.327145875,
                                    0.225418001,
                                    0.155322984,
                                    0.107024424,
                                    0.0737445652,
                                    0.0508132726,
                                    0.0317056961,
                                    0.0193349998,
                                    0.0115920492,
                                    0.00679495931,
                                    0.00386035908,
                                    0.00209379266,
                                    0.00105260219,
                                    0.000456483918,
                                    0.000129318694,
                                    3.83088118e-05,
                                    2.63964685e-05,
                                    1.8188337e-05,
                                    1.25325696e-05,
                                    8.63549576e-06,
                                    5.95023948e-06,
                                    4.09997847e-06,
                                    2.82506676e-06,
                                    1.94659629e-06,
                                    1.34129095e-06,
                                    9.24208962e-07,
                                    6.36820914e-07,
                                    4.38797855e-07,
                                    3.0235114e-07};

// Likewise (head_dim 16, theta 1e4, yarn with factor 4 over 256 positions, truncated).
const std::vector<float> kYarnTruncated = {
    1, 0.25693506, 0.0625, 0.0138349654, 0.00249999994, 0.000790569466, 0.000250000012, 7.90569466e-05};

TEST(Rope, YarnFrequencies) {
  RopeConfig rope{.type = RopeType::kYarn, .theta = 150000, .factor = 32, .original_positions = 4096};
  rope.truncate = false;
  EXPECT_THAT(inverse_frequencies(rope, 64), Matches(kGptOss));
  EXPECT_NEAR(rope.attention_scaling(), 1.3465735902799727, 1e-15);
  rope = {.type = RopeType::kYarn, .theta = 1e4, .factor = 4, .original_positions = 256};
  EXPECT_THAT(inverse_frequencies(rope, 16), Matches(kYarnTruncated));
  EXPECT_EQ(RopeConfig{}.attention_scaling(), 1);
}

// Likewise (Qwen3_5TextRotaryEmbedding of Qwen3.6-27B: a quarter of 256 dimensions, theta 1e7).
TEST(Rope, FrequenciesOfAPartOfTheHead) {
  const auto found = inverse_frequencies({.theta = 1e7, .partial = 0.25}, 256);
  ASSERT_EQ(found.size(), 32u);
  EXPECT_NEAR(found[1] / 0.604296386, 1, 3e-7);
  EXPECT_NEAR(found[13] / 0.00143301266, 1, 3e-7);
  EXPECT_NEAR(found[31] / 1.65481708e-07, 1, 3e-7);
}

TEST(Rope, MatcherSeesAWrongFrequency) {
  auto wrong = kLlama32;
  wrong[16] *= 1.000001f;
  EXPECT_THAT(wrong, ::testing::Not(Matches(kLlama32)));
  wrong[16] = NAN;
  EXPECT_THAT(wrong, ::testing::Not(Matches(kLlama32)));
}

}  // namespace
}  // namespace lazytrain::model
