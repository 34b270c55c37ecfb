#include "ops/gemm_onednn.h"

#include <cpuid.h>

#include <cstring>
#include <dnnl.hpp>
#include <memory>

#include "base/error.h"

// Debian's oneDNN runs on OpenMP; omp.h is not needed for the one call that keeps it on the calling thread.
extern "C" void omp_set_num_threads(int);

namespace lazytrain::ops::onednn {
namespace {

using dnnl::memory;

// What a thread needs to call oneDNN. The OpenMP team size is a per-thread setting, hence thread_local.
struct ThreadState {
  ThreadState() : engine((omp_set_num_threads(1), dnnl::engine::kind::cpu), 0), stream(engine) {}
  dnnl::engine engine;
  dnnl::stream stream;
};

ThreadState& this_thread() {
  thread_local ThreadState state;
  return state;
}

memory::desc describe(int64_t rows, int64_t cols, const Matrix& m, memory::data_type type) {
  return {{rows, cols}, type, m.transposed ? memory::dims{1, m.stride} : memory::dims{m.stride, 1}};
}

bool is_amd() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid(0, &eax, &ebx, &ecx, &edx)) return false;
  char vendor[12];
  std::memcpy(vendor, &ebx, 4);
  std::memcpy(vendor + 4, &edx, 4);
  std::memcpy(vendor + 8, &ecx, 4);
  return std::memcmp(vendor, "AuthenticAMD", 12) == 0;
}

struct AlignedDelete {
  void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{64}); }
};
using AlignedBytes = std::unique_ptr<std::byte[], AlignedDelete>;

void execute_bf16(ThreadState& thread, const dnnl::matmul::primitive_desc& pd, const Matrix& a, const Matrix& b,
                  const Matrix& c, std::span<std::byte> scratch) {
  AlignedBytes extra;
  std::byte* pad = scratch.data();
  const size_t wanted = pd.scratchpad_desc().get_size();
  if (wanted > scratch.size()) {
    extra.reset(static_cast<std::byte*>(::operator new[](wanted, std::align_val_t{64})));
    pad = extra.get();
  }
  const dnnl::engine& engine = thread.engine;
  dnnl::matmul(pd).execute(thread.stream, {{DNNL_ARG_SRC, memory(pd.src_desc(), engine, a.data)},
                                           {DNNL_ARG_WEIGHTS, memory(pd.weights_desc(), engine, b.data)},
                                           {DNNL_ARG_DST, memory(pd.dst_desc(), engine, c.data)},
                                           {DNNL_ARG_SCRATCHPAD, memory(pd.scratchpad_desc(), engine, pad)}});
}

}  // namespace

void sgemm(int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, const Matrix& c, bool accumulate) {
  this_thread();
  const auto status = dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, 1.0f,
                                 static_cast<const float*>(a.data), a.stride, static_cast<const float*>(b.data),
                                 b.stride, accumulate ? 1.0f : 0.0f, static_cast<float*>(c.data), c.stride);
  if (status != dnnl_success) {
    throw RunError("oneDNN: sgemm {}x{}x{} failed with status {}; expected 0 (success). The machine may lack memory.",
                   m, n, k, static_cast<int>(status));
  }
}

void bf16_gemm(int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, const Matrix& c, bool accumulate,
               std::span<std::byte> scratch) {
  ThreadState& thread = this_thread();
  try {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    const memory::desc left = describe(m, k, a, memory::data_type::bf16);
    const memory::desc right = describe(k, n, b, memory::data_type::bf16);
    const memory::desc out = describe(m, n, c, memory::data_type::f32);
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc primitive(thread.engine, left, right, out, attributes);
#else
    const dnnl::matmul::primitive_desc primitive({left, right, out}, attributes, thread.engine);
#endif
    execute_bf16(thread, primitive, a, b, c, scratch);
  } catch (const dnnl::error& error) {
    throw RunError("oneDNN: bf16 matmul {}x{}x{} failed with status {} ({}). The machine may lack memory.", m, n, k,
                   static_cast<int>(error.status), error.what());
  }
}

CpuBf16 cpu_bf16() {
  // Each instruction set has the bits of those that it contains.
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto has = [isa](dnnl::cpu_isa wanted) {
    return (isa & static_cast<unsigned>(wanted)) == static_cast<unsigned>(wanted);
  };
  if (has(dnnl::cpu_isa::avx512_core_amx)) return CpuBf16::kFast;
  if (!has(dnnl::cpu_isa::avx512_core_bf16)) return CpuBf16::kNone;
  return is_amd() ? CpuBf16::kFast : CpuBf16::kSlow;
}

}  // namespace lazytrain::ops::onednn
