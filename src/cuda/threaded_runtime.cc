#include <deque>
#include <thread>

#include "cuda/emulated_state.h"

namespace lazytrain::cuda {

class ThreadedRuntime::Thread final : public Stream {
 public:
  Thread(Failure& failure, uint64_t order) : failure_(failure), emulator_(order), thread_([this] { work(); }) {}
  ~Thread() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void launch(const LaunchShape& shape, std::function<void()> kernel) override {
    enqueue([this, shape, body = std::move(kernel)] { emulator_.run(shape, body); });
  }
  void enqueue(std::function<void()> task) override {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(task));
    }
    changed_.notify_all();
  }
  void drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      std::function<void()> task = std::move(queue_.front());
      queue_.pop_front();
      busy_ = true;
      lock.unlock();
      try {
        task();
      } catch (...) {
        failure_.keep(std::current_exception());
      }
      task = nullptr;
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  Failure& failure_;
  Emulator emulator_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool busy_ = false;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses all of the above
};

ThreadedRuntime::ThreadedRuntime(EmulationOptions options) : EmulatedRuntime(std::move(options)) {}
ThreadedRuntime::~ThreadedRuntime() = default;

Stream& ThreadedRuntime::make_stream() {
  streams_.push_back(std::make_unique<Thread>(state_->failure, state_->options.order));
  return *streams_.back();
}

void ThreadedRuntime::record(Stream& stream, Event& event) {
  stream.enqueue([&event, number = event.ask(&stream)] { event.end(number); });
}

void ThreadedRuntime::wait(Stream& stream, Event& event) {
  stream.enqueue([&event, number = event.last_asked()] { event.wait_for(number); });
}

void ThreadedRuntime::synchronize(Event& event) {
  event.wait_for(event.last_asked());
  state_->failure.rethrow();
}

void ThreadedRuntime::synchronize(Stream& stream) {
  static_cast<Thread&>(stream).drain();
  state_->failure.rethrow();
}

}  // namespace lazytrain::cuda
