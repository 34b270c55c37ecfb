// How blocks travel between memory and an extent: io_uring, or a few threads with pread and pwrite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/disk_store_extent.h"

namespace lazytrain::runtime {

// What one lane moves its blocks with. One call at a time.
class DiskTransport {
 public:
  virtual ~DiskTransport() = default;

  // Returns when all of `request` is moved and nothing is on its way any more, also when it throws (RunError).
  virtual void transfer(const DiskRequest& request) = 0;

  // Lets the kernel keep hold of `memory` instead of looking its pages up for each block: 0, or the errno of a refusal,
  // which changes nothing else. An empty span lets go.
  virtual int register_memory(std::span<std::byte>) { return 0; }
};

struct TransportShape {
  int64_t block = 0;                 // bytes
  int depth = 0;                     // blocks on their way at a time
  int64_t piece = int64_t{1} << 30;  // bytes of registered memory as one: the most that io_uring takes
};

// Memory that each holds, in bytes.
int64_t pool_bytes(const TransportShape& shape);
int64_t ring_bytes(const TransportShape& shape);

// At most kPoolThreads threads, the caller among them.
inline constexpr int kPoolThreads = 4;
std::unique_ptr<DiskTransport> make_pool(const ExtentFile& file, const TransportShape& shape);

// Null with the reason in `why_not` when the system refuses io_uring, which is found by reading a block.
std::unique_ptr<DiskTransport> make_ring(const ExtentFile& file, const TransportShape& shape, std::string& why_not);

}  // namespace lazytrain::runtime
