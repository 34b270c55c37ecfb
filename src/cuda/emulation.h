// CUDA's grid on a CPU: kernels compiled as C++ run block after block, the threads of a block as fibres that change at
// barriers and shuffles. It shows that a kernel computes the right thing; it says nothing of speed.
//
// Blocks, and the threads of a block between two barriers, run in any order that a seed gives. A kernel whose result
// follows that order lacks a barrier or has a race. A barrier that not all threads reach, and a wide access of an
// address that is not a multiple of its size, are errors. Shared memory has exactly the bytes asked for and begins as
// NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "cuda/stream.h"

#define __global__
#define __device__
#define __host__

namespace lazytrain::cuda {

struct LaunchShape {
  int64_t grid_x = 1;
  int64_t grid_y = 1;
  int threads = 1;  // of a block, at most 1024
  int64_t shared_bytes = 0;
};

namespace emulation {
class Runner;
}

// Runs kernels, one at a time, on the calling thread.
class Emulator {
 public:
  explicit Emulator(uint64_t order = 0);  // 0: ascending; other: a permutation of its own
  ~Emulator();

  // Throws what the kernel throws, and logic_error when its barriers do not meet.
  void run(const LaunchShape& shape, const std::function<void()>& kernel);

 private:
  std::unique_ptr<emulation::Runner> runner_;
};

// Where a launched kernel goes.
struct Stream {
  virtual ~Stream() = default;
  virtual void launch(const LaunchShape& shape, std::function<void()> kernel) = 0;
  virtual void enqueue(std::function<void()> task) = 0;  // any work of the host's
};

// Runs everything at once.
class ImmediateStream final : public Stream {
 public:
  explicit ImmediateStream(uint64_t order = 0) : emulator_(order) {}
  void launch(const LaunchShape& shape, std::function<void()> kernel) override { emulator_.run(shape, kernel); }
  void enqueue(std::function<void()> task) override { task(); }

 private:
  Emulator emulator_;
};

// What a kernel sees (cuda/kernel.h).
namespace emulation {
int thread_x();
int block_threads();
int64_t block_x();
int64_t block_y();
std::byte* shared_memory();
void sync_threads();
void sync_warp();
uint64_t shuffle_xor(uint64_t bits, int mask);
void require_aligned(const void* address, size_t bytes);
}  // namespace emulation

}  // namespace lazytrain::cuda
