// io_uring: blocks of a call are handed to the kernel, `depth` of them at a time, by the thread that calls.
#include <liburing.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>
#include <vector>

#include "base/arith.h"
#include "base/error.h"
#include "base/units.h"
#include "runtime/disk_store_transport.h"

namespace lazytrain::runtime {
namespace {

constexpr int kPatience = 200;  // refusals of the kernel to take anything, in a row: about a second

class Ring : public DiskTransport {
 public:
  // `error` is 0 or the errno with which the kernel refuses a ring.
  Ring(const ExtentFile& file, const TransportShape& shape, int& error)
      : file_(file), block_(shape.block), piece_(shape.piece) {
    error = -file.system().setup_ring(entries(shape), ring_);
    if (error != 0) return;
    is_open_ = true;
    const int fd = file.fd();
    has_registered_file_ = io_uring_register_files(&ring_, &fd, 1) == 0;  // without, each block looks the file up
    slots_.resize(static_cast<size_t>(shape.depth));
    free_.reserve(slots_.size());
    for (size_t i = 0; i < slots_.size(); ++i) free_.push_back(i);
  }
  ~Ring() override {
    if (!is_open_) return;
    // Explicitly: the kernel takes a ring down when it has time, and would hold memory and file as long.
    if (!memory_.empty()) io_uring_unregister_buffers(&ring_);
    if (has_registered_file_) io_uring_unregister_files(&ring_);
    io_uring_queue_exit(&ring_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  static unsigned entries(const TransportShape& shape) { return std::bit_ceil(static_cast<unsigned>(shape.depth)); }

  void transfer(const DiskRequest& request) override {
    if (is_broken_)
      throw RunError("{}: io_uring failed before. Go on from the last checkpoint with --resume", file_.path().string());
    error_ = nullptr;
    for (int64_t next = 0;;) {
      while (!error_ && !free_.empty() && next < request.length) {
        const size_t slot = free_.back();
        free_.pop_back();
        slots_[slot] = request.part(next, std::min(block_, request.length - next));
        next += slots_[slot].length;
        queue(slot);
      }
      if (free_.size() == slots_.size()) break;
      submit_and_wait();
      reap();
    }
    if (error_) std::rethrow_exception(error_);
  }

  // Reads a block: a filter of system calls may let the ring be made and refuse its use. 0 or an errno.
  int probe() {
    struct alignas(kDiskAlignment) Block {
      std::array<std::byte, kDiskAlignment> bytes{};
    } block;
    slots_[0] = {.offset = 0, .length = kDiskAlignment, .to = block.bytes.data()};
    queue(0);
    int result;
    do {
      result = io_uring_submit_and_wait(&ring_, 1);
    } while (result == -EINTR);
    if (result < 0) return -result;
    io_uring_cqe* cqe = nullptr;
    do {
      result = io_uring_wait_cqe(&ring_, &cqe);
    } while (result == -EINTR || result == -EAGAIN);
    if (result < 0) return -result;
    const auto answer = static_cast<int>(file_.system().completed(slots_[0], cqe->res));
    io_uring_cqe_seen(&ring_, cqe);
    return answer < 0 && answer != -EINTR && answer != -EAGAIN ? -answer : 0;
  }

  int register_memory(std::span<std::byte> memory) override {
    if (!memory_.empty()) io_uring_unregister_buffers(&ring_);
    memory_ = {};
    if (memory.empty()) return 0;
    std::vector<iovec> pieces;
    for (size_t at = 0; at < memory.size(); at += static_cast<size_t>(piece_)) {
      const std::span<std::byte> piece = memory.subspan(at, std::min(memory.size() - at, static_cast<size_t>(piece_)));
      pieces.push_back({.iov_base = piece.data(), .iov_len = piece.size()});
    }
    const int result = file_.system().register_buffers(ring_, pieces);
    if (result == 0) memory_ = memory;
    return -result;
  }

 private:
  // The registered piece that all of [memory, memory + bytes) lies in, or -1.
  int piece_of(const std::byte* memory, int64_t bytes) const {
    if (memory_.empty() || std::less<>()(memory, memory_.data()) ||
        !std::less<>()(memory, memory_.data() + memory_.size())) {
      return -1;
    }
    const int64_t at = memory - memory_.data();
    const bool inside = at + bytes <= static_cast<int64_t>(memory_.size()) && at / piece_ == (at + bytes - 1) / piece_;
    return inside ? static_cast<int>(at / piece_) : -1;
  }

  void queue(size_t slot) {
    const DiskRequest& request = slots_[slot];
    const int fd = has_registered_file_ ? 0 : file_.fd();
    const auto bytes = static_cast<unsigned>(file_.system().submitted(request));
    const auto offset = static_cast<uint64_t>(request.offset);
    const int piece = piece_of(request.reads() ? request.to : request.from, request.length);
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);  // never null: there are as many entries as slots
    if (request.reads()) {
      if (piece >= 0) {
        io_uring_prep_read_fixed(sqe, fd, request.to, bytes, offset, piece);
      } else {
        io_uring_prep_read(sqe, fd, request.to, bytes, offset);
      }
    } else if (piece >= 0) {
      io_uring_prep_write_fixed(sqe, fd, request.from, bytes, offset, piece);
    } else {
      io_uring_prep_write(sqe, fd, request.from, bytes, offset);
    }
    if (has_registered_file_) sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data64(sqe, slot);
  }

  void submit_and_wait() {
    for (int stalls = 0;;) {
      const int result = io_uring_submit_and_wait(&ring_, 1);
      if (result >= 0 || io_uring_cq_ready(&ring_) > 0) return;
      if (result == -EINTR) continue;
      const bool is_busy = result == -EAGAIN || result == -EBUSY || result == -ENOMEM;
      if (!is_busy || ++stalls > kPatience) fail(-result);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  // The kernel takes no more. What it has taken is waited for: it may still write into the memory of the caller.
  [[noreturn]] void fail(int error) {
    is_broken_ = true;
    size_t on_their_way = slots_.size() - free_.size() - io_uring_sq_ready(&ring_);
    while (on_their_way > 0) {
      const unsigned ready = io_uring_cq_ready(&ring_);
      io_uring_cq_advance(&ring_, ready);
      on_their_way -= std::min<size_t>(on_their_way, ready);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    throw RunError("{}: io_uring takes no more requests: {}. Go on from the last checkpoint with --resume",
                   file_.path().string(), std::strerror(error));
  }

  void reap() {
    io_uring_cqe* cqe = nullptr;
    while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
      const auto slot = static_cast<size_t>(io_uring_cqe_get_data64(cqe));
      const int64_t result = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      if (!finish(slot, result)) {
        queue(slot);
      } else {
        free_.push_back(slot);
      }
    }
  }

  // True when nothing of the slot's request is left to be moved. After an error nothing new begins.
  bool finish(size_t slot, int64_t result) {
    try {
      DiskRequest& request = slots_[slot];
      return file_.advance(request, file_.system().completed(request, result)) || error_ != nullptr;
    } catch (...) {
      if (!error_) error_ = std::current_exception();
      return true;
    }
  }

  const ExtentFile& file_;
  int64_t block_;
  int64_t piece_;
  io_uring ring_{};
  bool is_open_ = false;
  bool is_broken_ = false;
  bool has_registered_file_ = false;
  std::vector<DiskRequest> slots_;
  std::vector<size_t> free_;
  std::span<std::byte> memory_;  // what is registered
  std::exception_ptr error_;     // the first of this call
};

std::string refusal(int error) {
  const std::string text = std::strerror(error);
  if (error == ENOSYS) return text + ": this kernel has none";
  if (error == EPERM || error == EACCES) {
    return text + ": /proc/sys/kernel/io_uring_disabled or a filter of system calls, as containers have";
  }
  if (error == ENOMEM) {
    struct rlimit limit {};
    ::getrlimit(RLIMIT_MEMLOCK, &limit);
    return fmt::format("{}: the limit of locked memory is {}, see ulimit -l", text,
                       format_bytes(static_cast<int64_t>(limit.rlim_cur)));
  }
  return text;
}

}  // namespace

int64_t ring_bytes(const TransportShape& shape) {
  const int64_t entries = Ring::entries(shape);
  // Submissions of 64 bytes and their index of 4, twice as many completions of 16, each array in pages of its own.
  const int64_t queues = align_up(entries * 64, 4096) + align_up(entries * (4 + 32), 4096) + 4096;
  return static_cast<int64_t>(sizeof(Ring)) + queues +
         shape.depth * static_cast<int64_t>(sizeof(DiskRequest) + sizeof(size_t));
}

std::unique_ptr<DiskTransport> make_ring(const ExtentFile& file, const TransportShape& shape, std::string& why_not) {
  int error = 0;
  auto ring = std::make_unique<Ring>(file, shape, error);
  if (error != 0) {
    why_not = refusal(error);
    return nullptr;
  }
  error = ring->probe();
  if (error != 0) {
    why_not = refusal(error);
    return nullptr;
  }
  return ring;
}

}  // namespace lazytrain::runtime
