#include "runtime/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "runtime/probe_compute.h"
#include "runtime/probe_disk.h"

namespace lazytrain::runtime {
namespace {

namespace fs = std::filesystem;

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

TEST(Probe, ThoroughProfileHasSamplesAndSources) {
  ThreadPool pool(2);
  const hw::Profile profile = measure_this_machine(pool, DType::kBF16, false);
  ASSERT_GE(profile.gemm.size(), 6u);
  ASSERT_GE(profile.attention.size(), 3u);
  for (const hw::GemmSample& sample : profile.gemm) EXPECT_GT(sample.flops, 1e8);
  for (const hw::AttentionSample& sample : profile.attention) EXPECT_GT(sample.flops, 1e7);
  EXPECT_GT(profile.attention_flops, 1e7);
  EXPECT_GE(profile.gemm_half_rows, 0);
  EXPECT_GT(profile.links.h2d, 1e8);
  EXPECT_GT(profile.links.d2h, 1e8);
  EXPECT_GT(profile.links.joint, 1e8);
  EXPECT_THAT(hw::unsourced_figures(hw::to_json(profile)), ::testing::IsEmpty());
  EXPECT_EQ(hw::to_json(hw::profile_from_json(hw::to_json(profile), "profile")), hw::to_json(profile));
}

std::vector<hw::GemmSample> samples_of(double rate, double half, std::vector<int64_t> rows) {
  std::vector<hw::GemmSample> samples;
  for (const int64_t m : rows) {
    const auto x = static_cast<double>(m);
    samples.push_back({m, 1024, 1024, rate * x / (x + half)});
  }
  return samples;
}

TEST(HalfRows, IsFoundAgain) {
  EXPECT_NEAR(half_rows(samples_of(1e14, 200, {16, 64, 256, 2048})), 200, 1e-6);
  EXPECT_NEAR(half_rows(samples_of(1e11, 3, {16, 64, 256, 2048})), 3, 1e-6);
  EXPECT_NEAR(half_rows(samples_of(1e11, 0, {16, 64, 256, 2048})), 0, 1e-6);
  auto samples = samples_of(1e14, 200, {16, 64, 256});
  samples.push_back({512, 4096, 1024, 1e10});  // another weight: not part of the line
  EXPECT_NEAR(half_rows(samples), 200, 1e-6);
  // Rates that fall with the rows, one row count alone, nothing: no half.
  EXPECT_EQ(half_rows({{16, 8, 8, 2e10}, {64, 8, 8, 1e10}, {256, 8, 8, 9e9}}), 0);
  EXPECT_EQ(half_rows({{16, 8, 8, 2e10}}), 0);
  EXPECT_EQ(half_rows({}), 0);
}

TEST(DiskProbe, MeasuresAndLeavesNothing) {
  const fs::path folder = fs::path(::testing::TempDir()) / "disk_probe_test";
  fs::create_directories(folder);
  const DiskRates rates = measure_disk(folder, int64_t{64} << 20, 1);
  EXPECT_GT(rates.read, 1e5);
  EXPECT_GT(rates.write, 1e5);
  EXPECT_GT(rates.free_bytes, int64_t{64} << 20);
  EXPECT_TRUE(fs::is_empty(folder));
  fs::remove(folder);
  EXPECT_THROW(measure_disk(folder, int64_t{64} << 20, 1), UsageError);
}

// A file system in memory takes or refuses direct I/O by its version; rates come either way.
TEST(DiskProbe, MeasuresAFileSystemInMemory) {
  if (!fs::is_directory("/dev/shm")) GTEST_SKIP() << "there is no /dev/shm";
  if (free_disk_bytes("/dev/shm") < int64_t{64} << 20) GTEST_SKIP() << "/dev/shm has no room";
  const DiskRates rates = measure_disk("/dev/shm", int64_t{16} << 20, 1);
  EXPECT_GT(rates.read, 1e6);
  EXPECT_GT(rates.write, 1e6);
}

TEST(DiskProbe, WantsRoom) {
  const fs::path folder = ::testing::TempDir();
  EXPECT_THROW(measure_disk(folder, free_disk_bytes(folder), 1), UsageError);
  EXPECT_THROW(measure_disk("/proc", int64_t{64} << 20, 1), Error);
}

}  // namespace
}  // namespace lazytrain::runtime
