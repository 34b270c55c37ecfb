// What an op declares about itself. Everything else that the program knows of an op (recompute slices, activation
// bytes, liveness, costs) is derived from these declarations; kernels stand in ops/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace lazytrain::graph {

// How the elements of a value or parameter are stored: activations are bf16, or fp32 under `compute: fp32`;
// statistics (reciprocal RMS, log-sum-exp) are always fp32.
enum class Element : uint8_t { kActivation, kF32 };

constexpr DType dtype_of(Element element, DType activation) {
  return element == Element::kF32 ? DType::kF32 : activation;
}

// A value is a matrix [tokens, width].
struct ValueSpec {
  std::string name;
  int64_t width = 0;
  Element element = Element::kActivation;
};

// kLogUniform: the logarithm of a uniform number in (0.01, 16), the decay rates of a DeltaNet.
enum class Init : uint8_t { kNormal, kOnes, kZeros, kLogUniform };

struct ParameterSpec {
  std::string name;            // below the op, e.g. "weight", "bias"
  std::vector<int64_t> shape;  // [out, in] for linear maps; three dimensions only where no kernel runs yet
  Init init = Init::kNormal;
};

// The size of one call. `context` is the mean number of tokens of a document (what attention costs).
struct Dims {
  int64_t tokens = 0;
  int64_t context = 0;
  int64_t activation_bytes = 2;  // bytes of an activation element
};

// Arithmetic and memory traffic of one call.
struct Work {
  double flops = 0;
  double bytes = 0;

  Work& operator+=(const Work& other) {
    flops += other.flops;
    bytes += other.bytes;
    return *this;
  }
};

// Which inputs and outputs the backward of an op reads, by position. Parameters are always at hand.
struct Reads {
  std::vector<int> inputs;
  std::vector<int> outputs;
};

class OpKind {
 public:
  virtual ~OpKind() = default;

  virtual std::string_view name() const = 0;
  virtual std::vector<ValueSpec> outputs() const = 0;
  virtual std::vector<ParameterSpec> parameters() const { return {}; }

  virtual Work forward_work(const Dims& dims) const = 0;
  virtual Work backward_work(const Dims& dims) const = 0;

  virtual Reads backward_reads() const = 0;

  // The share of its parameters that one token goes through: below 1 for a mixture of experts.
  virtual double parameter_share() const { return 1; }
  // True for row ops that cost a pass over memory and no GEMM: regenerating their outputs is nearly free.
  virtual bool cheap_to_recompute() const { return false; }
  // True when the gradient of every input is the gradient of the (only) output: the buffers may be one.
  virtual bool passes_gradient_through() const { return false; }
  // True when a token's outputs depend on other tokens: generating token by token needs a cache for such an op.
  virtual bool mixes_tokens() const { return false; }
  // True for the op that ends the graph: its backward computes the loss too, and its forward is not run in training.
  virtual bool is_loss() const { return false; }
};

}  // namespace lazytrain::graph
