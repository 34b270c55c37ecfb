#include "plugin/gemm_cublaslt.h"

#include <cublasLt.h>

#include <array>
#include <bit>
#include <map>
#include <mutex>
#include <string_view>

#include "base/error.h"
#include "plugin/cuda_runtime.h"

namespace lazytrain::plugin {
namespace {

void check_blas(cublasStatus_t status, std::string_view what) {
  if (status != CUBLAS_STATUS_SUCCESS) throw RunError("cuBLASLt, {}: {}", what, cublasLtGetStatusString(status));
}

cudaDataType_t type_of(DType dtype) { return dtype == DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F; }

// The largest power of two, up to 256, that the address is a multiple of.
uint32_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<uintptr_t>(address) | 256;
  return uint32_t{1} << std::countr_zero(bits);
}

// Of a product; more would be used by few and is not offered.
constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;

// What decides the algorithm.
using Key = std::array<int64_t, 18>;

Key key_of(const ops::Gemm& g, const ops::GemmBatch& batch) {
  return {g.m(),
          g.n(),
          g.k(),
          g.transpose_a,
          g.transpose_b,
          static_cast<int64_t>(g.a.dtype),
          static_cast<int64_t>(g.c.dtype),
          g.a.stride,
          g.b.stride,
          g.c.stride,
          g.accumulate,
          g.bias.empty() ? 0 : 1 + static_cast<int64_t>(g.bias.dtype),
          int64_t{alignment_of(g.a.data)} << 32 | alignment_of(g.b.data),
          int64_t{alignment_of(g.c.data)} << 32 | alignment_of(g.bias.data),
          batch.count,
          batch.a_step,
          batch.b_step,
          batch.c_step};
}

// Descriptors of a product and its algorithm.
class Prepared {
 public:
  Prepared(cublasLtHandle_t handle, const ops::Gemm& g, const ops::GemmBatch& batch) {
    check_blas(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a description");
    // cuBLASLt counts columns first: the matrix of rows C = op(A) op(B) is its C' = op(B)' op(A)'.
    set(CUBLASLT_MATMUL_DESC_TRANSA, g.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, g.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (!g.bias.empty()) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(g.bias.dtype));
      point_at_bias(g);
    }
    first_ = layout(g.b, batch.count, batch.b_step);
    second_ = layout(g.a, batch.count, batch.a_step);
    result_ = layout(g.c, batch.count, batch.c_step);
    choose(handle, g);
  }
  ~Prepared() {
    cublasLtMatrixLayoutDestroy(first_);
    cublasLtMatrixLayoutDestroy(second_);
    cublasLtMatrixLayoutDestroy(result_);
    cublasLtMatmulDescDestroy(operation_);
  }
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;

  void run(cublasLtHandle_t handle, cudaStream_t stream, std::span<std::byte> workspace, const ops::Gemm& g) {
    if (!g.bias.empty()) point_at_bias(g);
    const float one = 1, beta = g.accumulate ? 1.0f : 0.0f;
    check_blas(cublasLtMatmul(handle, operation_, &one, g.b.data, first_, g.a.data, second_, &beta, g.c.data, result_,
                              g.c.data, result_, &algorithm_, workspace.data(), workspace_bytes_, stream),
               "a product");
  }

 private:
  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check_blas(cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof value), "an attribute");
  }
  void point_at_bias(const ops::Gemm& g) {
    const void* at = g.bias.data;
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, at);
  }
  static cublasLtMatrixLayout_t layout(const TensorView& view, int64_t count, int64_t step) {
    cublasLtMatrixLayout_t made = nullptr;
    check_blas(cublasLtMatrixLayoutCreate(&made, type_of(view.dtype), static_cast<uint64_t>(view.cols),
                                          static_cast<uint64_t>(view.rows), view.stride),
               "a layout");
    if (count > 1) {
      const auto matrices = static_cast<int32_t>(count);
      check_blas(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &matrices, sizeof matrices),
                 "a batch");
      check_blas(
          cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step),
          "a batch");
    }
    return made;
  }

  void choose(cublasLtHandle_t handle, const ops::Gemm& g) {
    cublasLtMatmulPreference_t preference = nullptr;
    check_blas(cublasLtMatmulPreferenceCreate(&preference), "a preference");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check_blas(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), "a preference");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<size_t>(kWorkspaceBytes));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(g.b.data));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(g.a.data));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(g.c.data));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(g.c.data));
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, operation_, first_, second_, result_, result_,
                                                                 preference, 1, &best, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    check_blas(status, "looking for an algorithm");
    if (found == 0) {
      throw RunError("cuBLASLt has no algorithm for a product of {} x {} x {} on this card", g.m(), g.n(), g.k());
    }
    algorithm_ = best.algo;
    workspace_bytes_ = best.workspaceSize;
  }

  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr, second_ = nullptr, result_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
  size_t workspace_bytes_ = 0;
};

class CublasLt final : public ops::CudaLibraries {
 public:
  CublasLt() { check_blas(cublasLtCreate(&handle_), "starting"); }
  ~CublasLt() override {
    prepared_.clear();
    cublasLtDestroy(handle_);
  }
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  int64_t gemm_scratch_bytes(const ops::GemmSize&) override { return kWorkspaceBytes; }
  void gemm(cuda::Stream& stream, std::span<std::byte> scratch, const ops::Gemm& product,
            const ops::GemmBatch& batch) override {
    if (static_cast<int64_t>(scratch.size()) < kWorkspaceBytes) {
      throw RunError("cuBLASLt: {} bytes of workspace, expected {}", scratch.size(), kWorkspaceBytes);
    }
    const std::lock_guard lock(mutex_);
    const auto [it, added] = prepared_.try_emplace(key_of(product, batch), handle_, product, batch);
    it->second.run(handle_, native(stream), scratch, product);
  }

 private:
  cublasLtHandle_t handle_ = nullptr;
  std::mutex mutex_;  // a description is changed by each call
  std::map<Key, Prepared> prepared_;
};

}  // namespace

std::unique_ptr<ops::CudaLibraries> make_cublaslt() { return std::make_unique<CublasLt>(); }

}  // namespace lazytrain::plugin
