// The emulation itself: that it runs kernels as CUDA would, and that it finds what is wrong with one.
#include "cuda/emulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "cuda/kernel.h"

namespace lazytrain::cuda {
namespace {

using ::testing::Each;

void fill(int32_t* to, int64_t blocks_x) { to[(block_y() * blocks_x + block_x()) * block_threads() + thread_x()] += 1; }

TEST(Emulation, EveryThreadOfEveryBlockRunsOnce) {
  for (const uint64_t order : {0, 1, 7}) {
    ImmediateStream stream(order);
    std::vector<int32_t> runs(3 * 5 * 70);
    launch(&fill, {3, 5}, 70, 0, stream, runs.data(), 3);
    EXPECT_THAT(runs, Each(1));
  }
}

// Neighbours exchange through shared memory in several rounds, which only barriers keep apart.
void rotate(int32_t* data, int rounds, bool with_barrier) {
  auto* const space = shared_memory<int32_t>();
  int32_t own = data[thread_x()];
  for (int i = 0; i < rounds; ++i) {
    space[thread_x()] = own;
    if (with_barrier) sync_threads();
    own = space[(thread_x() + 1) % block_threads()];
    if (with_barrier) sync_threads();
  }
  data[thread_x()] = own;
}

std::vector<int32_t> rotated(uint64_t order, bool with_barrier, int rounds = 5) {
  ImmediateStream stream(order);
  std::vector<int32_t> data(96);
  std::iota(data.begin(), data.end(), 0);
  launch(&rotate, {1, 1}, 96, 96 * 4, stream, data.data(), rounds, with_barrier);
  return data;
}

TEST(Emulation, BarriersHoldAllThreads) {
  std::vector<int32_t> expected(96);
  std::iota(expected.begin(), expected.end(), 5);
  for (int32_t& v : expected) v %= 96;
  for (const uint64_t order : {0, 1, 2}) EXPECT_EQ(rotated(order, true), expected);
}

TEST(Emulation, AMissingBarrierIsSeenInAnotherOrder) {
  EXPECT_NE(rotated(1, false, 1), rotated(2, false, 1));
  EXPECT_NE(rotated(0, false, 1), rotated(0, true, 1));
}

void sums(float* out) {
  const float sum = warp_sum(static_cast<float>(thread_x()));
  const float block = block_sum(static_cast<float>(thread_x()), shared_memory<float>());
  const float most = block_max(static_cast<float>(thread_x() % 50), shared_memory<float>());
  out[thread_x()] = 10000 * most + sum + block;
}

TEST(Emulation, ShufflesAndBlockSums) {
  for (const uint64_t order : {0, 3}) {
    ImmediateStream stream(order);
    std::vector<float> out(64);
    launch(&sums, {1, 1}, 64, 8, stream, out.data());
    for (size_t t = 0; t < out.size(); ++t) EXPECT_EQ(out[t], 490000.0f + (t < 32 ? 496 : 1520) + 2016) << t;
  }
}

void in_order(const double* values, int64_t count, double* total) {
  const double sum = ordered_sum(values, count, shared_memory<double>());
  if (thread_x() == 0) *total = sum;
}

TEST(Emulation, OrderedSumAddsInTheirOrder) {
  std::vector<double> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 1.0 / static_cast<double>(i * i + 3);
  ImmediateStream stream(5);
  double total = 0;
  launch(&in_order, {1, 1}, 64, 64 * 8, stream, values.data(), 1000, &total);
  EXPECT_EQ(total, std::accumulate(values.begin(), values.end(), 0.0));
}

void half_waits() {
  if (thread_x() % 2 == 0) sync_threads();
}
void warp_without_half() {
  if (thread_x() < 16) shuffle_xor(1.0f, 1);
}
void beyond_the_warp() { shuffle_xor(1.0f, 32); }
void crooked(const float* from) { load_128(from + 1); }

TEST(Emulation, RefusesWhatCudaLeavesUndefined) {
  ImmediateStream stream;
  alignas(16) const float values[8] = {};
  EXPECT_THROW(launch(&half_waits, {1, 1}, 64, 0, stream), std::logic_error);
  EXPECT_THROW(launch(&warp_without_half, {1, 1}, 32, 0, stream), std::logic_error);
  EXPECT_THROW(launch(&beyond_the_warp, {1, 1}, 64, 0, stream), std::logic_error);
  EXPECT_THROW(launch(&crooked, {1, 1}, 1, 0, stream, &values[0]), std::logic_error);
  EXPECT_THROW(launch(&beyond_the_warp, {1, 1}, 2048, 0, stream), std::logic_error);
  EXPECT_THROW(launch(&beyond_the_warp, {0, 1}, 32, 0, stream), std::logic_error);
  // and goes on afterwards
  std::vector<int32_t> runs(64);
  launch(&fill, {1, 1}, 64, 0, stream, runs.data(), 1);
  EXPECT_THAT(runs, Each(1));
}

void read_shared(float* out) { *out = shared_memory<float>()[0]; }

TEST(Emulation, SharedMemoryBeginsAsNan) {
  ImmediateStream stream;
  float out = 0;
  launch(&read_shared, {1, 1}, 1, 4, stream, &out);
  EXPECT_TRUE(std::isnan(out));
}

}  // namespace
}  // namespace lazytrain::cuda
