#include "graph/graph.h"

#include <functional>
#include <numeric>
#include <utility>

#include "base/arith.h"

namespace lazytrain::graph {
namespace {
constexpr int64_t kParameterAlignment = 64;  // elements: 128 bytes of bf16, whole cache lines in every format
}

int64_t Unit::parameter_count() const {
  int64_t total = 0;
  for (const auto& parameter : params) total += parameter.tied ? 0 : parameter.elements;
  return total;
}

int Unit::producer(ValueId value) const {
  for (size_t i = 0; i < ops.size(); ++i) {
    for (const ValueId written : ops[i].outputs) {
      if (written == value) return static_cast<int>(i);
    }
  }
  return -1;
}

int64_t Graph::parameter_count() const {
  return std::accumulate(units.begin(), units.end(), int64_t{0},
                         [](int64_t sum, const Unit& unit) { return sum + unit.parameter_count(); });
}

int64_t Graph::matmul_parameters() const {
  double idle = 0;
  for (const Unit& unit : units) {
    for (const Op& op : unit.ops) {
      for (const ParamId id : op.params) {
        idle += (1 - op.kind->parameter_share()) * static_cast<double>(unit.params[static_cast<size_t>(id)].elements);
      }
    }
  }
  return parameter_count() - static_cast<int64_t>(idle) - (tied || units.empty() ? 0 : units.front().parameter_count());
}

UnitBuilder::UnitBuilder(std::string name, UnitKind kind, std::string parameter_prefix)
    : prefix_(std::move(parameter_prefix)) {
  unit_.name = std::move(name);
  unit_.kind = kind;
}

ValueId UnitBuilder::boundary(int64_t width) {
  unit_.values.push_back({"input", width, Element::kActivation});
  unit_.input = static_cast<ValueId>(unit_.values.size()) - 1;
  return unit_.input;
}

std::vector<ValueId> UnitBuilder::add(std::shared_ptr<const OpKind> kind, std::vector<ValueId> inputs,
                                      const std::string& scope) {
  std::vector<ParamId> params;
  for (auto& spec : kind->parameters()) {
    Parameter parameter;
    parameter.name = prefix_ + scope + "." + spec.name;
    parameter.elements = std::accumulate(spec.shape.begin(), spec.shape.end(), int64_t{1}, std::multiplies<>());
    parameter.shape = std::move(spec.shape);
    parameter.init = spec.init;
    parameter.offset = unit_.block_elements;
    unit_.block_elements += align_up(parameter.elements, kParameterAlignment);
    params.push_back(static_cast<ParamId>(unit_.params.size()));
    unit_.params.push_back(std::move(parameter));
  }
  return append(std::move(kind), std::move(inputs), std::move(params), scope);
}

std::vector<ValueId> UnitBuilder::add_tied(std::shared_ptr<const OpKind> kind, std::vector<ValueId> inputs,
                                           const std::string& name) {
  auto specs = kind->parameters();
  Parameter parameter;
  parameter.name = name;
  parameter.shape = std::move(specs.at(0).shape);
  parameter.elements = std::accumulate(parameter.shape.begin(), parameter.shape.end(), int64_t{1}, std::multiplies<>());
  parameter.tied = true;
  const auto id = static_cast<ParamId>(unit_.params.size());
  unit_.params.push_back(std::move(parameter));
  return append(std::move(kind), std::move(inputs), {id}, "tied");
}

std::vector<ValueId> UnitBuilder::append(std::shared_ptr<const OpKind> kind, std::vector<ValueId> inputs,
                                         std::vector<ParamId> params, const std::string& scope) {
  std::vector<ValueId> outputs;
  for (auto& spec : kind->outputs()) {
    spec.name = scope + "." + spec.name;
    outputs.push_back(static_cast<ValueId>(unit_.values.size()));
    unit_.values.push_back(std::move(spec));
  }
  Reads reads = kind->backward_reads();
  unit_.ops.push_back({std::move(kind), std::move(inputs), std::move(params), outputs, std::move(reads)});
  return outputs;
}

Unit UnitBuilder::finish(ValueId output) {
  unit_.output = output;
  return std::move(unit_);
}

}  // namespace lazytrain::graph
