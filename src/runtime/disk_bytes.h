// Any range of bytes of a DiskStore, which itself moves whole aligned blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "runtime/arena.h"
#include "runtime/disk_store.h"

namespace lazytrain::runtime {

// Goes through aligned memory of kPiece bytes: a read takes the blocks around the range, a write reads the blocks that
// it covers in part and writes them back whole. For one thread at a time; nobody else may write those blocks meanwhile.
// Errors are DiskStore's.
class DiskBytes {
 public:
  static constexpr int64_t kPiece = int64_t{4} << 20;

  explicit DiskBytes(DiskStore::Channel& channel);

  void read(int64_t offset, std::span<std::byte> to);
  void write(int64_t offset, std::span<const std::byte> from);
  // Calls f with consecutive spans of at most kPiece bytes, each valid during its call. They are cut at blocks, so that
  // elements at a multiple of their size stay whole.
  void visit(int64_t offset, int64_t bytes, const std::function<void(std::span<const std::byte>)>& f);

 private:
  DiskStore::Channel& channel_;
  Arena staging_;
};

}  // namespace lazytrain::runtime
