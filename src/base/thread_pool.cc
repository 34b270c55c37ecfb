#include "base/thread_pool.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "base/arith.h"

namespace lazytrain {

Part part_of(int64_t total, int64_t parts, int64_t index, int64_t grain) {
  const int64_t grains = div_ceil(total, grain);
  const int64_t each = grains / parts;
  const int64_t extra = grains % parts;
  const int64_t begin = index * each + std::min(index, extra);
  const int64_t end = begin + each + (index < extra ? 1 : 0);
  return {std::min(begin * grain, total), std::min(end * grain, total)};
}

struct ThreadPool::Impl {
  // One call of run(): its parts are handed out by `next` under the pool's mutex.
  struct Job {
    FunctionRef<void(int64_t)> body;
    int64_t count;
    int64_t next = 0;
    int64_t done = 0;
    std::exception_ptr error;
    std::condition_variable finished;
    Job* behind = nullptr;  // in the list of jobs
  };

  std::mutex mutex;
  std::condition_variable wake;
  Job* jobs = nullptr;  // those with parts left to hand out, oldest first
  std::vector<std::thread> workers;
  bool stopping = false;

  void append(Job& job) {
    Job** end = &jobs;
    while (*end != nullptr) end = &(*end)->behind;
    *end = &job;
  }
  void remove(Job& job) {
    Job** at = &jobs;
    while (*at != &job) at = &(*at)->behind;
    *at = job.behind;
  }

  // Takes and runs one part of `job`. The lock is held on entry and on return.
  void run_part(Job& job, std::unique_lock<std::mutex>& lock) {
    const int64_t index = job.next++;
    if (job.next == job.count) remove(job);
    lock.unlock();
    std::exception_ptr error;
    try {
      job.body(index);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error && !job.error) job.error = error;
    if (++job.done == job.count) job.finished.notify_all();
  }

  void work() {
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait(lock, [&] { return stopping || jobs != nullptr; });
      if (stopping) return;
      run_part(*jobs, lock);
    }
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>()) {
  for (int i = 1; i < threads; ++i) impl_->workers.emplace_back([this] { impl_->work(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->wake.notify_all();
  for (auto& worker : impl_->workers) worker.join();
}

int ThreadPool::threads() const { return static_cast<int>(impl_->workers.size()) + 1; }

void ThreadPool::run(int64_t count, FunctionRef<void(int64_t)> body) {
  if (count <= 0) return;
  if (count == 1 || impl_->workers.empty()) {
    std::exception_ptr error;
    for (int64_t i = 0; i < count; ++i) {
      try {
        body(i);
      } catch (...) {
        if (!error) error = std::current_exception();
      }
    }
    if (error) std::rethrow_exception(error);
    return;
  }
  Impl::Job job{.body = body, .count = count, .error = nullptr, .finished = {}};
  std::unique_lock lock(impl_->mutex);
  impl_->append(job);
  impl_->wake.notify_all();
  while (job.next < job.count) impl_->run_part(job, lock);
  job.finished.wait(lock, [&] { return job.done == job.count; });
  if (job.error) std::rethrow_exception(job.error);
}

void ThreadPool::parallel_for(int64_t total, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  if (total <= 0) return;
  const int64_t parts = std::min<int64_t>(threads(), div_ceil(total, grain));
  run(parts, [&](int64_t index) {
    const Part part = part_of(total, parts, index, grain);
    if (part.begin < part.end) body(part.begin, part.end);
  });
}

}  // namespace lazytrain
