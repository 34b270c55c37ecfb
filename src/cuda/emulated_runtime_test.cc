#include "cuda/emulated_runtime.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error.h"
#include "cuda/kernel.h"

namespace lazytrain::cuda {
namespace {

template <typename Runtime>
class EmulatedRuntimes : public ::testing::Test {
 protected:
  Runtime runtime_{EmulationOptions{.device_bytes = 1 << 20}};
};
using Kinds = ::testing::Types<ThreadedRuntime, LateRuntime>;
TYPED_TEST_SUITE(EmulatedRuntimes, Kinds);

void twice(float* data) { data[block_x()] *= 2; }

TYPED_TEST(EmulatedRuntimes, AStreamRunsInOrder) {
  Runtime& runtime = this->runtime_;
  Stream& stream = runtime.make_stream();
  auto* device = reinterpret_cast<float*>(runtime.allocate(3 * sizeof(float)));
  std::array<float, 3> in = {1, 2, 3}, out = {};
  runtime.copy(stream, device, in.data(), sizeof in, Direction::kToDevice);
  launch(&twice, {3, 1}, 1, 0, stream, device);
  runtime.copy(stream, out.data(), device, sizeof out, Direction::kToHost);
  runtime.synchronize(stream);
  EXPECT_EQ(out, (std::array<float, 3>{2, 4, 6}));
  runtime.release(reinterpret_cast<std::byte*>(device));
  EXPECT_EQ(this->runtime_.allocated_bytes(), 0);
}

TYPED_TEST(EmulatedRuntimes, StreamsWaitForEvents) {
  Runtime& runtime = this->runtime_;
  Stream &first = runtime.make_stream(), &second = runtime.make_stream();
  Event &done = runtime.make_event(), &never = runtime.make_event(), &last = runtime.make_event();
  std::vector<int> order;
  for (int round = 0; round < 3; ++round) {
    runtime.wait(first, never);  // was never recorded: no wait
    first.enqueue([&] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
    first.enqueue([&] { order.push_back(1); });
    runtime.record(first, done);
    runtime.wait(second, done);
    second.enqueue([&] { order.push_back(2); });
    runtime.record(second, last);
    runtime.synchronize(last);
  }
  EXPECT_EQ(order, (std::vector<int>{1, 2, 1, 2, 1, 2}));
  EXPECT_GE(runtime.seconds_between(done, last), 0);
  EXPECT_EQ(runtime.seconds_between(last, last), 0);
}

TYPED_TEST(EmulatedRuntimes, AnErrorStaysUntilTheEnd) {
  Runtime& runtime = this->runtime_;
  Stream& stream = runtime.make_stream();
  Event& event = runtime.make_event();
  stream.enqueue([] { throw std::domain_error("kernel"); });
  runtime.record(stream, event);
  EXPECT_THROW(runtime.synchronize(event), std::domain_error);
  EXPECT_THROW(runtime.synchronize(stream), std::domain_error);
}

TYPED_TEST(EmulatedRuntimes, RefusesMemoryItHasNotAndCopiesTheWrongWay) {
  Runtime& runtime = this->runtime_;
  Stream& stream = runtime.make_stream();
  EXPECT_THROW(runtime.allocate((1 << 20) + 1), RunError);
  std::byte* device = runtime.allocate(64);
  EXPECT_EQ(runtime.properties().free_bytes, (1 << 20) - 64);
  float beginning = 0;
  std::memcpy(&beginning, device, sizeof beginning);
  EXPECT_TRUE(std::isnan(beginning));
  std::array<std::byte, 64> host{};
  EXPECT_THROW(runtime.copy(stream, host.data(), device, 64, Direction::kToDevice), RunError);
  EXPECT_THROW(runtime.copy(stream, device, host.data(), 64, Direction::kOnDevice), RunError);
  EXPECT_THROW(runtime.copy(stream, host.data(), device + 8, 64, Direction::kToHost), RunError);
  runtime.release(device);
  EXPECT_THROW(runtime.release(device), RunError);
}

// What is not ordered comes in the other order.
TEST(LateRuntime, BringsOutAMissingWait) {
  for (const bool waits : {true, false}) {
    LateRuntime runtime({}, 1);
    Stream &producer = runtime.make_stream(), &consumer = runtime.make_stream();
    Event& made = runtime.make_event();
    int value = 0, seen = -1;
    producer.enqueue([&] { value = 1; });
    runtime.record(producer, made);
    if (waits) runtime.wait(consumer, made);
    consumer.enqueue([&] { seen = value; });
    runtime.synchronize(producer);
    runtime.synchronize(consumer);
    EXPECT_EQ(seen, waits ? 1 : 0);
  }
}

}  // namespace
}  // namespace lazytrain::cuda
