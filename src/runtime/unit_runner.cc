#include "runtime/unit_runner.h"

#include <array>
#include <chrono>
#include <stdexcept>

#include "base/error.h"

namespace lazytrain::runtime {
namespace {

constexpr size_t kMaxPorts = 8;  // inputs, outputs or parameters of one op

using Views = std::array<TensorView, kMaxPorts>;

const ops::CpuOp* cpu_kernels(const graph::OpKind& kind) { return dynamic_cast<const ops::CpuOp*>(&kind); }

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

TensorView located(const graph::Unit& unit, graph::ValueId id, const graph::Location& location,
                   const UnitBinding& binding, DType activation, int64_t tokens) {
  std::byte* base = nullptr;
  switch (location.place) {
    case graph::Place::kNowhere:
      return {};
    case graph::Place::kInput:
      base = binding.input;
      break;
    case graph::Place::kOutput:
      base = binding.output;
      break;
    case graph::Place::kGradient:
      base = binding.gradient;
      break;
    case graph::Place::kRetained:
      base = binding.retained;
      break;
    case graph::Place::kWorkspace:
      base = binding.workspace;
      break;
  }
  const graph::ValueSpec& spec = unit.values[static_cast<size_t>(id)];
  return dense(base + location.offset, graph::dtype_of(spec.element, activation), tokens, spec.width);
}

class CpuCalls final : public OpCalls {
 public:
  explicit CpuCalls(const ops::CpuContext& context) : context_(context) {}
  void forward(const graph::OpKind& kind, const ops::ForwardArgs& args) const override {
    cpu_kernels(kind)->forward(context_, args);
  }
  void backward(const graph::OpKind& kind, const ops::BackwardArgs& args) const override {
    cpu_kernels(kind)->backward(context_, args);
  }

 private:
  const ops::CpuContext& context_;
};

class StepRunner {
 public:
  StepRunner(const graph::Unit& unit, const graph::Pass& pass, const UnitBinding& binding, DType activation,
             int64_t tokens, const OpCalls& calls)
      : unit_(unit), pass_(pass), binding_(binding), activation_(activation), tokens_(tokens), calls_(calls) {}

  void run(const graph::Step& step) {
    const graph::Op& op = unit_.ops[static_cast<size_t>(step.op)];
    Views in{}, out{}, param{};
    for (size_t i = 0; i < op.params.size(); ++i) param[i] = binding_.params[static_cast<size_t>(op.params[i])];
    const std::span params(param.data(), op.params.size());
    if (!step.backward) {
      for (size_t i = 0; i < op.inputs.size(); ++i) in[i] = value(op.inputs[i]);
      for (size_t i = 0; i < op.outputs.size(); ++i) out[i] = value(op.outputs[i]);
      calls_.forward(*op.kind,
                     {std::span(in.data(), op.inputs.size()), params, std::span(out.data(), op.outputs.size())});
      return;
    }
    const graph::Reads reads = op.kind->backward_reads();
    for (const int i : reads.inputs) in[static_cast<size_t>(i)] = value(op.inputs[static_cast<size_t>(i)]);
    for (const int i : reads.outputs) out[static_cast<size_t>(i)] = value(op.outputs[static_cast<size_t>(i)]);
    Views out_grad{}, in_grad{}, param_grad{};
    std::array<bool, kMaxPorts> add_in{}, add_param{};
    for (size_t i = 0; i < op.outputs.size(); ++i) out_grad[i] = gradient(op.outputs[i]);
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      in_grad[i] = gradient(op.inputs[i]);
      add_in[i] = step.add_input_gradient[i];
    }
    for (size_t i = 0; i < op.params.size(); ++i) {
      param_grad[i] = binding_.param_grads[static_cast<size_t>(op.params[i])];
      add_param[i] = binding_.add_param_grads[static_cast<size_t>(op.params[i])];
    }
    calls_.backward(*op.kind, {.in = std::span(in.data(), op.inputs.size()),
                               .param = params,
                               .out = std::span(out.data(), op.outputs.size()),
                               .out_grad = std::span(out_grad.data(), op.outputs.size()),
                               .in_grad = std::span(in_grad.data(), op.inputs.size()),
                               .add_in_grad = std::span(add_in.data(), op.inputs.size()),
                               .param_grad = std::span(param_grad.data(), op.params.size()),
                               .add_param_grad = std::span(add_param.data(), op.params.size())});
  }

