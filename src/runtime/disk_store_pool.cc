// pread and pwrite on a few threads: the way that every system has.
#include <algorithm>
#include <atomic>
#include <cerrno>

#include "base/arith.h"
#include "base/thread_pool.h"
#include "runtime/disk_store_transport.h"

namespace lazytrain::runtime {
namespace {

constexpr int64_t kTouchedStack = 64 << 10;  // what a thread that only does I/O has touched of its stack, rounded up

int pool_threads(const TransportShape& shape) { return std::min(shape.depth, kPoolThreads); }

class Pool : public DiskTransport {
 public:
  Pool(const ExtentFile& file, const TransportShape& shape)
      : file_(file), block_(shape.block), threads_(pool_threads(shape)) {}

  void transfer(const DiskRequest& request) override {
    whole_ = request;
    next_ = 0;
    failed_ = false;
    threads_.run(std::min<int64_t>(threads_.threads(), div_ceil(request.length, block_)),
                 [this](int64_t) { move_blocks(); });
  }

 private:
  // Blocks of the call, one after the other, until none is left or one has failed.
  void move_blocks() {
    try {
      while (!failed_) {
        const int64_t begin = next_.fetch_add(block_);
        if (begin >= whole_.length) return;
        move(whole_.part(begin, std::min(block_, whole_.length - begin)));
      }
    } catch (...) {
      failed_ = true;
      throw;
    }
  }

  void move(DiskRequest request) const {
    for (bool done = false; !done;) {
      const auto left = static_cast<size_t>(request.length);
      const ssize_t moved = request.reads() ? file_.system().pread(file_.fd(), {request.to, left}, request.offset)
                                            : file_.system().pwrite(file_.fd(), {request.from, left}, request.offset);
      done = file_.advance(request, moved < 0 ? -errno : moved);
    }
  }

  const ExtentFile& file_;
  int64_t block_;
  DiskRequest whole_;
  std::atomic<int64_t> next_{0};
  std::atomic<bool> failed_{false};
  ThreadPool threads_;
};

}  // namespace

int64_t pool_bytes(const TransportShape& shape) {
  return static_cast<int64_t>(sizeof(Pool)) + (pool_threads(shape) - 1) * kTouchedStack;
}

std::unique_ptr<DiskTransport> make_pool(const ExtentFile& file, const TransportShape& shape) {
  return std::make_unique<Pool>(file, shape);
}

}  // namespace lazytrain::runtime
