#include "runtime/throttle.h"

#include <algorithm>
#include <thread>

#include "base/arith.h"

namespace lazytrain::runtime {
namespace {

// A piece takes about this long, so that a change of the joint share is felt soon and sleeping costs little.
constexpr double kPieceSeconds = 2e-3;
constexpr int64_t kLeastPiece = 16 << 10;  // bytes; every piece but the last is a multiple of it
// Lateness up to this is made up for by the next piece: a sleep that ends late slows down nothing.
constexpr std::chrono::microseconds kCredit{200};

}  // namespace

double Throttle::rate(plan::Lane lane) const {
  const hw::Links& links = rates_.links;
  const auto shared = [&](double own, plan::Lane other) {
    const double both = links.h2d + links.d2h;
    const bool limited = links.joint > 0 && links.joint < both && busy_[static_cast<size_t>(other)];
    return limited ? own * links.joint / both : own;
  };
  switch (lane) {
    case plan::Lane::kH2D:
      return shared(links.h2d, plan::Lane::kD2H);
    case plan::Lane::kD2H:
      return shared(links.d2h, plan::Lane::kH2D);
    case plan::Lane::kDiskRead:
      return links.disk_read;
    case plan::Lane::kDiskWrite:
      return links.disk_write;
    case plan::Lane::kHost:
    case plan::Lane::kCompute:
      return 0;
  }
  return 0;
}

void Throttle::hold(plan::Lane lane, double seconds, FunctionRef<void()> work) {
  Clock::time_point& free_at = free_at_[static_cast<size_t>(lane)];
  free_at = std::max(free_at, Clock::now() - kCredit) +
            std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  work();
  std::this_thread::sleep_until(free_at);
}

void Throttle::transfer(plan::Lane lane, int64_t bytes, FunctionRef<void(int64_t, int64_t)> copy) {
  const auto l = static_cast<size_t>(lane);
  struct Busy {
    std::atomic<bool>& flag;
    explicit Busy(std::atomic<bool>& f) : flag(f) { flag = true; }
    ~Busy() { flag = false; }
  } const busy(busy_[l]);
  Clock::time_point& free_at = free_at_[l];
  free_at = std::max(free_at, Clock::now() - kCredit);
  for (int64_t begin = 0; begin < bytes;) {
    const double r = rate(lane);
    const int64_t piece =
        r <= 0 ? bytes : align_up(std::max(kLeastPiece, static_cast<int64_t>(r * kPieceSeconds)), kLeastPiece);
    const int64_t end = std::min(bytes, begin + piece);
    copy(begin, end);
    if (r > 0) {
      free_at += std::chrono::duration_cast<Clock::duration>(
          std::chrono::duration<double>(static_cast<double>(end - begin) / r));
      std::this_thread::sleep_until(free_at);
    }
    begin = end;
  }
}

}  // namespace lazytrain::runtime
