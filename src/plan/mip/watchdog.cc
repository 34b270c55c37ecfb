#include "plan/mip/watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

namespace lazytrain::plan {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kExitPatience = std::chrono::seconds(2);

// Threads that were left behind and still run. Shared by all of them and by the end of the process: never destroyed.
std::atomic<int>& strays() {
  static std::atomic<int> count = 0;
  return count;
}

// A solver that runs while the libraries' static objects are destroyed would crash: when one does not stop in time, the
// process ends here, with its status and with its output written. Registered after those objects, hence called before
// they go.
void end_before_strays(int status, void*) {
  const auto patience = Clock::now() + kExitPatience;
  while (strays() > 0) {
    if (Clock::now() > patience) {
      std::fflush(nullptr);
      _exit(status);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

std::chrono::duration<double> bounded(double seconds) {
  return std::chrono::duration<double>(std::clamp(seconds, 0.0, 1e8));
}

// How the thread's end is known: 0 while somebody waits for it.
enum class Watched : int { kYes, kLeft, kDone };

}  // namespace

void SolverTask::improve(const std::vector<double>& values, double objective) {
  const std::lock_guard lock(mutex_);
  if (!result_.values.empty() && objective >= result_.objective) return;
  result_.values = values;
  result_.objective = objective;
}

void SolverTask::raise_bound(double bound) {
  const std::lock_guard lock(mutex_);
  result_.bound = std::max(result_.bound, bound);
}

void SolverTask::end(MipStatus status, std::string words) {
  const std::lock_guard lock(mutex_);
  result_.status = status;
  result_.words = std::move(words);
}

MipResult run_watched(const std::function<void(SolverTask&)>& solve, const std::vector<double>& start,
                      double start_objective, double limit_s, double grace_s, std::stop_token stop) {
  const auto task = std::make_shared<SolverTask>();
  const auto watched = std::make_shared<std::atomic<Watched>>(Watched::kYes);
  task->result_.values = start;
  task->result_.objective = start_objective;
  task->result_.bound = -kInfinity;
  const auto begin = Clock::now();
  std::thread thread([task, watched, solve] {
    try {
      solve(*task);
    } catch (const std::exception& e) {
      task->end(MipStatus::kFault, e.what());
    }
    const std::lock_guard lock(task->mutex_);
    task->has_ended_ = true;
    if (watched->exchange(Watched::kDone) == Watched::kLeft) --strays();
    task->ended_.notify_all();
  });
  std::unique_lock lock(task->mutex_);
  const auto has_ended = [&] { return task->has_ended_; };
  if (!task->ended_.wait_for(lock, stop, bounded(limit_s), has_ended)) {
    task->stop_ = true;
    task->ended_.wait_for(lock, bounded(grace_s), has_ended);
  }
  MipResult result = task->result_;
  result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (!task->has_ended_) {
    static const bool registered = on_exit(end_before_strays, nullptr) == 0;
    static_cast<void>(registered);
    ++strays();
    watched->store(Watched::kLeft);
    result.status = MipStatus::kTimeLimit;
    result.words = "did not keep its time limit; left behind";
    thread.detach();
    return result;
  }
  lock.unlock();
  thread.join();
  return result;
}

}  // namespace lazytrain::plan
