// The comparer and the guards have tests of their own: a check that cannot fail proves nothing.
#include "ops/testing.h"

namespace lazytrain::ops::testing {
namespace {

using ::testing::Not;

TEST(Rho, SeesWhatOthersMissed) {
  const std::vector<double> expected = {-1.0, 2.0, 0.5};
  EXPECT_THAT(expected, Rho(expected, 0.0));
  for (const double wrong : {1.0, -5.0, 0.0, 5.0, double(NAN), double(INFINITY), -double(INFINITY)}) {
    EXPECT_THAT((std::vector<double>{wrong, 2.0, 0.5}), Not(Rho(expected, kBf16Op))) << wrong;
  }
  EXPECT_THAT((std::vector<double>{0, 0, 0}), Not(Rho(expected, 0.5)));
  EXPECT_THAT((std::vector<double>{1, -2, -0.5}), Not(Rho(expected, 1.9)));  // every sign flipped: rho 2
  EXPECT_THAT((std::vector<double>{-1.0, 2.0}), Not(Rho(expected, 1e9)));
}

TEST(Rho, IsTheRatioOfRootMeanSquares) {
  EXPECT_NEAR(rho(std::vector<double>{1.01, -1.01}, std::vector<double>{1.0, -1.0}), 0.01, 1e-12);
  EXPECT_NEAR(rho(std::vector<double>{3, 3}, std::vector<double>{0, 0}), 3, 1e-12);
}

TEST(Rho, NonFiniteExpectationsNeverPass) {
  const std::vector<double> nan = {double(NAN)}, inf = {double(INFINITY)};
  EXPECT_THAT(nan, Not(Rho(nan, 1e9)));
  EXPECT_THAT(inf, Not(Rho(inf, 1e9)));
}

TEST(GuardedView, SeesEveryByteOutside) {
  for (const int64_t offset : {int64_t{-1}, int64_t{4}, int64_t{9}}) {  // before, in the gap between rows, behind
    GuardedView guarded(DType::kBF16, 2, 4, 1);
    EXPECT_TRUE(guarded.intact());
    static_cast<bf16*>(guarded.view().data)[offset] = to_bf16(1);
    EXPECT_FALSE(guarded.intact()) << offset;
  }
}

TEST(GuardedView, StartsAsNanAndKeepsValues) {
  GuardedView guarded(DType::kBF16, 1, 3, 2);
  EXPECT_TRUE(std::isnan(guarded.read().v[2]));
  Matrix m(1, 3);
  m.v = {1, -2.5, 1.001};
  guarded.write(m);
  EXPECT_EQ(guarded.read().v, (std::vector<double>{1, -2.5, 1}));  // 1.001 is nearer to 1 than to 1.0078125
  EXPECT_TRUE(guarded.intact());
}

TEST(Documents, RestartPositions) {
  const Batch batch = documents({2, 1, 3});
  EXPECT_EQ(batch.positions, (std::vector<int32_t>{0, 1, 0, 0, 1, 2}));
  EXPECT_EQ(batch.doc_starts, (std::vector<int32_t>{0, 2, 3, 6}));
}

TEST(CentralDifference, OfASquare) {
  const auto gradient =
      central_difference({3.0, -2.0}, [](const std::vector<double>& x) { return x[0] * x[0] * x[1]; });
  EXPECT_THAT(gradient, Rho(std::vector<double>{-12.0, 9.0}, kFp64Difference));
}

}  // namespace
}  // namespace lazytrain::ops::testing
