// What a call of an op on a CUDA device may use besides its views.
#pragma once

#include <cstddef>
#include <span>

#include "base/arith.h"
#include "base/error.h"
#include "cuda/stream.h"
#include "ops/op.h"

namespace lazytrain::ops {

// The tokens of a micro-batch, on the device and on the host.
struct DeviceTokens {
  Tokens host;
  const int32_t* positions = nullptr;
  const int32_t* targets = nullptr;
};

struct CudaContext {
  cuda::Stream& stream;
  const DeviceTokens& tokens;
  std::span<std::byte> scratch;  // what CudaOps::scratch_bytes() asked for
  double* loss = nullptr;        // [2] on the device: where the loss op puts the sum and the number of counted targets
};

// Hands out parts of the scratch.
class CudaScratch {
 public:
  static constexpr int64_t kAlign = 256;
  static constexpr int64_t bytes_of(int64_t bytes) { return align_up(bytes, kAlign); }

  explicit CudaScratch(std::span<std::byte> memory) : rest_(memory) {}
  template <typename T>
  T* take(int64_t count) {
    const auto bytes = static_cast<size_t>(bytes_of(count * int64_t{sizeof(T)}));
    if (bytes > rest_.size()) throw RunError("CUDA op: {} bytes of scratch, {} are left", bytes, rest_.size());
    auto* at = reinterpret_cast<T*>(rest_.data());
    rest_ = rest_.subspan(bytes);
    return at;
  }
  std::span<std::byte> rest() const { return rest_; }

 private:
  std::span<std::byte> rest_;
};

}  // namespace lazytrain::ops
