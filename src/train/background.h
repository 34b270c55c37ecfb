// Work beside a run that never holds it up.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <functional>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

namespace lazytrain::train {

// Runs a function on a thread of the lowest priority. Destroyed, it asks it to stop and waits for it: the function
// watches its stop token.
template <typename Result>
class Background {
 public:
  explicit Background(std::function<Result(std::stop_token)> work)
      : thread_([this, work = std::move(work)](const std::stop_token& stop) {
          ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);  // of this thread and those that it starts
          try {
            result_.emplace(work(stop));
          } catch (...) {
            error_ = std::current_exception();
          }
          done_.store(true, std::memory_order_release);
        }) {}

  bool done() const { return done_.load(std::memory_order_acquire); }
  // Once it is done: what it returned, or its exception.
  Result take() {
    if (error_) std::rethrow_exception(error_);
    return std::move(*result_);
  }

 private:
  static constexpr int kNice = 19;
  std::atomic<bool> done_ = false;
  std::optional<Result> result_;
  std::exception_ptr error_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace lazytrain::train
