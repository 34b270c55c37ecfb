#include <deque>
#include <stdexcept>

#include "cuda/emulated_state.h"

namespace lazytrain::cuda {

namespace {

struct Task {
  std::function<void()> work;
  Event* needs = nullptr;  // a wait: has that record of it ended?
  uint64_t record = 0;

  bool ready() const { return needs == nullptr || needs->has_ended(record); }
};

}  // namespace

struct LateRuntime::Queues {
  std::recursive_mutex mutex;  // held while tasks run: one at a time
  int early = -1;
  std::deque<Queue> queues;
};

class LateRuntime::Queue final : public Stream {
 public:
  Queue(Queues& all, Failure& failure, uint64_t order) : all_(all), failure_(failure), emulator_(order) {}

  void launch(const LaunchShape& shape, std::function<void()> kernel) override {
    enqueue([this, shape, body = std::move(kernel)] { emulator_.run(shape, body); });
  }
  void enqueue(std::function<void()> task) override { put({.work = std::move(task)}); }
  void put(Task task) {
    const std::lock_guard lock(all_.mutex);
    tasks_.push_back(std::move(task));
    run_early();
  }
  void run_all() {
    const std::lock_guard lock(all_.mutex);
    while (!tasks_.empty()) run_first();
  }
  static void run_until(Queues& all, Event& event, uint64_t record) {
    const std::lock_guard lock(all.mutex);
    while (!event.has_ended(record)) static_cast<Queue*>(event.stream)->run_first();
  }

 private:
  // The first task, or what it waits for: it stays the first until it may run, for run_early() looks at it too.
  void run_first() {
    if (tasks_.empty()) throw std::logic_error("an event is waited for that no stream will record");
    if (const Task& first = tasks_.front(); !first.ready()) return run_until(all_, *first.needs, first.record);
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    try {
      if (task.work) task.work();
    } catch (...) {
      failure_.keep(std::current_exception());
    }
    run_early();
  }

  // As many tasks of the early stream as need nothing of others.
  void run_early() {
    if (all_.early < 0 || all_.early >= static_cast<int>(all_.queues.size())) return;
    Queue& queue = all_.queues[static_cast<size_t>(all_.early)];
    if (queue.running_) return;
    queue.running_ = true;
    while (!queue.tasks_.empty() && queue.tasks_.front().ready()) queue.run_first();
    queue.running_ = false;
  }

  Queues& all_;
  Failure& failure_;
  Emulator emulator_;
  std::deque<Task> tasks_;
  bool running_ = false;  // as the early stream
};

LateRuntime::LateRuntime(EmulationOptions options, int early_stream)
    : EmulatedRuntime(std::move(options)), queues_(std::make_unique<Queues>()) {
  queues_->early = early_stream;
}
LateRuntime::~LateRuntime() = default;

Stream& LateRuntime::make_stream() {
  const std::lock_guard lock(queues_->mutex);
  return queues_->queues.emplace_back(*queues_, state_->failure, state_->options.order);
}

void LateRuntime::record(Stream& stream, Event& event) {
  stream.enqueue([&event, number = event.ask(&stream)] { event.end(number); });
}

void LateRuntime::wait(Stream& stream, Event& event) {
  static_cast<Queue&>(stream).put({.work = {}, .needs = &event, .record = event.last_asked()});
}

void LateRuntime::synchronize(Event& event) {
  Queue::run_until(*queues_, event, event.last_asked());
  state_->failure.rethrow();
}

void LateRuntime::synchronize(Stream& stream) {
  static_cast<Queue&>(stream).run_all();
  state_->failure.rethrow();
}

}  // namespace lazytrain::cuda
