// Runs the steps of a compiled pass with its values bound to memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor_view.h"
#include "graph/pass.h"
#include "ops/op.h"

namespace lazytrain::runtime {

// Time and arithmetic by op kind and direction, for the profile at the end of a run.
struct OpTime {
  double seconds = 0;
  double flops = 0;
  int64_t calls = 0;
};
using OpProfile = std::map<std::string, OpTime, std::less<>>;  // "linear forward" -> ...

// Where the buffers of a pass lie; null where the pass has none.
struct UnitBinding {
  std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* gradient = nullptr;
  std::byte* retained = nullptr;
  std::byte* workspace = nullptr;
  std::vector<TensorView> params;       // by ParamId
  std::vector<TensorView> param_grads;  // by ParamId, fp32; empty in forward passes
  std::vector<bool> add_param_grads;    // by ParamId
};

// A parameter as a matrix: [rows, cols], vectors are [1, n].
TensorView parameter_view(const graph::Parameter& parameter, void* data, DType dtype);

// Where a value of the pass lies: [context.tokens->count, width], empty when the pass has no place for it.
TensorView value_view(const graph::Unit& unit, const graph::Pass& pass, graph::ValueId id, const UnitBinding& binding,
                      const ops::CpuContext& context);

// Throws UsageError naming the first op that has no CPU kernel: a family that can be planned and not trained.
void require_cpu_kernels(const graph::Graph& graph);

// Who runs the kernels of an op.
class OpCalls {
 public:
  virtual ~OpCalls() = default;
  virtual void forward(const graph::OpKind& kind, const ops::ForwardArgs& args) const = 0;
  virtual void backward(const graph::OpKind& kind, const ops::BackwardArgs& args) const = 0;
};

// Runs steps [first, last) of `pass` with kernels of any device; `tokens` rows of every value are live.
void run_steps(const graph::Unit& unit, const graph::Pass& pass, int first, int last, const UnitBinding& binding,
               DType activation, int64_t tokens, const OpCalls& calls);

// The same with the CPU's. context.tokens->count rows of every value are live.
void run_steps(const graph::Unit& unit, const graph::Pass& pass, int first, int last, const UnitBinding& binding,
               const ops::CpuContext& context, OpProfile* profile);

}  // namespace lazytrain::runtime