 private:
  TensorView value(graph::ValueId id) const { return view(id, pass_.values[static_cast<size_t>(id)]); }
  TensorView gradient(graph::ValueId id) const { return view(id, pass_.gradients[static_cast<size_t>(id)]); }

  TensorView view(graph::ValueId id, const graph::Location& location) const {
    return located(unit_, id, location, binding_, activation_, tokens_);
  }

  const graph::Unit& unit_;
  const graph::Pass& pass_;
  const UnitBinding& binding_;
  DType activation_;
  int64_t tokens_;
  const OpCalls& calls_;
};

void account(OpProfile& profile, const graph::OpKind& kind, bool backward, const ops::Tokens& tokens, double seconds) {
  const int64_t documents = std::max<int64_t>(1, static_cast<int64_t>(tokens.doc_starts.size()) - 1);
  const graph::Dims dims{tokens.count, tokens.count / documents, 2};
  OpTime& time = profile[std::string(kind.name()) + (backward ? " backward" : " forward")];
  time.seconds += seconds;
  time.flops += (backward ? kind.backward_work(dims) : kind.forward_work(dims)).flops;
  ++time.calls;
}

}  // namespace

TensorView parameter_view(const graph::Parameter& parameter, void* data, DType dtype) {
  const bool matrix = parameter.shape.size() == 2;
  return dense(data, dtype, matrix ? parameter.shape[0] : 1, parameter.shape.back());
}

TensorView value_view(const graph::Unit& unit, const graph::Pass& pass, graph::ValueId id, const UnitBinding& binding,
                      const ops::CpuContext& context) {
  return located(unit, id, pass.values[static_cast<size_t>(id)], binding, context.activation, context.tokens->count);
}

void require_cpu_kernels(const graph::Graph& graph) {
  for (const graph::Unit& unit : graph.units) {
    for (const graph::Op& op : unit.ops) {
      if (cpu_kernels(*op.kind) == nullptr) {
        throw UsageError(
            "models of family {} can be planned (lazytrain plan) but not yet trained or run: '{}' of {} has no kernel",
            graph.family, op.kind->name(), unit.name);
      }
      if (std::max({op.inputs.size(), op.outputs.size(), op.params.size()}) > kMaxPorts) {
        throw std::logic_error("an op has more ports than the runner binds");
      }
    }
  }
}

void run_steps(const graph::Unit& unit, const graph::Pass& pass, int first, int last, const UnitBinding& binding,
               DType activation, int64_t tokens, const OpCalls& calls) {
  StepRunner runner(unit, pass, binding, activation, tokens, calls);
  for (int s = first; s < last; ++s) runner.run(pass.steps[static_cast<size_t>(s)]);
}

void run_steps(const graph::Unit& unit, const graph::Pass& pass, int first, int last, const UnitBinding& binding,
               const ops::CpuContext& context, OpProfile* profile) {
  const CpuCalls calls(context);
  StepRunner runner(unit, pass, binding, context.activation, context.tokens->count, calls);
  for (int s = first; s < last; ++s) {
    const graph::Step& step = pass.steps[static_cast<size_t>(s)];
    const double start = now_s();
    runner.run(step);
    if (profile != nullptr) {
      account(*profile, *unit.ops[static_cast<size_t>(step.op)].kind, step.backward, *context.tokens, now_s() - start);
    }
  }
}

}  // namespace lazytrain::runtime
