// Any bytes as a safetensors file: either refused with an InputError or every tensor it lists can be read.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "base/error.h"
#include "model/safetensors.h"
#include "model/tensor_convert.h"

namespace {

using namespace lazytrain;

void read_all(const model::SafetensorsFile& file) {
  for (const auto& tensor : file.tensors()) {
    if (file.find(tensor.name) != &tensor) std::abort();
    std::vector<std::byte> copy(tensor.data, tensor.data + tensor.bytes);
    const auto count = static_cast<size_t>(tensor.count);
    try {
      std::vector<float> values(count);
      model::read_as_f32(tensor, values);
      std::vector<bf16> hi(count);
      std::vector<int16_t> lo(count);
      model::read_as_master(tensor, hi, lo);
    } catch (const InputError&) {  // a dtype that holds no weights
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const model::SafetensorsFile file(std::as_bytes(std::span(data, size)), "fuzz");
    read_all(file);
  } catch (const InputError&) {
  }
  return 0;
}
