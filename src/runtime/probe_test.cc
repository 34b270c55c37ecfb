#include "runtime/probe.h"

#include <gtest/gtest.h>

namespace lazytrain::runtime {
namespace {

TEST(Probe, RatesAreThoseOfAMachine) {
  ThreadPool pool(2);
  for (const DType compute : {DType::kBF16, DType::kF32}) {
    const hw::Profile profile = measure_this_machine(pool, compute, true);
    EXPECT_TRUE(profile.one_memory);
    EXPECT_GT(profile.gemm_flops, 1e8);
    EXPECT_LT(profile.gemm_flops, 1e14);
    EXPECT_GT(profile.memory_bandwidth, 1e8);
    EXPECT_LT(profile.memory_bandwidth, 1e13);
    EXPECT_GT(profile.host_bandwidth, 1e8);
    EXPECT_LT(profile.host_bandwidth, 1e13);
    EXPECT_GT(profile.launch_s, 0);
    EXPECT_LT(profile.launch_s, 0.1);
    EXPECT_GT(profile.host_bytes, 0);
    // What it writes is what it reads.
    EXPECT_EQ(hw::to_json(hw::profile_from_json(hw::to_json(profile), "profile")), hw::to_json(profile));
  }
}

}  // namespace
}  // namespace lazytrain::runtime
