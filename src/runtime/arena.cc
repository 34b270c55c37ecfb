#include "runtime/arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

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

}  // namespace lazytrain::runtime
