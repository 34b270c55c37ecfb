#include "cuda/emulation.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "cuda/fiber.h"

namespace lazytrain::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kMostThreads = 1024;

std::vector<int64_t> order_of(int64_t count, uint64_t seed, uint64_t stream) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (seed == 0) return order;
  const CounterRng rng(seed, stream);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i, i)]);
  return order;
}

// A barrier of `expected` threads: each arrival belongs to the round that is open.
struct Barrier {
  int expected = 0;
  int arrived = 0;
  uint64_t round = 0;

  uint64_t arrive() {
    const uint64_t mine = round;
    if (++arrived == expected) {
      arrived = 0;
      ++round;
    }
    return mine;
  }
};

struct ThreadState {
  const Barrier* waits = nullptr;  // until its round is over
  uint64_t round = 0;
  Fiber* fiber = nullptr;

  bool ready() const { return waits == nullptr || waits->round != round; }
};

}  // namespace

namespace emulation {

class Runner {
 public:
  explicit Runner(uint64_t o) : order(o) {}

  void run(const LaunchShape& s, const std::function<void()>& k) {
    if (s.threads < 1 || s.threads > kMostThreads || s.grid_x < 1 || s.grid_y < 1 || s.grid_y > 65535) {
      throw std::logic_error("a launch of a size that CUDA does not have");
    }
    shape = s;
    kernel = &k;
    ++launches;
    Runner* const outer = std::exchange(current, this);
    try {
      for (const int64_t index : order_of(s.grid_x * s.grid_y, order, 2 * launches)) run_block(index);
    } catch (...) {
      current = outer;
      throw;
    }
    current = outer;
  }

  void run_block(int64_t index) {
    block = index;
    // As many bytes as asked for, so that address checkers see what lies behind; NaN as float, bf16 and double.
    shared = std::make_unique<std::byte[]>(static_cast<size_t>(shape.shared_bytes));
    std::memset(shared.get(), 0xff, static_cast<size_t>(shape.shared_bytes));
    threads.assign(static_cast<size_t>(shape.threads), {});
    block_barrier = {.expected = shape.threads};
    const int warps = (shape.threads + kWarp - 1) / kWarp;
    warp_barriers.assign(static_cast<size_t>(warps), {});
    for (int w = 0; w < warps; ++w) {
      warp_barriers[static_cast<size_t>(w)].expected = std::min(kWarp, shape.threads - w * kWarp);
    }
    slots.assign(2 * static_cast<size_t>(shape.threads), 0);
    turn.assign(static_cast<size_t>(shape.threads), 0);
    begin_order = order_of(shape.threads, order, 2 * launches + 1);
    begun = 0;
    used_fibers = 0;
    failure = nullptr;
    std::vector<int> waiting;
    while (begun < begin_order.size() || !waiting.empty()) {
      if (begun < begin_order.size()) {
        if (begin_on_new_fiber()) waiting.push_back(running);
        if (failure) std::rethrow_exception(failure);
        continue;
      }
      std::vector<int> still;
      bool moved = false;
      for (const int t : waiting) {
        ThreadState& state = threads[static_cast<size_t>(t)];
        if (!state.ready()) {
          still.push_back(t);
          continue;
        }
        moved = true;
        running = t;
        state.waits = nullptr;
        if (!state.fiber->resume()) still.push_back(t);
        if (failure) std::rethrow_exception(failure);
      }
      waiting = std::move(still);
      if (!moved) throw std::logic_error("a barrier that not all threads of its block or warp reach");
    }
  }

  // Threads that meet no barrier run one behind the other on one fibre. True: `running` now waits on it.
  bool begin_on_new_fiber() {
    if (used_fibers == fibers.size()) fibers.push_back(std::make_unique<Fiber>());
    Fiber& fiber = *fibers[used_fibers];
    fiber.start([this, &fiber] {
      try {
        while (begun < begin_order.size()) {
          running = static_cast<int>(begin_order[begun++]);
          threads[static_cast<size_t>(running)].fiber = &fiber;
          (*kernel)();
        }
      } catch (...) {
        failure = std::current_exception();
      }
    });
    const bool ended = fiber.resume();
    if (!ended) ++used_fibers;
    return !ended;
  }

  void wait(Barrier& barrier) {
    ThreadState& state = threads[static_cast<size_t>(running)];
    state.round = barrier.arrive();
    state.waits = &barrier;
    state.fiber->yield();
  }

  Barrier& own_warp() { return warp_barriers[static_cast<size_t>(running / kWarp)]; }

  uint64_t shuffle_xor(uint64_t bits, int mask) {
    const int thread = running, partner = thread ^ mask;
    if (partner / kWarp != thread / kWarp || partner >= shape.threads) {
      throw std::logic_error("a shuffle with a lane that the warp does not have");
    }
    // Two slots in turn: what the last shuffle wrote may still be read.
    const size_t half = turn[static_cast<size_t>(thread)] ^= 1;
    slots[2 * static_cast<size_t>(thread) + half] = bits;
    wait(own_warp());
    return slots[2 * static_cast<size_t>(partner) + half];
  }

  static thread_local Runner* current;

  uint64_t order;
  uint64_t launches = 0;
  LaunchShape shape;
  const std::function<void()>* kernel = nullptr;
  int64_t block = 0;
  int running = 0;
  std::unique_ptr<std::byte[]> shared;
  std::vector<ThreadState> threads;
  Barrier block_barrier;
  std::vector<Barrier> warp_barriers;
  std::vector<uint64_t> slots;
  std::vector<uint8_t> turn;
  std::vector<int64_t> begin_order;
  size_t begun = 0;
  std::vector<std::unique_ptr<Fiber>> fibers;
  size_t used_fibers = 0;
  std::exception_ptr failure;
};

thread_local Runner* Runner::current = nullptr;

int thread_x() { return Runner::current->running; }
int block_threads() { return Runner::current->shape.threads; }
int64_t block_x() { return Runner::current->block % Runner::current->shape.grid_x; }
int64_t block_y() { return Runner::current->block / Runner::current->shape.grid_x; }
std::byte* shared_memory() { return Runner::current->shared.get(); }
void sync_threads() { Runner::current->wait(Runner::current->block_barrier); }
void sync_warp() { Runner::current->wait(Runner::current->own_warp()); }
uint64_t shuffle_xor(uint64_t bits, int mask) { return Runner::current->shuffle_xor(bits, mask); }

void require_aligned(const void* address, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0) {
    throw std::logic_error("a wide access of an address that is not a multiple of its size");
  }
}

}  // namespace emulation

Emulator::Emulator(uint64_t order) : runner_(std::make_unique<emulation::Runner>(order)) {}
Emulator::~Emulator() = default;

void Emulator::run(const LaunchShape& shape, const std::function<void()>& kernel) { runner_->run(shape, kernel); }

}  // namespace lazytrain::cuda
