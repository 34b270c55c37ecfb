#include "plan/similarity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/testing.h"

namespace lazytrain::plan {
namespace {

hw::Profile card() {
  hw::Profile profile;
  profile.name = "card";
  profile.gemm_flops = 1e14;
  profile.memory_bandwidth = 1e13;
  profile.host_bandwidth = 1e11;
  profile.links = {.h2d = 2e10, .d2h = 2e10, .joint = 3e10, .disk_read = 0, .disk_write = 0};
  profile.device_bytes = int64_t{20} << 30;
  profile.host_bytes = int64_t{200} << 30;
  return profile;
}

hw::Profile here() {
  hw::Profile profile = card();
  profile.name = "this";
  profile.one_memory = true;
  profile.gemm_flops = 1e11;
  profile.memory_bandwidth = 1e12;
  return profile;
}

TEST(Similarity, RatiosOfALayerAreThoseOfTheReference) {
  const graph::Graph there = graph::testing::toy_graph(16, false), own = graph::testing::toy_graph(4, false);
  const Similarity similar = similar_machine({there, card(), {64, 64, 512}}, own, {8, 8, 64}, DType::kBF16, here(), 0);
  for (const Similar& ratio : similar.ratios) {
    if (ratio.name == "layers" || ratio.name == "boundary over h2d") continue;
    EXPECT_NEAR(ratio.here / ratio.there, 1, 1e-6) << ratio.name;
  }
  EXPECT_THAT(describe(similar), ::testing::HasSubstr("layers: 16 there, 4 here"));
}

// A model of a quarter of the layers has a quarter of the boundaries to keep: with all of the memory every one would
// stay on the device, and no schedule would have anything to do.
TEST(Similarity, DeviceMemoryGoesWithAllBoundaries) {
  const graph::Graph deep = graph::testing::toy_graph(16, false), shallow = graph::testing::toy_graph(4, false);
  const Shape shape{8, 8, 64};
  const auto device = [&](const graph::Graph& own, int64_t scratch) {
    return similar_machine({deep, card(), shape}, own, shape, DType::kBF16, here(), scratch)
        .emulation.machine.device_bytes;
  };
  EXPECT_NEAR(static_cast<double>(device(deep, 0)) / static_cast<double>(device(shallow, 0)), 4, 1e-6);
  EXPECT_EQ(device(deep, 1000) - device(deep, 0), 1000);
}

}  // namespace
}  // namespace lazytrain::plan
