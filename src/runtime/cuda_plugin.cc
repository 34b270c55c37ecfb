#include "runtime/cuda_plugin.h"

#include <dlfcn.h>

#include <cstdlib>

#include "base/error.h"

namespace lazytrain::runtime {
namespace {

constexpr const char* kFile = "liblazytrain_cuda.so";
constexpr const char* kEntry = "lazytrain_cuda_plugin";

}  // namespace

const CudaPlugin& load_cuda_plugin() {
  if (const char* named = std::getenv("LAZYTRAIN_CUDA_PLUGIN")) return load_cuda_plugin(named);
  return load_cuda_plugin(std::filesystem::read_symlink("/proc/self/exe").parent_path() / kFile);
}

const CudaPlugin& load_cuda_plugin(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) {
    throw RunError("there is no {}: build LazyTrain where nvcc is (docs/cuda.md), or set LAZYTRAIN_CUDA_PLUGIN",
                   file.string());
  }
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = ::dlerror();
    throw RunError(
        "{} cannot be loaded: {}. Install the CUDA libraries it needs, or say where they are with "
        "LD_LIBRARY_PATH",
        file.string(), reason == nullptr ? "no reason given" : reason);
  }
  const auto entry = reinterpret_cast<const CudaPlugin* (*)()>(::dlsym(library, kEntry));
  const CudaPlugin* plugin = entry == nullptr ? nullptr : entry();
  if (plugin == nullptr || plugin->interface != kCudaInterface) {
    ::dlclose(library);
    throw RunError("{} belongs to another version of LazyTrain: build both together", file.string());
  }
  return *plugin;
}

}  // namespace lazytrain::runtime
