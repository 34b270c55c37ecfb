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

TEST(Rope, MatcherSeesAWrongFrequency) {
  auto wrong = kLlama32;
  wrong[16] *= 1.000001f;
  EXPECT_THAT(wrong, ::testing::Not(Matches(kLlama32)));
  wrong[16] = NAN;
  EXPECT_THAT(wrong, ::testing::Not(Matches(kLlama32)));
}

}  // namespace
}  // namespace lazytrain::model
