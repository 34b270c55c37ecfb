// The one thread pool of the process. Work is cut into a fixed number of parts that depends on the pool's size alone,
// so which thread runs a part never changes a result.
#pragma once

#include <cstdint>
#include <memory>

#include "base/function_ref.h"

namespace lazytrain {

// Half-open part [begin, end) of part `index` of `parts` over `total` items; parts differ by at most `grain` items.
struct Part {
  int64_t begin;
  int64_t end;
};
Part part_of(int64_t total, int64_t parts, int64_t index, int64_t grain = 1);

class ThreadPool {
 public:
  // `threads` >= 1 includes the caller: a pool of 1 starts no thread and runs everything inline.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // Calls body(i) for i in [0, count), each once, on the caller and the workers; returns when all are done.
  // Safe from several threads at a time (the executor's lanes share one pool). Not from inside a body.
  // The first exception of a body is rethrown here after all parts have ended.
  void run(int64_t count, FunctionRef<void(int64_t)> body);

  // Cuts [0, total) into at most threads() parts, multiples of `grain` items, and calls body(begin, end) on each.
  void parallel_for(int64_t total, int64_t grain, FunctionRef<void(int64_t, int64_t)> body);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lazytrain
