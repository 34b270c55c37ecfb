#include "base/function_ref.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>

namespace lazytrain {
namespace {

int twice(FunctionRef<int(int)> f) { return f(1) + f(2); }

TEST(FunctionRef, CallsWhatItWasMadeFrom) {
  int calls = 0;
  std::array<int, 40> large{};  // no small buffer would hold it
  large[7] = 5;
  EXPECT_EQ(twice([&calls, large](int x) {
              ++calls;
              return large[7] * x;
            }),
            15);
  EXPECT_EQ(calls, 2);
  const auto constant = [](int x) { return 10 * x; };
  EXPECT_EQ(twice(constant), 30);
  const std::function<int(int)> held = constant;
  EXPECT_EQ(twice(held), 30);
}

TEST(FunctionRef, ACopyCallsTheSame) {
  int sum = 0;
  const auto add = [&](int x) { sum += x; };
  const FunctionRef<void(int)> first = add;
  const FunctionRef<void(int)> second = first;
  first(1);
  second(2);
  EXPECT_EQ(sum, 3);
}

TEST(FunctionRef, PassesArgumentsOnWithoutACopy) {
  std::unique_ptr<int> taken;
  const auto take = [&](std::unique_ptr<int> x) { taken = std::move(x); };
  FunctionRef<void(std::unique_ptr<int>)>{take}(std::make_unique<int>(4));
  EXPECT_EQ(*taken, 4);
}

}  // namespace
}  // namespace lazytrain
