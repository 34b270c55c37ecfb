#include "runtime/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/arith.h"
#include "base/error.h"
#include "base/units.h"

namespace lazytrain::runtime {

Arena::Arena(int64_t bytes, const std::string& purpose) : bytes_(bytes) {
  if (bytes == 0) return;
  void* data = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    throw RunError(
        "{}: the system refuses {} of memory: {}. Free memory or plan for less (smaller micro_batch or seq).", purpose,
        format_bytes(bytes), std::strerror(errno));
  }
  data_ = static_cast<std::byte*>(data);
  ::madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // fewer TLB misses; no matter when refused
}

Arena::~Arena() {
  if (data_ != nullptr) ::munmap(data_, static_cast<size_t>(bytes_));
}

void Arena::release(int64_t begin, int64_t end) {
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  const int64_t first = align_up(begin, page), last = end == bytes_ ? align_up(end, page) : end - end % page;
  if (first < last) ::madvise(data_ + first, static_cast<size_t>(last - first), MADV_DONTNEED);
}

}  // namespace lazytrain::runtime
