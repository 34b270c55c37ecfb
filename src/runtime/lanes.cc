#include "runtime/lanes.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace lazytrain::runtime {
namespace {

using Clock = std::chrono::steady_clock;

// A wish: where the system refuses, the thread runs where it may.
void keep_on(const std::vector<int>& cores) {
  if (cores.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(static_cast<size_t>(core), &set);
  ::pthread_setaffinity_np(::pthread_self(), sizeof set, &set);
}

}  // namespace

// A step is a generation: lanes start when it rises and each instruction's `ended` follows it.
struct Lanes::Impl {
  Impl(const plan::Program& p, std::function<void(int)> e, const LaneCores& cores)
      : program(p), execute(std::move(e)), spans(p.instructions.size()), ended(p.instructions.size(), 0) {
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      queue[static_cast<size_t>(program.instructions[i].lane)].push_back(static_cast<int>(i));
    }
    for (size_t lane = 0; lane < queue.size(); ++lane) {
      if (queue[lane].empty()) continue;
      threads.emplace_back([this, lane, own = cores[lane]] {
        keep_on(own);
        work(lane);
      });
    }
  }

  ~Impl() {
    {
      std::lock_guard lock(mutex);
      stopping = true;
    }
    changed.notify_all();
    for (auto& thread : threads) thread.join();
  }

  void run(const std::function<bool(int)>& takes) {
    std::unique_lock lock(mutex);
    filter = takes;
    error = nullptr;
    idle = 0;
    start = Clock::now();
    ++generation;
    changed.notify_all();
    changed.wait(lock, [&] { return idle == threads.size(); });
    if (error) std::rethrow_exception(error);
  }

  void work(size_t lane) {
    uint64_t seen = 0;
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return stopping || generation > seen; });
      if (stopping) return;
      seen = generation;
      for (const int index : queue[lane]) {
        const plan::Instruction& instruction = program.instructions[static_cast<size_t>(index)];
        const auto ready = [&] {
          return error || std::all_of(instruction.after.begin(), instruction.after.end(),
                                      [&](int earlier) { return ended[static_cast<size_t>(earlier)] == seen; });
        };
        changed.wait(lock, ready);
        if (!error && (!filter || filter(index))) run_one(index, lock);
        ended[static_cast<size_t>(index)] = seen;
        changed.notify_all();
      }
      ++idle;
      changed.notify_all();
    }
  }

  void run_one(int index, std::unique_lock<std::mutex>& lock) {
    lock.unlock();
    const auto since = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
    plan::Span span{index, since(), 0};
    std::exception_ptr failure;
    try {
      execute(index);
    } catch (...) {
      failure = std::current_exception();
    }
    span.end_s = since();
    lock.lock();
    spans[static_cast<size_t>(index)] = span;
    if (failure && !error) error = failure;
  }

  const plan::Program& program;
  std::function<void(int)> execute;
  std::vector<plan::Span> spans;  // by instruction
  std::array<std::vector<int>, plan::kLanes> queue;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::thread> threads;
  std::vector<uint64_t> ended;  // by instruction, the generation in which it last ended
  uint64_t generation = 0;
  size_t idle = 0;  // lanes that are through with this generation
  bool stopping = false;
  std::function<bool(int)> filter;
  std::exception_ptr error;
  Clock::time_point start;
};

Lanes::Lanes(const plan::Program& program, std::function<void(int)> execute, const LaneCores& cores)
    : impl_(std::make_unique<Impl>(program, std::move(execute), cores)) {}

Lanes::~Lanes() = default;

const std::vector<plan::Span>& Lanes::run(const std::function<bool(int)>& takes) {
  impl_->run(takes);
  return impl_->spans;
}

}  // namespace lazytrain::runtime
