// The calls of the CUDA runtime on the CPU, for tests: device memory is memory, kernels run in the emulation
// (cuda/emulation.h). Two ways to run streams: beside each other on threads, and one task after the other in an order
// that brings out what is not ordered.
#pragma once

#include <memory>
#include <vector>

#include "cuda/emulation.h"
#include "cuda/runtime.h"

namespace lazytrain::cuda {

struct EmulationOptions {
  int64_t device_bytes = int64_t{1} << 30;  // more cannot be allocated
  bool can_pin = true;
  uint64_t order = 0;  // of blocks and threads (Emulator)
};

// Device memory begins as NaN, so that what is read before it is written is seen in the results. A copy whose direction
// does not fit where its two sides lie is a RunError. Like a card it keeps the first error of a stream and throws it at
// every synchronize() from then on.
class EmulatedRuntime : public Runtime {
 public:
  ~EmulatedRuntime() override;

  DeviceProperties properties() override;
  std::byte* allocate(int64_t bytes) override;
  void release(std::byte* memory) override;
  bool register_host(std::span<std::byte> memory) override;
  void unregister_host(std::span<std::byte> memory) override;
  Event& make_event() override;
  void copy(Stream& stream, void* to, const void* from, int64_t bytes, Direction direction) override;
  void fill(Stream& stream, void* memory, int value, int64_t bytes) override;
  double seconds_between(Event& first, Event& last) override;

  int64_t allocated_bytes() const;  // now
  int64_t registered_bytes() const;

 protected:
  struct State;
  explicit EmulatedRuntime(EmulationOptions options);
  std::unique_ptr<State> state_;
};

// A stream is a thread.
class ThreadedRuntime final : public EmulatedRuntime {
 public:
  explicit ThreadedRuntime(EmulationOptions options = {});
  ~ThreadedRuntime() override;
  Stream& make_stream() override;
  void record(Stream& stream, Event& event) override;
  void wait(Stream& stream, Event& event) override;
  void synchronize(Event& event) override;
  void synchronize(Stream& stream) override;

 private:
  class Thread;
  std::vector<std::unique_ptr<Thread>> streams_;
};

// A task runs when somebody waits for it, and not before: as late as the waits allow. The tasks of one stream, if one
// is named, run as early as the waits allow. What one stream needs of another and does not wait for is then missing, or
// overwritten. The same order in every run, but for what the threads that ask for work do.
class LateRuntime final : public EmulatedRuntime {
 public:
  explicit LateRuntime(EmulationOptions options = {}, int early_stream = -1);  // counted as they are made
  ~LateRuntime() override;
  Stream& make_stream() override;
  void record(Stream& stream, Event& event) override;
  void wait(Stream& stream, Event& event) override;
  void synchronize(Event& event) override;
  void synchronize(Stream& stream) override;

 private:
  struct Queues;
  class Queue;
  std::unique_ptr<Queues> queues_;
};

}  // namespace lazytrain::cuda
