#include "plan/transfer_schedule.h"

#include <algorithm>
#include <numeric>

namespace lazytrain::plan {
namespace {

// Bytes a link can move in a window beside its mandatory traffic and, jointly, the other direction's.
double room(double seconds, double rate, double mandatory, double joint, double other) {
  double bytes = seconds * rate - mandatory;
  if (joint > 0) bytes = std::min(bytes, seconds * joint - mandatory - other);
  return std::max(0.0, bytes);
}

struct Job {
  size_t offload;
  double bytes;
  int at;  // may start behind (forward in time) or must end before (backward in time) this window
};

// First come first served over windows `first`, `first + step`, ...: `done` gets each job's last window in that order.
template <typename Room, typename Done>
void serve(std::vector<Job> jobs, int first, int end, int step, const Room& room_of, const Done& done) {
  size_t next = 0;
  for (int w = first; w != end && next < jobs.size(); w += step) {
    double left = room_of(w);
    while (next < jobs.size() && (step > 0 ? jobs[next].at < w : jobs[next].at > w)) {
      Job& job = jobs[next];
      const double moved = std::min(left, job.bytes);
      job.bytes -= moved;
      left -= moved;
      if (job.bytes > 0) break;
      done(job.offload, w);
      ++next;
    }
  }
  for (; next < jobs.size(); ++next) done(jobs[next].offload, end - step);
}

class Scheduler {
 public:
  Scheduler(const std::vector<Offload>& offloads, const std::vector<WindowTraffic>& windows, int loss,
            const hw::Links& links, int slack)
      : offloads_(offloads), windows_(windows), loss_(loss), links_(links), slack_(slack), moves_(offloads.size()) {}

  std::vector<Moves> run() {
    const auto count = static_cast<int>(windows_.size());
    const auto all = [](const Offload&) { return true; };
    const auto disk = [](const Offload& o) { return o.disk; };
    serve(
        jobs([](const Offload& o) { return o.on_device; }, [&](size_t i) { return offloads_[i].release; }, 1), 0, count,
        1, [&](int w) { return d2h_room(w); },
        [&](size_t i, int w) { moves_[i].copied_out = std::min(w + slack_, count - 1); });
    serve(
        jobs(
            disk, [&](size_t i) { return offloads_[i].on_device ? moves_[i].copied_out : offloads_[i].release; }, 1),
        0, count, 1,
        [&](int w) { return room(window(w).seconds, links_.disk_write, window(w).disk_write_bytes, 0, 0); },
        [&](size_t i, int w) { moves_[i].disk_written = std::min(w + slack_, count - 1); });
    serve(
        jobs(
            all, [&](size_t i) { return offloads_[i].need; }, -1),
        count - 1, loss_ - 1, -1, [&](int w) { return h2d_room(w); }, [&](size_t i, int w) { moves_[i].fetched = w; });
    serve(
        jobs(
            disk, [&](size_t i) { return moves_[i].fetched; }, -1),
        count - 1, loss_ - 1, -1,
        [&](int w) { return room(window(w).seconds, links_.disk_read, window(w).disk_read_bytes, 0, 0); },
        [&](size_t i, int w) { moves_[i].disk_read = w; });
    for (size_t i = 0; i < offloads_.size(); ++i) {
      moves_[i].leaves = !offloads_[i].on_device || moves_[i].copied_out < moves_[i].fetched;
      moves_[i].disk = offloads_[i].disk && moves_[i].disk_written < moves_[i].disk_read;
    }
    return std::move(moves_);
  }

 private:
  const WindowTraffic& window(int w) const { return windows_[static_cast<size_t>(w)]; }
  double d2h_room(int w) const {
    return room(window(w).seconds, links_.d2h, window(w).d2h_bytes, links_.joint, window(w).h2d_bytes);
  }
  double h2d_room(int w) const {
    return room(window(w).seconds, links_.h2d, window(w).h2d_bytes, links_.joint, window(w).d2h_bytes);
  }

  template <typename Takes, typename At>
  std::vector<Job> jobs(const Takes& takes, const At& at, int direction) const {
    std::vector<Job> list;
    for (size_t i = 0; i < offloads_.size(); ++i) {
      if (takes(offloads_[i])) list.push_back({i, offloads_[i].bytes, at(i)});
    }
    std::stable_sort(list.begin(), list.end(),
                     [&](const Job& a, const Job& b) { return direction * a.at < direction * b.at; });
    return list;
  }

  const std::vector<Offload>& offloads_;
  const std::vector<WindowTraffic>& windows_;
  int loss_;
  const hw::Links& links_;
  int slack_;
  std::vector<Moves> moves_;
};

}  // namespace

std::vector<Moves> schedule_transfers(const std::vector<Offload>& offloads, const std::vector<WindowTraffic>& windows,
                                      int loss, const hw::Links& links, int slack) {
  return Scheduler(offloads, windows, loss, links, slack).run();
}

}  // namespace lazytrain::plan
