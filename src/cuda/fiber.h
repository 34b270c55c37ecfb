// A function on a stack of its own that can be left in the middle and gone on with later.
#pragma once

#include <functional>
#include <memory>

namespace lazytrain::cuda {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Makes `body` what the next resume() begins with. Whatever ran on this stack before is dropped where it stands,
  // without unwinding. The body must not throw.
  void start(std::function<void()> body);
  // Runs the body until it yields or ends; true: it has ended.
  bool resume();
  // Called by the body: back to who resumed it.
  void yield();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lazytrain::cuda
