// What both emulated runtimes keep: memory, events, the first failure.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda/emulated_runtime.h"

namespace lazytrain::cuda {

// Records are counted: a wait is for the number that was asked for last when it was put into its stream.
struct Event {
  using Clock = std::chrono::steady_clock;

  uint64_t ask(Stream* in) {
    const std::lock_guard lock(mutex);
    stream = in;
    return ++asked;
  }
  uint64_t last_asked() {
    const std::lock_guard lock(mutex);
    return asked;
  }
  void end(uint64_t record) {
    {
      const std::lock_guard lock(mutex);
      ended = record;
      time = Clock::now();
    }
    changed.notify_all();
  }
  bool has_ended(uint64_t record) {
    const std::lock_guard lock(mutex);
    return ended >= record;
  }
  void wait_for(uint64_t record) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return ended >= record; });
  }
  Clock::time_point ended_at() {
    const std::lock_guard lock(mutex);
    return time;
  }

  std::mutex mutex;
  std::condition_variable changed;
  uint64_t asked = 0;
  uint64_t ended = 0;
  Stream* stream = nullptr;  // of the last record asked for
  Clock::time_point time;
};

// The first failure of any stream. It stays: after an error a device is of no use.
class Failure {
 public:
  void keep(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
  }
  void rethrow() {
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
};

struct EmulatedRuntime::State {
  explicit State(EmulationOptions o) : options(std::move(o)) {}

  bool on_device(const void* address, int64_t bytes) {
    const std::lock_guard lock(mutex);
    const auto* at = static_cast<const std::byte*>(address);
    auto it = allocations.upper_bound(at);
    if (it == allocations.begin()) return false;
    --it;
    return at + bytes <= it->first + it->second.size();
  }

  const EmulationOptions options;
  Failure failure;
  std::mutex mutex;  // of all below
  std::map<const std::byte*, std::vector<std::byte>> allocations;
  int64_t allocated = 0, registered = 0;
  std::deque<Event> events;
};

}  // namespace lazytrain::cuda
