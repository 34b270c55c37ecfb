#include "runtime/disk_bytes.h"

#include <algorithm>
#include <cstring>

#include "base/arith.h"

namespace lazytrain::runtime {
namespace {

static_assert(DiskBytes::kPiece % kDiskAlignment == 0);

// The blocks [begin, end) around the next bytes [first, last) of a range.
struct Window {
  int64_t begin, end;
  int64_t first, last;
};

template <typename F>
void each_window(int64_t offset, int64_t bytes, F f) {
  const int64_t end = offset + bytes;
  for (int64_t at = offset; at < end;) {
    const int64_t begin = at - at % kDiskAlignment;
    const int64_t next = std::min(begin + DiskBytes::kPiece, end);
    f(Window{begin, align_up(next, kDiskAlignment), at, next});
    at = next;
  }
}

}  // namespace

DiskBytes::DiskBytes(DiskStore::Channel& channel) : channel_(channel), staging_(kPiece, "staging of state on disk") {}

void DiskBytes::visit(int64_t offset, int64_t bytes, const std::function<void(std::span<const std::byte>)>& f) {
  each_window(offset, bytes, [&](const Window& w) {
    channel_.read(w.begin, {staging_.at(0), static_cast<size_t>(w.end - w.begin)});
    f({staging_.at(w.first - w.begin), static_cast<size_t>(w.last - w.first)});
  });
}

void DiskBytes::read(int64_t offset, std::span<std::byte> to) {
  std::byte* next = to.data();
  visit(offset, std::ssize(to), [&](std::span<const std::byte> bytes) {
    std::memcpy(next, bytes.data(), bytes.size());
    next += bytes.size();
  });
}

void DiskBytes::write(int64_t offset, std::span<const std::byte> from) {
  const std::byte* next = from.data();
  each_window(offset, std::ssize(from), [&](const Window& w) {
    const auto read_block = [&](int64_t begin) {
      channel_.read(begin, {staging_.at(begin - w.begin), static_cast<size_t>(kDiskAlignment)});
    };
    const int64_t last_block = w.end - kDiskAlignment;
    if (w.first > w.begin) read_block(w.begin);
    if (w.last < w.end && (last_block > w.begin || w.first == w.begin)) read_block(last_block);
    const auto count = static_cast<size_t>(w.last - w.first);
    std::memcpy(staging_.at(w.first - w.begin), next, count);
    channel_.write(w.begin, {staging_.at(0), static_cast<size_t>(w.end - w.begin)});
    next += count;
  });
}

}  // namespace lazytrain::runtime
