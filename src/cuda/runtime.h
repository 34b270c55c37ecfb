// Every call of the CUDA runtime that LazyTrain makes. The plugin makes them on a card; cuda/emulated_runtime.h on
// the CPU, for tests. Functions throw RunError with what was asked for and what CUDA answered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "cuda/stream.h"

namespace lazytrain::cuda {

// A point in a stream. Waiting for an event that was never recorded is no wait.
struct Event;

struct DeviceProperties {
  std::string name;  // "NVIDIA H100 80GB HBM3"
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;  // now, with what other processes hold
  int multiprocessors = 0;
  int compute_capability = 0;  // 10 major + minor
};

enum class Direction : uint8_t { kToDevice, kToHost, kOnDevice };

class Runtime {
 public:
  virtual ~Runtime() = default;

  virtual DeviceProperties properties() = 0;

  // Device memory, not zeroed. The message of a refusal says how much is free.
  virtual std::byte* allocate(int64_t bytes) = 0;
  virtual void release(std::byte* memory) = 0;

  // Pins host memory for copies at the full rate of the link; false: the system refuses, and copies are slower.
  virtual bool register_host(std::span<std::byte> memory) = 0;
  virtual void unregister_host(std::span<std::byte> memory) = 0;

  // They live as long as the runtime.
  virtual Stream& make_stream() = 0;
  virtual Event& make_event() = 0;

  // Put into the stream; host memory stays as it is until the stream is through with it.
  virtual void copy(Stream& stream, void* to, const void* from, int64_t bytes, Direction direction) = 0;
  virtual void fill(Stream& stream, void* memory, int value, int64_t bytes) = 0;
  virtual void record(Stream& stream, Event& event) = 0;
  virtual void wait(Stream& stream, Event& event) = 0;  // what comes next in the stream, for the last record() so far

  // The calling thread waits. Both throw what went wrong on the device up to there.
  virtual void synchronize(Event& event) = 0;
  virtual void synchronize(Stream& stream) = 0;
  // Between two events that have been waited for.
  virtual double seconds_between(Event& first, Event& last) = 0;
};

}  // namespace lazytrain::cuda
