// Matrix products of an emulated CUDA device, by the CPU.
#pragma once

#include "cuda/emulation.h"
#include "ops/cuda_libraries.h"

namespace lazytrain::ops::testing {

class CpuLibraries final : public CudaLibraries {
 public:
  explicit CpuLibraries(ThreadPool& pool) : pool_(pool) {}

  int64_t gemm_scratch_bytes(const GemmSize& size) override {
    return ops::gemm_scratch_bytes(size, pool_.threads(), strategy_);
  }
  void gemm(cuda::Stream& stream, std::span<std::byte> scratch, const Gemm& product, const GemmBatch& batch) override {
    stream.enqueue([=, this] {
      for (int64_t i = 0; i < batch.count; ++i) {
        Gemm one = product;
        one.a.data = behind(product.a, i * batch.a_step);
        one.b.data = behind(product.b, i * batch.b_step);
        one.c.data = behind(product.c, i * batch.c_step);
        ops::gemm(pool_, scratch, one, strategy_);
      }
    });
  }

 private:
  static void* behind(const TensorView& view, int64_t elements) {
    return static_cast<std::byte*>(view.data) + elements * size_of(view.dtype);
  }

  ThreadPool& pool_;
  GemmStrategy strategy_ = preferred_gemm_strategy();
};

}  // namespace lazytrain::ops::testing
