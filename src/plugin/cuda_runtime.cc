#include "plugin/cuda_runtime.h"

#include <mutex>
#include <vector>

#include "base/error.h"

namespace lazytrain::plugin {
namespace {

cudaEvent_t native(cuda::Event& event) { return reinterpret_cast<cudaEvent_t>(&event); }

double gigabytes(size_t bytes) { return static_cast<double>(bytes) / 1e9; }

class CardRuntime final : public cuda::Runtime {
 public:
  explicit CardRuntime(int number) : number_(number) {
    check(cudaSetDevice(number), "cudaSetDevice");
    check(cudaFree(nullptr), "making a context");
  }
  ~CardRuntime() override {
    for (const cudaStream_t stream : streams_) cudaStreamDestroy(stream);
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
  }

  cuda::DeviceProperties properties() override {
    enter();
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, number_), "cudaGetDeviceProperties");
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return {.name = properties.name,
            .total_bytes = static_cast<int64_t>(total),
            .free_bytes = static_cast<int64_t>(free),
            .multiprocessors = properties.multiProcessorCount,
            .compute_capability = 10 * properties.major + properties.minor};
  }

  std::byte* allocate(int64_t bytes) override {
    enter();
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, static_cast<size_t>(bytes));
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // it is no lasting error
      size_t free = 0, total = 0;
      cudaMemGetInfo(&free, &total);
      throw RunError(
          "the card refuses {:.3f} GB of memory: {:.3f} of {:.3f} GB are free. End other processes on the card "
          "(nvidia-smi lists them), or set device.memory to what is free and plan again",
          gigabytes(static_cast<size_t>(bytes)), gigabytes(free), gigabytes(total));
    }
    check(error, "cudaMalloc");
    return static_cast<std::byte*>(memory);
  }
  void release(std::byte* memory) override { cudaFree(memory); }

  bool register_host(std::span<std::byte> memory) override {
    enter();
    const cudaError_t error = cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable);
    if (error == cudaSuccess) return true;
    cudaGetLastError();
    if (error == cudaErrorMemoryAllocation || error == cudaErrorNotSupported || error == cudaErrorNotPermitted) {
      return false;
    }
    check(error, "cudaHostRegister");
    return false;
  }
  void unregister_host(std::span<std::byte> memory) override { cudaHostUnregister(memory.data()); }

  cuda::Stream& make_stream() override {
    enter();
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    const std::lock_guard lock(mutex_);
    streams_.push_back(stream);
    return *reinterpret_cast<cuda::Stream*>(stream);
  }
  cuda::Event& make_event() override {
    enter();
    cudaEvent_t event = nullptr;
    check(cudaEventCreate(&event), "cudaEventCreate");
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
    return *reinterpret_cast<cuda::Event*>(event);
  }

  void copy(cuda::Stream& stream, void* to, const void* from, int64_t bytes, cuda::Direction direction) override {
    constexpr cudaMemcpyKind kKinds[] = {cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice};
    check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kKinds[static_cast<size_t>(direction)],
                          plugin::native(stream)),
          "cudaMemcpyAsync");
  }
  void fill(cuda::Stream& stream, void* memory, int value, int64_t bytes) override {
    check(cudaMemsetAsync(memory, value, static_cast<size_t>(bytes), plugin::native(stream)), "cudaMemsetAsync");
  }
  void record(cuda::Stream& stream, cuda::Event& event) override {
    check(cudaEventRecord(native(event), plugin::native(stream)), "cudaEventRecord");
  }
  void wait(cuda::Stream& stream, cuda::Event& event) override {
    check(cudaStreamWaitEvent(plugin::native(stream), native(event), 0), "cudaStreamWaitEvent");
  }
  void synchronize(cuda::Event& event) override { check(cudaEventSynchronize(native(event)), "a kernel or copy"); }
  void synchronize(cuda::Stream& stream) override {
    check(cudaStreamSynchronize(plugin::native(stream)), "a kernel or copy");
  }
  double seconds_between(cuda::Event& first, cuda::Event& last) override {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, native(first), native(last)), "cudaEventElapsedTime");
    return static_cast<double>(milliseconds) / 1e3;
  }

 private:
  // The calling thread works on this card; a thread begins on card 0.
  void enter() const { check(cudaSetDevice(number_), "cudaSetDevice"); }

  int number_;
  std::mutex mutex_;
  std::vector<cudaStream_t> streams_;
  std::vector<cudaEvent_t> events_;
};

}  // namespace

void check(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return;
  throw RunError(
      "CUDA, {}: {} ({}). What the host holds is intact; if this comes again, look into `dmesg` for an Xid of the "
      "driver",
      what, cudaGetErrorString(error), cudaGetErrorName(error));
}

cudaStream_t native(cuda::Stream& stream) { return reinterpret_cast<cudaStream_t>(&stream); }

std::unique_ptr<cuda::Runtime> open_card(int number) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0) throw RunError("there is no NVIDIA driver on this machine: install one, or use device.kind: cpu");
    throw RunError("the NVIDIA driver is too old: it knows CUDA {}.{}, this build needs {}.{}: install a newer driver",
                   driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && number >= count)) {
    throw RunError("there is no CUDA card {}: the driver shows {} (see nvidia-smi and CUDA_VISIBLE_DEVICES)", number,
                   error == cudaSuccess ? count : 0);
  }
  check(error, "looking for cards");
  return std::make_unique<CardRuntime>(number);
}

}  // namespace lazytrain::plugin

namespace lazytrain::cuda {

void check_launch(const Grid& grid, int threads) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return;
  throw RunError("CUDA refuses a kernel of {} x {} blocks of {} threads: {}", grid.x, grid.y, threads,
                 cudaGetErrorString(error));
}

}  // namespace lazytrain::cuda
